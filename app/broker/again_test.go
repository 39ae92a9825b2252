package broker_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// leasedNow returns the current lease of an activity, as a dispatcher has it whose response was lost.
func (o *harness) leasedNow(run string, seq int64) (l store.Leased) {
	o.t.Helper()
	err := o.store.View(o.t.Context(), func(r store.Reader) error {
		got, err := r.Step(o.t.Context(), run, seq)
		if err != nil {
			return err
		}
		a, ok := got.Activities.Get(seq)
		if !ok || a.State != engine.LeasedState {
			o.t.Fatalf("activity %d is not leased", seq)
		}
		l = store.Leased{Kind: protocol.KindActivity, Head: got.Head, Activity: &a}
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return l
}

// An app whose response did not reach the worker releases the leased tasks, however late. It must not do so if the
// worker repeated the request at another app and received the tasks there, since the worker may have started them.
func TestRedeliveredTaskIsNotReturned(t *testing.T) {
	inBubble(t, "a turn whose answer is lost", func(o *harness) {
		a, _ := o.app("a", true)
		b, _ := o.app("b", true)
		a.fuses("w1")
		act, at := a.first("one", "w1")
		item := withEagerTask(
			act, "w1", protocol.EagerTask{SeenThrough: 2, At: at, Commands: []protocol.Command{greet()}, Slot: true},
		)
		first := a.send(along("w1"), item)
		if first.Eager == nil || first.Eager.Next == nil {
			o.t.Fatalf("the turn: %+v", first)
		}
		lost := o.leasedNow(act.RunID, 2)
		twice := b.send(along("w1"), item)
		if twice.Eager == nil || twice.Eager.Next == nil || twice.Eager.Next.AttemptID != first.Eager.Next.AttemptID {
			o.t.Fatalf("the repeated request at the other app: %+v", twice.Eager)
		}
		a.Return(lost)
		time.Sleep(time.Second)
		if l := o.leasedNow(act.RunID, 2); l.Activity.Owner != "w" || l.Activity.Delivery != lost.Activity.Delivery {
			o.t.Errorf("the task that the worker has begun is %+v", l.Activity.Lease)
		}
		if out := b.send(nil, withEagerTask(twice.Eager.Next, "w1", protocol.EagerTask{})); out.Err != nil || !out.Recorded {
			o.t.Errorf("its result: %+v", out)
		}
	})
	for _, kind := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
		inBubble(t, "a poll whose answer is lost, "+string(kind), func(o *harness) {
			a, _ := o.app("a", true)
			b, _ := o.app("b", true)
			o.hired(a, "w", func(in *protocol.RegisterRequest) { in.AttemptLease = 100 })
			o.hired(a, "spare", nil)
			a.start("one")
			if kind == protocol.KindActivity {
				a.taken(a.decide(
					a.poll("w", protocol.KindWorkflow, 0), protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "turn"},
				))
			}
			none := int64(0)
			ask := protocol.PollRequest{
				WorkerID: "w", PollID: "p", Kinds: []protocol.TaskKind{kind}, Timeout: &none,
			}
			first := must[protocol.PollResponse](o.t)(a.Poll(o.t.Context(), ask))
			second := must[protocol.PollResponse](o.t)(b.Poll(o.t.Context(), ask))
			if len(first.Tasks) != 1 || len(second.Tasks) != 1 {
				o.t.Fatalf("first %d, at the other app %d tasks", len(first.Tasks), len(second.Tasks))
			}
			first.Undo()
			time.Sleep(time.Second)
			a.waits("spare")
			second.Undo() // that response is lost, too: now no worker has the task
			time.Sleep(time.Second)
			if a.poll("spare", kind, 0) == nil {
				o.t.Error("a task that no response delivered was not released")
			}
		})
	}
}
