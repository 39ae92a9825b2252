package engine

import "github.com/sojourn-run/sojourn/shared/protocol"

// A response that delivers a task may be lost. The worker then polls again, perhaps at another app, which finds the
// lease and delivers the task again. The first app meanwhile learns that its response was lost and undoes the delivery,
// as one that no worker began. If the lease were unchanged, this would revoke a task that the worker has already begun,
// and the step would run twice without a trace. Each redelivery is therefore a change that increments a counter, and an
// undo must name the count it knows.

// Redeliver records a redelivery: the app sends the leased task to its holder once more.
type Redeliver struct {
	Seq      int64 // of the activity; 0: it is the workflow task
	Number   int64 // of the workflow task
	Delivery int64
}

// errRedelivered refuses to undo a delivery that its holder received in a redelivery.
var errRedelivered = protocol.Refuse(protocol.ReasonStaleAttempt, "its owner received the task again meanwhile")

func (in Redeliver) decide(st *step) error {
	if in.Seq == 0 {
		t := st.Task
		if t == nil || t.Number != in.Number || t.State != LeasedState || t.Delivery != in.Delivery {
			return protocol.Refuse(
				protocol.ReasonTaskNotLeased, "delivery %d of task %s has ended", in.Delivery, TaskID(st.ID, in.Number),
			)
		}
		t.Redeliveries++
		return nil
	}
	a, ok := st.Activities.Get(in.Seq)
	if !ok || a.State != LeasedState || a.Delivery != in.Delivery {
		return protocol.Refuse(protocol.ReasonStaleAttempt, "attempt %s has ended", AttemptID(st.ID, in.Seq, in.Delivery))
	}
	a.Redeliveries++
	st.Activities.Put(a.Seq, a)
	return nil
}
