package membership

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// The end of a process is noticed in four ways: another process registers under its ID, an operator removes it, its
// heartbeats stop, or one of its leases expires. The first of them judges all tasks of the process.

// endProcess ends the deliveries of a lost process, and returns their number.
func (ws *Workers) endProcess(ctx context.Context, l transaction.Loss) (transaction.LossResult, error) {
	l.Limit = ws.opt.MaxBlamed
	lost, err := transaction.EndLostDeliveries(ctx, ws.store, l)
	if lost != (transaction.LossResult{}) {
		if ws.opt.Lost != nil {
			ws.opt.Lost(lost)
		}
		ws.log.Warn().Str("worker_id", l.Worker.ID).Str("incarnation", l.Incarnation).Str("cause", l.Why).
			Int("tasks", lost.Ended).Int("suspects", lost.Suspects).Int("blamed", lost.Blamed).Int("cleared", lost.Cleared).
			Msg("worker process ended with tasks leased to it")
	}
	return lost, err
}

// endProcesses ends the deliveries of those processes of a worker that of selects. Deliveries that died rejects were
// leased after the end of the process; they never reached it and are only returned.
func (ws *Workers) endProcesses(
	ctx context.Context, key engine.WorkerKey, why string, died func(store.TaskRef) bool, of func(incarnation string) bool,
) (all, flows int, err error) {
	leases, err := transaction.ProcessLeases(ctx, ws.store, key)
	if err != nil {
		return 0, 0, err
	}
	for _, incarnation := range slices.Sorted(maps.Keys(leases)) {
		if !of(incarnation) {
			continue
		}
		l := transaction.Loss{Worker: key, Incarnation: incarnation, Why: why}
		for _, ref := range leases[incarnation] {
			if died(ref) {
				l.Tasks = append(l.Tasks, ref)
			}
		}
		lost, err := ws.endProcess(ctx, l)
		all, flows = all+lost.Ended, flows+lost.Flows
		if err != nil {
			return all, flows, err
		}
	}
	// Deliveries leased after the end of the process are no part of the loss.
	more, ofThem, err := transaction.ReleaseLeases(ctx, ws.store, key, why, func(ref store.TaskRef) bool {
		return of(ref.Incarnation) && !died(ref)
	})
	return all + more, flows + ofThem, err
}

// judgeEndedProcess ends the expired deliveries of a lost process if err is engine.ProcessEnded, and reports whether it
// is. Deliveries with unexpired leases stay leased.
func (ws *Workers) judgeEndedProcess(ctx context.Context, err error) (bool, error) {
	var ended *engine.ProcessEnded
	if !errors.As(err, &ended) {
		return false, nil
	}
	key := engine.WorkerKey{Namespace: ended.Namespace, ID: ended.Worker}
	leases, err := transaction.ProcessLeases(ctx, ws.store, key)
	if err != nil {
		return true, err
	}
	_, err = ws.endProcess(ctx, transaction.Loss{
		Worker: key, Incarnation: ended.Incarnation, Why: engine.LeaseExpired, Expired: true,
		Tasks: leases[ended.Incarnation],
	})
	return true, err
}

// EndOvertaken ends deliveries of a lost process whose session another worker holds. The other deliveries of the
// process end when their leases expire.
func (ws *Workers) EndOvertaken(
	ctx context.Context, key engine.WorkerKey, incarnation, why string, refs ...store.TaskRef,
) error {
	leases, err := transaction.ProcessLeases(ctx, ws.store, key)
	if err != nil {
		return err
	}
	_, err = ws.endProcess(ctx, transaction.Loss{
		Worker: key, Incarnation: incarnation, Why: why, Tasks: leases[incarnation], Expired: true, Now: refs,
	})
	return err
}

// endSilent ends the deliveries of a silent process, except for activities that sent a heartbeat since then.
func (ws *Workers) endSilent(
	ctx context.Context, key engine.WorkerKey, incarnation string, refs []store.TaskRef, since history.Time,
) error {
	_, err := ws.endProcess(ctx, transaction.Loss{
		Worker: key, Incarnation: incarnation, Why: engine.ReasonOrphaned, Tasks: refs, UnlessHeartbeat: since,
	})
	return err
}
