package view

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Why a task waits depends on workers, sessions, limits and the release of this app. They are read once for a page of
// tasks, and the engine derives the reason by the rules of dispatch; separate rules here could differ from what
// happens.

// waitContext reads the state on which the wait reasons of a namespace's tasks depend. With sessions it also counts the
// sessions of each worker, because tasks in a session may wait for a worker with room for the session.
func (v *View) waitContext(
	ctx context.Context, r store.Reader, ns string, sessions bool, now time.Time,
) (*engine.WaitContext, error) {
	known, err := v.workers.Roster(ctx, r, ns)
	if err != nil {
		return nil, err
	}
	return v.waitContextOf(ctx, r, known, ns, sessions, now)
}

// waitContextOf is like waitContext, for workers that were already read.
func (v *View) waitContextOf(
	ctx context.Context, r store.Reader, roster membership.Roster, ns string, sessions bool, now time.Time,
) (a *engine.WaitContext, err error) {
	var held map[string]store.Holding
	if sessions {
		if held, err = r.Holdings(ctx, ns); err != nil {
			return nil, err
		}
	}
	budgets := &throttles{settings: v.store.Queue, ns: ns, now: now}
	a = &engine.WaitContext{
		Now: now, Release: v.opt.Release, Sessions: map[string]*engine.Session{},
		Settings: func(queue string) *engine.Queue { return v.store.Queue(engine.QueueKey{Namespace: ns, Name: queue}) },
		Throttle: func(queue string, kind protocol.TaskKind) engine.Throttle { return budgets.of(ctx, r, queue, kind) },
	}
	for _, k := range slices.SortedFunc(maps.Keys(roster), func(x, y engine.WorkerKey) int {
		return cmp.Compare(x.ID, y.ID)
	}) {
		h := roster[k]
		a.Workers = append(a.Workers, engine.WorkerCandidate{
			Worker: h.Worker, Alive: v.workers.Alive(h, now), Draining: v.workers.Stopped(&h), Gate: h.Gate,
			Sessions: held[k.ID].Sessions, Used: held[k.ID].UsedAt(h.Worker), Full: h.Full(),
		})
	}
	return a, nil
}
