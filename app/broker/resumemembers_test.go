package broker_test

import (
	"errors"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A task names the signal wait that timed out, and the client's command that woke the run.
func TestATaskNamesTheWaitAndTheCommandThatWokeTheRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		wait := protocol.Command{Type: protocol.OpenSignalWait, SignalName: "go", Timeout: new(int64(1))}
		a.start("one")
		a.decide(a.poll("w", protocol.KindWorkflow, 30), wait)
		task := a.poll("w", protocol.KindWorkflow, 30).Workflow
		text := func(member *string) string {
			if member == nil {
				return ""
			}
			return *member
		}
		if task.SignalWaitID == nil || text(task.WaitKind) != "signal" || text(task.SignalName) != "go" ||
			text(task.OpenWaitID) != "signal:"+*task.SignalWaitID || text(task.SourceKind) != "timer" || task.CommandID != nil {
			t.Errorf("after the time-out: %+v", task.Resume)
		}

		wait.Timeout = nil
		a.start("two")
		a.decide(a.poll("w", protocol.KindWorkflow, 30), wait)
		sent := must[protocol.CommandReceipt](t)(a.Signal(t.Context(), protocol.SignalRequest{
			Target: protocol.Target{WorkflowID: "two"}, SignalName: "go",
		}))
		if task := a.poll("w", protocol.KindWorkflow, 30).Workflow; sent.CommandID == "" ||
			text(task.CommandID) != sent.CommandID || text(task.WaitKind) != "signal" {
			t.Errorf("after the signal with command %s: %+v", sent.CommandID, task.Resume)
		}
	})
}

func TestAnUnknownCommandAnswersThatTheTaskIsQuarantined(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		a.start("one")
		got := a.decide(a.poll("w", protocol.KindWorkflow, 30), protocol.Command{Type: "nonsense"})
		refusal, ok := errors.AsType[*protocol.Error](got.Err)
		if !ok || refusal.Reason != protocol.ReasonValidation || refusal.Details["task_status"] != "quarantined" {
			t.Errorf("got %+v", got.Err)
		}
	})
}

func TestAWorkerOfADrainedBuildRegistersAsDraining(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		register := func(queues ...string) string {
			return must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
				WorkerID: "w", TaskQueues: queues, BuildID: "v1", WorkflowTypes: []string{"wf"},
			})).Status
		}
		must[protocol.BuildState](t)(a.DecideBuild(t.Context(), protocol.BuildRequest{
			Queue: "default", Verb: protocol.BuildDrain, BuildID: new("v1"),
		}))
		if got := register("default"); got != "draining" {
			t.Errorf("in a queue for which its build is drained: %s", got)
		}
		if got := register("default", "other"); got != "active" {
			t.Errorf("with another queue: %s", got)
		}
	})
}
