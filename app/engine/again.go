package engine

import "github.com/sojourn-run/sojourn/shared/protocol"

// An answer that gave a task may be lost, and its worker asks again, perhaps at another app: that one finds the lease
// and tells of it again. The app of the first answer learns meanwhile that this went nowhere, and undoes the delivery,
// as one that nobody began. Were it to find the lease as it made it, a step would be taken from the worker that has
// begun it, and run twice without a trace. So telling again is its own change, and what is undone is what was told so
// often.

// TellAgain notes that the holder of a delivery is told of it again.
type TellAgain struct {
	Seq      int64 // of the activity; 0: it is the workflow task
	Number   int64 // of the workflow task
	Delivery int64
}

// errToldAgain refuses to undo a delivery whose holder has heard of it after all.
var errToldAgain = protocol.Refuse(protocol.ReasonStaleAttempt, "its owner received the task again meanwhile")

func (in TellAgain) decide(st *step) error {
	if in.Seq == 0 {
		t := st.Task
		if t == nil || t.Number != in.Number || t.State != LeasedState || t.Delivery != in.Delivery {
			return protocol.Refuse(
				protocol.ReasonTaskNotLeased, "delivery %d of task %s has ended", in.Delivery, TaskID(st.ID, in.Number),
			)
		}
		t.Again++
		return nil
	}
	a, ok := st.Activities.Get(in.Seq)
	if !ok || a.State != LeasedState || a.Delivery != in.Delivery {
		return protocol.Refuse(protocol.ReasonStaleAttempt, "attempt %s has ended", AttemptID(st.ID, in.Seq, in.Delivery))
	}
	a.Again++
	st.Activities.Put(a.Seq, a)
	return nil
}
