package worker_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/link"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// executors waits until the worker's heartbeats tell of an executor of a session, or of none.
func executors(t *testing.T, a *apptest.App, worker, session string, wanted bool) {
	t.Helper()
	for until := time.Now().Add(ceiling); ; time.Sleep(20 * time.Millisecond) {
		v, err := a.Broker().Worker(t.Context(), "", worker)
		if err != nil {
			t.Fatal(err)
		}
		var m protocol.MachineInformation
		if len(v.Machine) > 0 {
			if err := json.Unmarshal(v.Machine, &m); err != nil {
				t.Fatal(err)
			}
		}
		if slices.ContainsFunc(m.Sandboxes, func(e protocol.SandboxInfo) bool { return e.SessionID == session }) == wanted {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("executors %+v of session %s, wanted %t", m.Sandboxes, session, wanted)
		}
	}
}

// What an operator closes ends at its worker too: the executor of the session goes, though it was not idle.
func TestACloseAtTheAppEndsTheExecutor(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
		o.WorkerID = "w"
		o.Registry.Workflow("holds", func(ctx workflow.Context) (int, error) {
			return workflow.Await[int](ctx, workflow.ExecuteActivity(workflow.InSession(ctx, "closes"), "pid"))
		})
	})
	result[int](t, run(t, a, "holds"))
	executors(t, a, "w", "closes", true)
	v, err := a.Broker().OperateSession(
		t.Context(), protocol.SessionOperation{SessionID: "closes", Verb: "close", Identity: "eve", Reason: "sold"},
	)
	if err != nil || v.Status != protocol.SessionClosed || !strings.Contains(v.EndedReason, "sold") {
		t.Fatalf("close: %+v, %v", v, err)
	}
	executors(t, a, "w", "closes", false)
}
