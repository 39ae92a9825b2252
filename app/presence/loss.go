package presence

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// The end of a process is found in four ways: another process registers under its id, an operator removes it, its
// heartbeats stop, or one of its leases ends. Whichever comes first judges all that it held.

// lose ends what a process held that has ended, and says how much that was.
func (ws *Workers) lose(ctx context.Context, l change.Loss) (change.Lost, error) {
	l.Limit = ws.opt.MaxBlamed
	lost, err := change.Lose(ctx, ws.store, l)
	if lost != (change.Lost{}) {
		if ws.opt.Lost != nil {
			ws.opt.Lost(lost)
		}
		ws.log.Warn().Str("worker_id", l.Worker.ID).Str("incarnation", l.Incarnation).Str("cause", l.Why).
			Int("tasks", lost.Ended).Int("suspects", lost.Suspects).Int("blamed", lost.Blamed).Int("cleared", lost.Cleared).
			Msg("worker process ended with tasks leased to it")
	}
	return lost, err
}

// loseProcesses ends what processes of a worker held that of says yes to. What was leased later than they ended, by
// died, was never with them and only goes back.
func (ws *Workers) loseProcesses(
	ctx context.Context, key engine.WorkerKey, why string, died func(store.TaskRef) bool, of func(incarnation string) bool,
) (all, flows int, err error) {
	leases, err := change.ProcessLeases(ctx, ws.store, key)
	if err != nil {
		return 0, 0, err
	}
	for _, incarnation := range slices.Sorted(maps.Keys(leases)) {
		if !of(incarnation) {
			continue
		}
		l := change.Loss{Worker: key, Incarnation: incarnation, Why: why}
		for _, ref := range leases[incarnation] {
			if died(ref) {
				l.Tasks = append(l.Tasks, ref)
			}
		}
		lost, err := ws.lose(ctx, l)
		all, flows = all+lost.Ended, flows+lost.Flows
		if err != nil {
			return all, flows, err
		}
	}
	// What came after its end is no part of the loss.
	more, ofThem, err := change.ReleaseLeases(ctx, ws.store, key, why, func(ref store.TaskRef) bool {
		return of(ref.Incarnation) && !died(ref)
	})
	return all + more, flows + ofThem, err
}

// judgeEnded judges a process of which a lease was found to be over, if err says that it has ended: what its leases
// cover for longer stays with it until they are over. It says whether it did.
func (ws *Workers) judgeEnded(ctx context.Context, err error) (bool, error) {
	var ended *engine.ProcessEnded
	if !errors.As(err, &ended) {
		return false, nil
	}
	key := engine.WorkerKey{Namespace: ended.Namespace, ID: ended.Worker}
	leases, err := change.ProcessLeases(ctx, ws.store, key)
	if err != nil {
		return true, err
	}
	_, err = ws.lose(ctx, change.Loss{
		Worker: key, Incarnation: ended.Incarnation, Why: engine.LeaseExpired, Expired: true,
		Tasks: leases[ended.Incarnation],
	})
	return true, err
}

// LoseOvertaken ends deliveries of a process that has ended, whose session another worker holds. Its other deliveries
// stay with it until their leases are over.
func (ws *Workers) LoseOvertaken(
	ctx context.Context, key engine.WorkerKey, incarnation, why string, refs ...store.TaskRef,
) error {
	leases, err := change.ProcessLeases(ctx, ws.store, key)
	if err != nil {
		return err
	}
	_, err = ws.lose(ctx, change.Loss{
		Worker: key, Incarnation: incarnation, Why: why, Tasks: leases[incarnation], Expired: true, Now: refs,
	})
	return err
}

// loseUnheard ends what a silent process held, but for activities whose own heartbeats came since then.
func (ws *Workers) loseUnheard(
	ctx context.Context, key engine.WorkerKey, incarnation string, refs []store.TaskRef, since history.Time,
) error {
	_, err := ws.lose(ctx, change.Loss{
		Worker: key, Incarnation: incarnation, Why: engine.ReasonOrphaned, Tasks: refs, UnlessHeard: since,
	})
	return err
}
