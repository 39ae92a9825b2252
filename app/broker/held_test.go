package broker_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An app that dies between storing a lease and delivering its task leaves a lease that the worker does not know of.
// When the worker registers again, it lists its tasks, and the app releases its other tasks without waiting for their
// leases.
func TestReconnectingWorkerReturnsTasksThatItDoesNotHold(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		register := func(held *[]string) protocol.RegisterResponse {
			t.Helper()
			return must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
				WorkerID: "w", Incarnation: "one", TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true,
				Capabilities: []string{broker.CapSessions}, Held: held,
			}))
		}
		poll := func(kind protocol.TaskKind) *protocol.Task {
			t.Helper()
			now := int64(0)
			p := must[protocol.PollResponse](t)(a.Poll(t.Context(), protocol.PollRequest{
				WorkerID: "w", Incarnation: "one", Kinds: []protocol.TaskKind{kind}, Timeout: &now,
			}))
			if len(p.Tasks) == 0 {
				return nil
			}
			return &p.Tasks[0]
		}
		key := func(task *protocol.Task) string {
			if task.Activity != nil {
				return protocol.TaskKey(protocol.KindActivity, task.Activity.TaskID, task.Activity.AttemptID, 0)
			}
			return protocol.TaskKey(protocol.KindWorkflow, task.Workflow.TaskID, "", task.Workflow.Attempt)
		}
		// comesBack polls for a task and registers again several times, with the task in its list or without a list,
		// and finally with a list that omits the task.
		comesBack := func(kind protocol.TaskKind) *protocol.Task {
			t.Helper()
			first := poll(kind)
			if first == nil {
				t.Fatalf("no %s task", kind)
			}
			for what, held := range map[string]*[]string{"says nothing": nil, "has it": {key(first)}} {
				if n := register(held).Redelivered; n != 0 || poll(kind) != nil {
					t.Errorf("%s: a worker that %s lost the task (%d released)", kind, what, n)
				}
			}
			if n := register(&[]string{"another"}).Redelivered; n != 1 {
				t.Errorf("%s: %d tasks set free, want 1", kind, n)
			}
			redelivered := poll(kind)
			if redelivered == nil || key(redelivered) == key(first) {
				t.Fatalf("%s: after registering without the task: %+v", kind, redelivered)
			}
			return redelivered
		}
		register(&[]string{})
		a.start("lost")
		if c := a.decide(comesBack(protocol.KindWorkflow), greet()); c.Err != nil {
			t.Fatal(c.Err)
		}
		task := comesBack(protocol.KindActivity)
		if task.Activity.Attempt != 1 {
			t.Errorf("a delivery that never reached the worker counts as attempt: %d", task.Activity.Attempt)
		}
	})
}
