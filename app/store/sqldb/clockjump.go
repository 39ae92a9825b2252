package sqldb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb/clock"
	"github.com/sojourn-run/sojourn/app/store/sqldb/db"
)

// Leases, back-offs and what is stored of who lives are lengths, stored as the times of their ends. After a jump of
// the clock those would end too late, or at once. So the committer decides nothing by a clock that jumped before it
// has moved them (engine.ClockJump). Each app does so when it finds the jump; what one of them moved is right for the
// others.

// errClockJumped gives up a batch before anything of it is decided: its time is after a jump.
var errClockJumped = errors.New("the clock jumped")

// clockJumped is errClockJumped while a jump is not handled.
func (s *Store) clockJumped() error {
	if s.settling || !s.clock.Pending() {
		return nil
	}
	return errClockJumped
}

// ClockJumps has an entry for each jump that was handled.
func (s *Store) ClockJumps() <-chan store.ClockJump { return s.jumps }

// settleClock moves what has to follow the clock after a jump, before anything else is decided. It is called by the
// committer, between batches. An error leaves the jump to be handled.
func (s *Store) settleClock() error {
	if s.settling || !s.clock.Pending() {
		return nil
	}
	s.settling = true
	defer func() { s.settling = false }()
	by := s.clock.Take()
	if by == 0 {
		return nil
	}
	moved, now, err := s.followClock(by)
	if errors.Is(err, store.ErrUnavailable) {
		s.clock.Settled(by)
		return fmt.Errorf("move leases after the clock jumped by %s: %w", by, err)
	}
	s.clock.Settled(0)
	select {
	case s.jumps <- store.ClockJump{By: by, At: now, Moved: moved, Err: err}:
	default: // nobody reads them
	}
	return nil
}

// followClock moves leases, back-offs, and until when workers and apps are believed alive. After a jump back a row of
// batches keeps the time before it until all of that is stored, so that an app that is started meanwhile finds the
// jump.
func (s *Store) followClock(by time.Duration) (moved int, now time.Time, err error) {
	ctx := context.Background()
	if now, err = s.reads.Now(ctx); err != nil {
		return 0, now, err
	}
	marker := "clock jump found by " + s.cfg.App
	if by < 0 {
		before := now.Add(-by).UnixMicro()
		if err := s.cfg.Conn.Send(ctx, []*db.Call{{Stmt: s.st.markJump, Args: []any{marker, before}}}); err != nil {
			return 0, now, errors.Join(s.cfg.Dialect.Away(err), s.cfg.Conn.Reset(ctx))
		}
	}
	changes, err := s.clockChanges(ctx, engine.ClockJump(by))
	if err != nil {
		return 0, now, err
	}
	var rest []*pending
	for len(changes) > 0 || len(rest) > 0 {
		items := rest
		for len(changes) > 0 && len(items) < mostChanges {
			items = append(items, &pending{change: &changes[0], done: make(chan struct{})})
			changes = changes[1:]
		}
		rest = s.attempt(items)
		for _, p := range items {
			select {
			case <-p.done:
			default: // it is left over, or set aside for what another app has locked
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
		return moved, now, errors.Join(s.cfg.Dialect.Away(err), s.cfg.Conn.Reset(ctx))
	}
	s.ending.Go(func() { s.followReady(engine.ClockJump(by), now) })
	return moved, now, nil
}

// clockChanges are the changes that move what has to follow a jump before anything else is decided: one for each row,
// so that a row another app has locked holds up no other.
func (s *Store) clockChanges(ctx context.Context, j engine.ClockJump) (list []store.Change, err error) {
	add := func(query string, change func(a, b string) store.Change) {
		if err == nil {
			err = s.keysOf(ctx, query, func(a, b string) { list = append(list, change(a, b)) })
		}
	}
	add("SELECT namespace, session_id FROM sessions WHERE due_at IS NOT NULL", func(ns, id string) store.Change {
		return sessionFollows(engine.SessionKey{Namespace: ns, ID: id}, j)
	})
	add("SELECT namespace, worker_id FROM workers", func(ns, id string) store.Change {
		return workerFollows(engine.WorkerKey{Namespace: ns, ID: id}, j)
	})
	add("SELECT run_id, '' FROM runs WHERE owner IS NOT NULL"+
		" UNION SELECT run_id, '' FROM runs WHERE due_at IS NOT NULL AND state LIKE '%\"state\":\"delayed\"%'"+
		" UNION SELECT run_id, '' FROM tasks WHERE state IN ('leased', 'delayed')", func(id, _ string) store.Change {
		return runFollows(id, j)
	})
	add("SELECT namespace, queue FROM queues", func(ns, name string) store.Change {
		return queueFollows(engine.QueueKey{Namespace: ns, Name: name}, j)
	})
	return list, err
}

// followReady moves the times since which tasks are ready that are ahead of the clock: they would be served after those
// that become ready later. It goes beside what is decided meanwhile.
func (s *Store) followReady(j engine.ClockJump, now time.Time) {
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
		return // they keep their times
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(mostCleanUp)
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

// keysOf reads the two columns of a query.
func (s *Store) keysOf(ctx context.Context, query string, key func(a, b string)) error {
	rows, err := s.cfg.Reads.QueryContext(ctx, query)
	if err != nil {
		return s.cfg.Dialect.Away(err)
	}
	defer rows.Close()
	for rows.Next() {
		var a, b string
		if err := rows.Scan(&a, &b); err != nil {
			return err
		}
		key(a, b)
	}
	return s.cfg.Dialect.Away(rows.Err())
}

// errFollows ends a change of a row that need not be moved.
var errFollows = errors.New("it follows the clock")

func runFollows(id string, j engine.ClockJump) store.Change {
	return store.Change{
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

func sessionFollows(k engine.SessionKey, j engine.ClockJump) store.Change {
	return store.Change{
		Needs: store.Keys{Sessions: []engine.SessionKey{k}},
		Decide: func(r store.Rows, now time.Time) (w store.Writes, err error) {
			c, err := engine.DecideSession(r.Session(k), engine.FollowClockSession{Jump: j}, now)
			w.Sessions = []engine.SessionChange{c}
			return w, err
		},
	}
}

func workerFollows(k engine.WorkerKey, j engine.ClockJump) store.Change {
	return rowFollows(
		store.Keys{Workers: []engine.WorkerKey{k}, Present: true}, j,
		func(r store.Rows) *engine.Worker { return r.Worker(k) }, (*engine.Worker).FollowClock,
		func(w *store.Writes, next engine.Worker) { w.Workers = []engine.Worker{next} },
	)
}

func queueFollows(k engine.QueueKey, j engine.ClockJump) store.Change {
	return rowFollows(
		store.Keys{Queues: []engine.QueueKey{k}}, j,
		func(r store.Rows) *engine.Queue { return r.Queue(k) }, (*engine.Queue).FollowClock,
		func(w *store.Writes, next engine.Queue) { w.Queues = []engine.Queue{next} },
	)
}

// rowFollows is the change of a row that the engine decides nothing about: read returns the row, follow its new content,
// and write adds that to the writes.
func rowFollows[T any](
	needs store.Keys, j engine.ClockJump, read func(store.Rows) *T,
	follow func(*T, engine.ClockJump, time.Time) (T, bool), write func(*store.Writes, T),
) store.Change {
	return store.Change{
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
