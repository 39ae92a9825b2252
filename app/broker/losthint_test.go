package broker_test

import (
	"context"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An app may commit and die before it notifies the other apps. Callers that wait at another app for the result of an
// update, the end of a run, or its events still notice the commit.
func TestWaitersRecoverFromLostHints(t *testing.T) {
	inBubble(t, "two apps", func(o *harness) {
		a, _ := o.app("a", true)
		// this dispatcher receives no notification of commits
		brokenConn := dispatch.New(dispatch.Options{Log: apptest.Log(t)})
		b := broker.New(unavailableStore{o.store, o}, brokenConn, broker.Options{
			Release: "test", App: "b", Shared: true, Log: apptest.Log(t),
		})
		o.t.Cleanup(func() {
			b.Close()
			if err := brokenConn.Close(context.WithoutCancel(o.t.Context())); err != nil {
				o.t.Error(err)
			}
		})
		o.join(a, "w", "")
		a.parked("one")
		other := &app{b, b.View(), o.store, o.t}
		most := int64(60)
		in := set("one", "completed")
		in.WaitTimeout = &most
		updated := other.sent(in)
		task := a.poll("w", protocol.KindWorkflow, 1)
		if task == nil {
			o.t.Fatal("the update makes no task")
		}
		ended := make(chan protocol.RunView, 1)
		closed := make(chan bool, 1)
		at := protocol.Target{WorkflowID: "one"}
		go func() {
			v, err := other.Result(o.t.Context(), at, 5*time.Minute, false)
			if err != nil {
				o.t.Error(err)
			}
			ended <- v
		}()
		go func() {
			over, err := other.Follow(o.t.Context(), at, 0, view.Follower{
				Begin: func(protocol.RunView) error { return nil },
				Event: func(history.Event) error { return nil },
				Beat:  func() error { return nil },
				Every: time.Minute,
			})
			if err != nil {
				o.t.Error(err)
			}
			closed <- over
		}()
		time.Sleep(time.Second) // all three callers wait
		committed := o.at()
		if c := a.decide(task, answer(*task.Workflow.UpdateID, 7)); c.Err != nil {
			o.t.Fatal(c.Err)
		}
		if got := <-updated; got.UpdateStatus != "completed" || string(got.Result) != "7" || got.WaitTimedOut {
			o.t.Errorf("the update is %+v", got)
		}
		if took := o.at() - committed; took > 31*time.Second {
			o.t.Errorf("the answer of the update was found after %s", took)
		}
		committed = o.at()
		if c := a.decide(a.poll("w", protocol.KindWorkflow, 1), done()); c.Err != nil {
			o.t.Fatal(c.Err)
		}
		if got := <-ended; got.Status != "completed" {
			o.t.Errorf("the run ended as %s", got.Status)
		}
		if over := <-closed; !over {
			o.t.Error("the reader of its events was not notified of the end")
		}
		if took := o.at() - committed; took > 31*time.Second {
			o.t.Errorf("its end was found after %s", took)
		}
	})
}
