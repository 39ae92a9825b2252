// Package logs stores the log lines of activities and removes them after their retention. No decision reads them.
// Storing lines locks no row and delays no other change; lines that arrive with an outcome are part of its change.
package logs

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Options of the logs of an app. All are required.
type Options struct {
	Shared bool          // other apps use the same database
	Age    time.Duration // how long lines are kept
	// Attempt returns the response that a heartbeat of an attempt would get, which shows whether the caller owns the
	// attempt.
	Attempt func(ctx context.Context, in protocol.HeartbeatRequest) (protocol.AttemptStatus, error)
}

// Logs are the lines of all activities. All methods may be called from any goroutine.
type Logs struct {
	store store.Store
	opt   Options
	seed  maphash.Seed
	locks [64]sync.Mutex // by task: serializes the batches of one task, so that sizes are counted correctly
}

// New returns the logs of an app.
func New(s store.Store, o Options) *Logs { return &Logs{store: s, opt: o, seed: maphash.MakeSeed()} }

// of returns the lock of a task. All tasks share a fixed number of locks, so no lock has to be removed; tasks with the
// same lock sometimes wait for each other.
func (l *Logs) of(task string) *sync.Mutex {
	return &l.locks[maphash.String(l.seed, task)%uint64(len(l.locks))]
}

// Record stores log lines of running attempts. Each chunk must be from an attempt that the worker holds, and succeeds
// or fails on its own. Record neither renews a lease nor counts as a heartbeat.
func (l *Logs) Record(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	if len(in.Items) == 0 || len(in.Items) > protocol.MaxItems {
		return protocol.LogsResponse{}, protocol.Invalid("items", "must be 1 to %d chunks", protocol.MaxItems)
	}
	out := protocol.LogsResponse{Items: make([]protocol.LogReceipt, len(in.Items))}
	var wait sync.WaitGroup
	for i := range in.Items {
		wait.Go(func() {
			item := &in.Items[i]
			r := protocol.LogReceipt{TaskID: item.TaskID, AttemptID: item.AttemptID}
			r.Recorded, r.Err = l.recordAttempt(ctx, item)
			if r.Err != nil {
				r.Reason, r.Message = cmp.Or(protocol.ReasonOf(r.Err), protocol.ReasonBackendUnavailable), r.Err.Error()
			}
			out.Items[i] = r
		})
	}
	wait.Wait()
	return out, nil
}

func (l *Logs) recordAttempt(ctx context.Context, in *protocol.AttemptLogs) (recorded bool, err error) {
	if err := in.Check(); err != nil {
		return false, err
	}
	lock := l.of(in.TaskID)
	lock.Lock()
	defer lock.Unlock()
	// The worker of an attempt never changes, so this check is still valid when the lines are stored.
	s, err := l.opt.Attempt(ctx, protocol.HeartbeatRequest{
		Namespace: in.Namespace, Kind: protocol.KindActivity, TaskID: in.TaskID, Owner: in.Owner, AttemptID: in.AttemptID,
	})
	switch {
	case err != nil:
		return false, err
	// The outcome contained the last lines of the attempt; later lines are rejected.
	case s.AttemptState != "running":
		return false, protocol.Refuse(
			protocol.ReasonStaleAttempt, "the attempt of task %s has ended; its log lines are not stored", in.TaskID,
		)
	}
	k, _ := attemptKey(in.TaskID, in.AttemptID)
	for {
		kept, err := l.storedLines(ctx, k)
		if err != nil {
			return false, err
		}
		// If the limit is reached, the last line reports it; this line does not count towards the limit.
		if kept.Size > protocol.MaxLogBytes || in.Part == 0 && kept.Last >= protocol.MaxLogPart {
			return false, nil
		}
		parts := logParts(k, kept, protocol.MaxLogBytes-int(kept.Size), in.LogChunk)
		if len(parts) == 0 {
			return true, nil // the chunk has no lines
		}
		_, err = l.store.Commit(ctx, store.Transaction{
			Background: true,
			Decide: func(store.Rows, time.Time) (store.Writes, error) {
				return store.Writes{Logs: slices.Clone(parts)}, nil
			},
		})
		if err != nil || in.Part > 0 || !l.opt.Shared {
			return err == nil, err
		}
		// this app chose the number; another app may have used it for other lines at the same time
		var found []store.LogBatch
		err = l.store.View(ctx, func(r store.Reader) (err error) {
			found, err = r.Logs(ctx, k, parts[0].Part-1, 1)
			return err
		})
		if err != nil || len(found) == 1 && slices.Equal(found[0].Lines, parts[0].Lines) {
			return err == nil, err
		}
	}
}

// storedLines returns the size and number of the stored lines of an attempt.
func (l *Logs) storedLines(ctx context.Context, k store.AttemptKey) (kept store.LogSum, err error) {
	err = l.store.View(ctx, func(r store.Reader) error {
		sums, err := r.LogSums(ctx, k.Run, k.Seq)
		for _, sum := range sums {
			if sum.Delivery == k.Delivery {
				kept = sum
			}
		}
		return err
	})
	return kept, err
}

// attemptKey parses an attempt ID and checks that it belongs to the task.
func attemptKey(task, attempt string) (k store.AttemptKey, ok bool) {
	k.Run, k.Seq, k.Delivery, ok = engine.ParseAttemptID(attempt)
	return k, ok && attempt[:strings.LastIndexByte(attempt, '-')] == task
}

// logParts converts chunks to rows after the stored rows, as far as there is room.
func logParts(
	k store.AttemptKey, kept store.LogSum, room int, chunks ...protocol.LogChunk,
) (list []store.LogBatch) {
	last := kept.Last
	for _, c := range chunks {
		if c.Part == 0 {
			c.Part = last + 1
		}
		if c.Part < 0 || c.Part > protocol.MaxLogPart || len(c.Lines) == 0 {
			continue
		}
		last = max(last, c.Part)
		if room < 0 {
			break
		}
		c = c.Fit(room)
		room -= protocol.LogSize(c.Lines)
		list = append(list, store.LogBatch{LogKey: store.LogKey{AttemptKey: k, Part: c.Part}, Lines: c.Lines})
	}
	return list
}

// uncheckedLines is the size of the log lines that an outcome may add without a check of the stored size: most
// activities log little, and all of it at their end.
const uncheckedLines = 4 << 10

// FinalLines returns the lines that came with an outcome, as rows.
func (l *Logs) FinalLines(ctx context.Context, in *protocol.CompleteItem) ([]store.LogBatch, error) {
	k, ok := attemptKey(in.TaskID, in.AttemptID)
	if len(in.Lines) == 0 || in.Kind != protocol.KindActivity || !ok {
		return nil, nil
	}
	var kept store.LogSum
	size, numbered := 0, true
	for i := range in.Lines {
		size += protocol.LogSize(in.Lines[i].Lines)
		numbered = numbered && in.Lines[i].Part != 0
	}
	if size > uncheckedLines || !numbered {
		var err error
		if kept, err = l.storedLines(ctx, k); err != nil || kept.Size > protocol.MaxLogBytes {
			return nil, err
		}
	}
	return logParts(k, kept, protocol.MaxLogBytes-int(kept.Size), in.Lines...), nil
}

// AddTo adds the log lines of an outcome to its transaction, so that they are stored only if it is accepted.
func AddTo(c store.Transaction, lines []store.LogBatch) store.Transaction {
	if len(lines) == 0 {
		return c
	}
	decide := c.Decide
	c.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
		w, err := decide(rows, now)
		if o, is := w.Answer.(transaction.Outcome); err == nil && is && o.Refused == nil {
			w.Logs = append(slices.Clip(w.Logs), lines...)
		}
		return w, err
	}
	return c
}

// pruneBatch is the maximum number of old log batches that one transaction deletes.
const pruneBatch = 100

// Prune deletes expired log lines, and returns the time until the next lines expire: zero if there are none.
func (l *Logs) Prune(ctx context.Context) (next time.Duration, err error) {
	for {
		now, err := l.store.Now(ctx)
		if err != nil {
			return 0, err
		}
		var old []store.LogKey
		var first time.Time
		err = l.store.View(ctx, func(r store.Reader) (err error) {
			if old, err = r.OldLogs(ctx, now.Add(-l.opt.Age), pruneBatch); err == nil && len(old) == 0 {
				first, err = r.FirstLog(ctx)
			}
			return err
		})
		switch {
		case err != nil:
			return 0, err
		case len(old) == 0 && first.IsZero():
			return 0, nil
		case len(old) == 0:
			return max(first.Add(l.opt.Age).Sub(now), time.Second), nil
		}
		_, err = l.store.Commit(ctx, store.Transaction{
			Background: true,
			Decide:     func(store.Rows, time.Time) (store.Writes, error) { return store.Writes{DropLogs: old}, nil },
		})
		if err != nil {
			return 0, err
		}
	}
}
