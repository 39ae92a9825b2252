package view

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A limit requires a count of the leased tasks. Most queues have no limit, so the tasks are counted only for the first
// queue with one, and then once for all tasks of a request.

// throttles reports whether limits withhold tasks of one namespace. It counts leased tasks once per request, and only
// if there is a limit.
type throttles struct {
	settings func(engine.QueueKey) *engine.Queue
	ns       string
	now      time.Time
	snapshot *queueSnapshot
}

func (t *throttles) of(ctx context.Context, r store.Reader, queue string, kind protocol.TaskKind) engine.Throttle {
	own, all := t.settings(engine.QueueKey{Namespace: t.ns, Name: queue}),
		t.settings(engine.QueueKey{Namespace: t.ns})
	if !own.Budget(kind).Bounded() && !all.Budget(kind).Bounded() {
		return engine.Throttle{}
	}
	if t.snapshot == nil {
		g := &queueSnapshot{
			ns: t.ns, now: t.now, stats: map[string]map[protocol.TaskKind]store.QueueStats{},
			decided: map[string]*engine.Queue{},
		}
		if stats, err := r.Leased(ctx, t.ns); err == nil {
			g.add(stats)
		}
		if rows, err := r.QueueRows(ctx, t.ns); err == nil {
			for i := range rows {
				g.decided[rows[i].Name] = &rows[i]
			}
		}
		t.snapshot = g
	}
	return throttle(
		t.snapshot.decided[queue], t.snapshot.decided[""], kind, t.snapshot.leased(queue, kind), t.snapshot.leased("", kind),
		t.now,
	)
}

// throttle returns why the limits of a queue and its namespace stop dispatch; an empty Why means that they do not.
func throttle(
	queue, namespace *engine.Queue, kind protocol.TaskKind, leasedInQueue, leasedInNamespace int, now time.Time,
) engine.Throttle {
	var t engine.Throttle
	if queue != nil {
		_, t, _ = queue.Room(kind, leasedInQueue, now)
	}
	if t.Why == nil && namespace != nil {
		_, t, _ = namespace.Room(kind, leasedInNamespace, now)
	}
	return t
}
