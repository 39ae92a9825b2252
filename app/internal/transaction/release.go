package transaction

import (
	"context"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A delivery whose worker process ended is a loss; see Lose. A delivery that was returned, or never arrived, is not a
// loss. The caller that ends the delivery supplies the reason, since the rows do not contain it.

// ReleaseInput is the input that ends one delivery of a task without an outcome, with the rows that it reads.
func ReleaseInput(ref store.TaskRef, why string, undone bool) (engine.Input, store.Keys) {
	if ref.Kind == protocol.KindWorkflow {
		return engine.ReleaseTask{
			Number: ref.Seq, Delivery: ref.Delivery, Why: why, Undone: undone, Redeliveries: ref.Redeliveries,
		}, workflowTaskKeys(ref)
	}
	return engine.ReleaseActivity{
		Seq: ref.Seq, Delivery: ref.Delivery, Why: why, Undone: undone, Redeliveries: ref.Redeliveries,
	}, activityKeys(ref)
}

func workflowTaskKeys(ref store.TaskRef) store.Keys { return store.Keys{Runs: []string{ref.Run}} }

func activityKeys(ref store.TaskRef) store.Keys {
	return store.Keys{Runs: []string{ref.Run}, Activities: []int64{ref.Seq}}
}

// RecordRedelivery records that the app delivers a leased task to its worker again, so that a concurrent check for
// undelivered tasks does not release the task. It fails if the delivery has ended.
func RecordRedelivery(ctx context.Context, s store.Store, ref store.TaskRef) error {
	in, needs := engine.Redeliver{Number: ref.Seq, Delivery: ref.Delivery}, workflowTaskKeys(ref)
	if ref.Kind != protocol.KindWorkflow {
		in, needs = engine.Redeliver{Seq: ref.Seq, Delivery: ref.Delivery}, activityKeys(ref)
	}
	_, err := s.Commit(ctx, UpdateRun("", ref.Run, needs, in))
	return err
}

// Release ends one delivery of a task without an outcome.
func Release(ctx context.Context, s store.Store, ref store.TaskRef, why string, undone bool) error {
	return ReleaseUnlessHeartbeat(ctx, s, ref, why, undone, history.Time{})
}

// ReleaseUnlessHeartbeat is like Release, but does not release an attempt whose code sent a heartbeat since the given
// time.
func ReleaseUnlessHeartbeat(
	ctx context.Context, s store.Store, ref store.TaskRef, why string, undone bool, since history.Time,
) error {
	in, needs := ReleaseInput(ref, why, undone)
	if a, ok := in.(engine.ReleaseActivity); ok {
		a.UnlessHeartbeat = since
		in = a
	}
	_, err := s.Commit(ctx, UpdateRun("", ref.Run, needs, in))
	return err
}

// ReturnUndelivered ends a delivery that did not reach its worker, and returns how many times in a row its task has
// been returned.
func ReturnUndelivered(ctx context.Context, s store.Store, ref store.TaskRef) (Outcome, error) {
	in, needs := ReleaseInput(ref, "undelivered", true)
	return Commit[Outcome](ctx, s, UpdateRun("", ref.Run, needs, in))
}

// ReleaseLeases returns the tasks leased to a worker for which of returns true. It returns the number of tasks, and of
// workflow tasks among them.
func ReleaseLeases(
	ctx context.Context, s store.Store, key engine.WorkerKey, why string, of func(store.TaskRef) bool,
) (all, flows int, err error) {
	var refs []store.TaskRef
	err = s.View(ctx, func(r store.Reader) error {
		refs, err = r.Owned(ctx, key, "")
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	for _, ref := range refs {
		if !of(ref) {
			continue
		}
		err := Release(ctx, s, ref, why, false)
		if protocol.ReasonOf(err) != "" { // another request has ended it
			continue
		}
		if err != nil {
			return all, flows, err
		}
		all++
		if ref.Kind == protocol.KindWorkflow {
			flows++
		}
	}
	return all, flows, nil
}
