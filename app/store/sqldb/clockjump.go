package sqldb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/clock"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// Leases, backoffs and the liveness of workers are durations that are stored as end times. After a jump of the clock
// they would end too late, or immediately. So after a jump the committer decides nothing before it has adjusted them
// (engine.ClockJump). Each app does so when it detects the jump; adjusting a row twice is harmless.

// errClockJumped abandons a batch before any decision: its time is after a jump for which the rows have not been
// adjusted.
var errClockJumped = errors.New("the clock of the database jumped")

// clockJumped returns errClockJumped while a jump has not been handled.
func (s *Store) clockJumped() error {
	if s.settling || !s.clock.Pending() {
		return nil
	}
	return errClockJumped
}

// ClockJumps receives an entry for each jump that was handled.
func (s *Store) ClockJumps() <-chan store.ClockJump { return s.jumps }

// settleClock adjusts the stored times after a jump, before any other decision. The committer calls it between batches.
// After an error the jump is still pending.
func (s *Store) settleClock() error {
	if s.settling || !s.clock.Pending() {
		return nil
	}
	s.settling = true
	defer func() { s.settling = false }()
	by := s.clock.TakeJump()
	if by == 0 {
		return nil
	}
	moved, now, err := s.adjustTimes(by)
	if errors.Is(err, store.ErrUnavailable) {
		s.clock.JumpHandled(by)
		return fmt.Errorf("move leases after the clock jumped by %s: %w", by, err)
	}
	s.clock.JumpHandled(0)
	select {
	case s.jumps <- store.ClockJump{By: by, At: now, Moved: moved, Err: err}:
	default: // the channel is full, because it has no reader
	}
	return nil
}

// adjustTimes adjusts leases, backoffs, and the liveness of workers and apps. After a jump back, a row of the table
// batches contains the time before the jump until everything is stored, so that an app that starts meanwhile also
// detects the jump.
func (s *Store) adjustTimes(by time.Duration) (moved int, now time.Time, err error) {
	ctx := context.Background()
	if now, err = s.reads.Now(ctx); err != nil {
		return 0, now, err
	}
	marker := "clock jump found by " + s.cfg.App
	if by < 0 {
		before := now.Add(-by).UnixMicro()
		if err := s.cfg.Conn.Send(ctx, []*db.Call{{Stmt: s.st.markJump, Args: []any{marker, before}}}); err != nil {
			return 0, now, errors.Join(s.cfg.Dialect.WrapUnavailable(err), s.cfg.Conn.Reset(ctx))
		}
	}
	changes, err := s.clockChanges(ctx, engine.ClockJump(by))
	if err != nil {
		return 0, now, err
	}
	var rest []*pending
	for len(changes) > 0 || len(rest) > 0 {
		items := rest
		for len(changes) > 0 && len(items) < maxChanges {
			items = append(items, &pending{transaction: &changes[0], done: make(chan struct{})})
			changes = changes[1:]
		}
		rest = s.attempt(items)
		for _, p := range items {
			select {
			case <-p.done:
			default: // the row did not fit into the batch, or another app has locked it
				continue
			}
			switch {
			case p.err == nil:
				moved++
			case errors.Is(p.err, store.ErrUnavailable):
				return moved, now, p.err
			}
		}
	}
	if by > 0 {
		return moved, now, nil
	}
	calls := []*db.Call{
		{Stmt: s.st.clampBatches, Args: []any{now.UnixMicro(), now.Add(clock.MaxStep).UnixMicro()}},
		{Stmt: s.st.dropMark, Args: []any{marker}},
	}
	if err := s.cfg.Conn.Send(ctx, calls); err != nil {
		return moved, now, errors.Join(s.cfg.Dialect.WrapUnavailable(err), s.cfg.Conn.Reset(ctx))
	}
	s.ending.Go(func() { s.adjustReadyTimes(engine.ClockJump(by), now) })
	return moved, now, nil
}

// clockChanges returns the transactions that adjust stored times, one for each row, so that a row that another app has
// locked does not delay the others.
func (s *Store) clockChanges(ctx context.Context, j engine.ClockJump) (list []store.Transaction, err error) {
	add := func(query string, change func(a, b string) store.Transaction) {
		if err == nil {
			err = s.keysOf(ctx, query, func(a, b string) { list = append(list, change(a, b)) })
		}
	}
	add("SELECT namespace, session_id FROM sessions WHERE due_at IS NOT NULL", func(ns, id string) store.Transaction {
		return sessionFollows(engine.SessionKey{Namespace: ns, ID: id}, j)
	})
	add("SELECT namespace, worker_id FROM workers", func(ns, id string) store.Transaction {
		return workerFollows(engine.WorkerKey{Namespace: ns, ID: id}, j)
	})
	add("SELECT run_id, '' FROM runs WHERE owner IS NOT NULL"+
		" UNION SELECT run_id, '' FROM runs WHERE due_at IS NOT NULL AND state LIKE '%\"state\":\"delayed\"%'"+
		" UNION SELECT run_id, '' FROM tasks WHERE state IN ('leased', 'delayed', 'pending')", func(id, _ string) store.Transaction {
		return runFollows(id, j)
	})
	add("SELECT namespace, queue FROM queues", func(ns, name string) store.Transaction {
		return queueFollows(engine.QueueKey{Namespace: ns, Name: name}, j)
	})
	return list, err
}

// adjustReadyTimes adjusts the times since which tasks are ready, if they are later than the clock: such tasks would be
// dispatched after tasks that become ready later. It runs concurrently with the committer.
func (s *Store) adjustReadyTimes(j engine.ClockJump, now time.Time) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		select {
		case <-s.quit:
			stop()
		case <-ctx.Done():
		}
	}()
	var ids []string
	query := fmt.Sprintf("SELECT DISTINCT run_id, '' FROM tasks WHERE ready_at > %d AND state = 'ready'", now.UnixMicro())
	if s.keysOf(ctx, query, func(id, _ string) { ids = append(ids, id) }) != nil {
		return // the tasks keep their times
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxCleanUp)
	for _, id := range ids {
		group.Go(func() error {
			c := runFollows(id, j)
			c.Background = true
			if _, err := s.Commit(ctx, c); errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrClosed) {
				return err
			}
			return nil
		})
	}
	_ = group.Wait()
}

// keysOf calls key with the two columns of each row of a query.
func (s *Store) keysOf(ctx context.Context, query string, key func(a, b string)) error {
	rows, err := s.cfg.Reads.QueryContext(ctx, query)
	if err != nil {
		return s.cfg.Dialect.WrapUnavailable(err)
	}
	defer rows.Close()
	for rows.Next() {
		var a, b string
		if err := rows.Scan(&a, &b); err != nil {
			return err
		}
		key(a, b)
	}
	return s.cfg.Dialect.WrapUnavailable(rows.Err())
}

// errFollows ends the transaction of a row that needs no adjustment.
var errFollows = errors.New("the row is adjusted to the clock already")

func runFollows(id string, j engine.ClockJump) store.Transaction {
	return store.Transaction{
		Needs: store.Keys{Runs: []string{id}},
		Decide: func(r store.Rows, now time.Time) (w store.Writes, err error) {
			run := r.Run(id)
			if run == nil {
				return w, errFollows
			}
			d, err := engine.DecideRun(run, engine.Environment{}, engine.FollowClock{Jump: j}, now)
			w.Runs = []engine.Decision{d}
			return w, err
		},
	}
}

func sessionFollows(k engine.SessionKey, j engine.ClockJump) store.Transaction {
	return store.Transaction{
		Needs: store.Keys{Sessions: []engine.SessionKey{k}},
		Decide: func(r store.Rows, now time.Time) (w store.Writes, err error) {
			c, err := engine.DecideSession(r.Session(k), engine.FollowClockSession{Jump: j}, now)
			w.Sessions = []engine.SessionChange{c}
			return w, err
		},
	}
}

func workerFollows(k engine.WorkerKey, j engine.ClockJump) store.Transaction {
	return rowFollows(
		store.Keys{Workers: []engine.WorkerKey{k}, Present: true}, j,
		func(r store.Rows) *engine.Worker { return r.Worker(k) }, (*engine.Worker).FollowClock,
		func(w *store.Writes, next engine.Worker) { w.Workers = []engine.Worker{next} },
	)
}

func queueFollows(k engine.QueueKey, j engine.ClockJump) store.Transaction {
	return rowFollows(
		store.Keys{Queues: []engine.QueueKey{k}}, j,
		func(r store.Rows) *engine.Queue { return r.Queue(k) }, (*engine.Queue).FollowClock,
		func(w *store.Writes, next engine.Queue) { w.Queues = []engine.Queue{next} },
	)
}

// rowFollows returns the transaction that adjusts a row without a decision of the engine: read returns the row, follow
// the adjusted row, and write adds the adjusted row to the writes.
func rowFollows[T any](
	needs store.Keys, j engine.ClockJump, read func(store.Rows) *T,
	follow func(*T, engine.ClockJump, time.Time) (T, bool), write func(*store.Writes, T),
) store.Transaction {
	return store.Transaction{
		Needs: needs,
		Decide: func(r store.Rows, now time.Time) (w store.Writes, err error) {
			row := read(r)
			if row == nil {
				return w, errFollows
			}
			next, moved := follow(row, j, now)
			if !moved {
				return w, errFollows
			}
			write(&w, next)
			return w, nil
		},
	}
}
