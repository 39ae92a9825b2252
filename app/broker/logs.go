package broker

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// logging lets the lines of one activity be stored one chunk after the other, so that what is kept of an attempt is
// counted right.
type logging struct {
	seed  maphash.Seed
	locks [64]sync.Mutex // by task
}

func (l *logging) of(task string) *sync.Mutex {
	return &l.locks[maphash.String(l.seed, task)%uint64(len(l.locks))]
}

// RecordLogs keeps lines that the code of running attempts logged. It takes those of attempts that the worker holds and
// of no other, each on its own, and neither renews a lease nor counts as a sign of life.
func (b *Broker) RecordLogs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsAnswer, error) {
	if len(in.Items) == 0 || len(in.Items) > maxItems {
		return protocol.LogsAnswer{}, protocol.Invalid("items", "must be 1 to %d chunks", maxItems)
	}
	out := protocol.LogsAnswer{Items: make([]protocol.LogReceipt, len(in.Items))}
	var wait sync.WaitGroup
	for i := range in.Items {
		wait.Go(func() {
			item := &in.Items[i]
			r := protocol.LogReceipt{TaskID: item.TaskID, AttemptID: item.AttemptID}
			r.Recorded, r.Err = b.recordLogs(ctx, item)
			if r.Err != nil {
				r.Reason, r.Message = cmp.Or(protocol.ReasonOf(r.Err), protocol.ReasonBackendUnavailable), r.Err.Error()
			}
			out.Items[i] = r
		})
	}
	wait.Wait()
	return out, nil
}

func (b *Broker) recordLogs(ctx context.Context, in *protocol.AttemptLogs) (recorded bool, err error) {
	if err := in.Check(); err != nil {
		return false, err
	}
	lock := b.logs.of(in.TaskID)
	lock.Lock()
	defer lock.Unlock()
	// Whose an attempt is never changes, so what is seen here is right still when the lines are written.
	s, err := b.AttemptStatus(ctx, protocol.HeartbeatRequest{
		Namespace: in.Namespace, Kind: protocol.KindActivity, TaskID: in.TaskID, Owner: in.Owner, AttemptID: in.AttemptID,
	})
	switch {
	case err != nil:
		return false, err
	case s.AttemptState != "running":
		return false, protocol.Refuse(
			protocol.ReasonStaleAttempt, "the attempt of task %s is over, so its lines are not taken", in.TaskID,
		)
	}
	k, _ := attemptKey(in.TaskID, in.AttemptID)
	var kept store.LogSum
	err = b.store.View(ctx, func(r store.Reader) error {
		sums, err := r.LogSums(ctx, k.Run, k.Seq)
		for _, sum := range sums {
			if sum.Delivery == k.Delivery {
				kept = sum
			}
		}
		return err
	})
	if err != nil {
		return false, err
	}
	chunk := in.LogChunk
	if chunk.Part == 0 {
		chunk.Part = kept.Last + 1
	}
	// What is full says so in its last line, which counts for nothing more.
	if kept.Size > protocol.MaxLogBytes {
		return false, nil
	}
	_, err = b.store.Commit(ctx, store.Change{
		Background: true,
		Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{Logs: logParts(k, protocol.MaxLogBytes-int(kept.Size), chunk)}, nil
		},
	})
	return err == nil, err
}

// attemptKey takes an attempt's id apart, if it is one of this task.
func attemptKey(task, attempt string) (k store.AttemptKey, ok bool) {
	if k.Run, k.Seq, ok = engine.ParseStepID(task); ok {
		k.Delivery, ok = deliveryOf(task, attempt)
	}
	return k, ok
}

// logParts are chunks as rows, no more of them all than there is room for.
func logParts(k store.AttemptKey, room int, chunks ...protocol.LogChunk) (list []store.LogPart) {
	for _, c := range chunks {
		if c.Part <= 0 || len(c.Lines) == 0 {
			continue
		}
		if room < 0 {
			break
		}
		c = c.Fit(room)
		room -= protocol.LogSize(c.Lines)
		list = append(list, store.LogPart{LogKey: store.LogKey{AttemptKey: k, Part: c.Part}, Lines: c.Lines})
	}
	return list
}

// withLines has the lines that came with an outcome stored in its change, if it is taken.
func withLines(c store.Change, in *protocol.CompleteItem) store.Change {
	k, ok := attemptKey(in.TaskID, in.AttemptID)
	if len(in.Lines) == 0 || in.Kind != protocol.KindActivity || !ok {
		return c
	}
	parts, decide := logParts(k, protocol.MaxLogBytes, in.Lines...), c.Decide
	c.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
		w, err := decide(rows, now)
		if o, is := w.Answer.(change.Outcome); err == nil && is && o.Refused == nil {
			w.Logs = append(slices.Clip(w.Logs), parts...)
		}
		return w, err
	}
	return c
}

// pruneLogs removes lines that are older than lines are kept, and returns how long it is until others are: zero when
// there are none.
func (b *Broker) pruneLogs(ctx context.Context) (next time.Duration, err error) {
	for {
		now, err := b.store.Now(ctx)
		if err != nil {
			return 0, err
		}
		var old []store.LogKey
		var first time.Time
		err = b.store.View(ctx, func(r store.Reader) (err error) {
			if old, err = r.OldLogs(ctx, now.Add(-b.opt.LogAge), piece); err == nil && len(old) == 0 {
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
			return max(first.Add(b.opt.LogAge).Sub(now), time.Second), nil
		}
		_, err = b.store.Commit(ctx, store.Change{
			Background: true,
			Decide:     func(store.Rows, time.Time) (store.Writes, error) { return store.Writes{DropLogs: old}, nil },
		})
		if err != nil {
			return 0, err
		}
	}
}
