package broker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A cancellation request counts as seen while a live worker has the run's task, and stays seen while the code cleans
// up.
func TestARequestToCancelThatNoLiveWorkerHasSeenForAMinuteNeedsAttention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := apptest.OpenServer(t, "", server.Options{})
		a := &app{p.Broker(), p.View(), p.Store(), t}
		at := protocol.Target{WorkflowID: "one"}
		shown := func(what string, seen, attention bool) {
			t.Helper()
			c := must[protocol.RunView](t)(a.Describe(t.Context(), at)).Pending.Cancellation
			if c == nil || c.Seen != seen || c.Attention != attention || c.RequestedAt.IsZero() {
				t.Errorf("%s: got %+v, want seen %v, needs attention %v", what, c, seen, attention)
			}
		}
		a.register("w", broker.CapCancellation)
		a.start("one")
		a.start("bystander")
		a.decide(a.poll("w", protocol.KindWorkflow, 5), protocol.Command{Type: protocol.OpenSignalWait, SignalName: "go"})
		a.decide(a.poll("w", protocol.KindWorkflow, 5), protocol.Command{Type: protocol.OpenSignalWait, SignalName: "go"})
		must[protocol.CommandReceipt](t)(a.RequestCancellation(t.Context(), protocol.EndRequest{Target: at}))
		shown("at once", false, false)
		time.Sleep(59 * time.Second)
		shown("after 59 s", false, false)
		time.Sleep(2 * time.Second)
		shown("after 61 s", false, true)
		c := must[protocol.RunView](t)(a.Describe(t.Context(), at)).Pending.Cancellation
		if !strings.Contains(c.Message, "no live worker has seen the request to cancel for 1m1s") {
			t.Errorf("got %q", c.Message)
		}
		other := must[protocol.RunView](t)(a.Describe(t.Context(), protocol.Target{WorkflowID: "bystander"}))
		if other.Pending.Cancellation != nil {
			t.Errorf("another run: %+v", other.Pending.Cancellation)
		}
		a.poll("w", protocol.KindWorkflow, 5)
		shown("while a worker has it", true, false)
		must[protocol.DeregisterResponse](t)(a.Deregister(t.Context(), protocol.DeregisterRequest{WorkerID: "w"}))
		shown("after that worker has left", false, true)
		a.register("w", broker.CapCancellation)
		task := a.poll("w", protocol.KindWorkflow, 5)
		shown("while it has it again", true, false)
		a.decide(task, greet())
		a.result(a.poll("w", protocol.KindActivity, 5), "cleaned")
		time.Sleep(2 * time.Minute)
		shown("while the code cleans up", true, false)
		a.decide(a.poll("w", protocol.KindWorkflow, 5), done())
		if v := must[protocol.RunView](t)(a.Describe(t.Context(), at)); v.Status != "completed" || v.Pending != nil {
			t.Errorf("got %s, %+v", v.Status, v.Pending)
		}
	})
}
