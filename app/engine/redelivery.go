package engine

import "github.com/sojourn-run/sojourn/shared/protocol"

// A response that delivers a task may be lost. The worker then polls again, perhaps at another app, which finds the
// lease and delivers the task again. Meanwhile the first app may notice that its response was lost and undo the
// delivery, assuming that no worker began the task. But the worker has begun it after the second response, and the task
// would run twice without a trace. Therefore each redelivery increments a counter, and an undo must state the count
// that it knows.

// Redeliver records a redelivery: the app sends a leased task to its owner again.
type Redeliver struct {
	Seq      int64 // command number of the activity; 0: the workflow task
	Number   int64 // number of the workflow task
	Delivery int64
}

// errRedelivered refuses to undo a delivery that was redelivered to its owner.
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
