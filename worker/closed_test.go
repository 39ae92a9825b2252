package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// goneAtOnce waits for the end of a process. The process must end before a heartbeat or the expiry of a lease could end
// it.
func goneAtOnce(t *testing.T, pid int, since time.Time) {
	t.Helper()
	eventually(t, "the executor ends", func() bool { return sandboxtest.Gone(pid) })
	if took := time.Since(since); took > 5*time.Second {
		t.Errorf("the executor ended after %v", took)
	}
}

// If an operator closes a session, the worker ends the session's executor, although the executor was not idle.
func TestACloseAtTheAppEndsTheExecutor(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
		o.WorkerID = "w"
		o.Registry.Workflow("holds", func(ctx workflow.Context) (int, error) {
			return workflow.Await[int](ctx, workflow.ExecuteActivity(workflow.InSession(ctx, "closes"), "pid"))
		})
	})
	pid := result[int](t, run(t, a, "holds"))
	began := time.Now()
	v, err := a.Broker().OperateSession(
		t.Context(), protocol.SessionOperation{SessionID: "closes", Verb: "close", Identity: "eve", Reason: "sold"},
	)
	if err != nil || v.Status != protocol.SessionClosed || !strings.Contains(v.EndedReason, "sold") {
		t.Fatalf("close: %+v, %v", v, err)
	}
	goneAtOnce(t, pid, began)
}

// A forced move by an operator ends the executor at the old worker, and the run continues on another worker.
func TestAForcedMoveAtTheAppEndsTheExecutor(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	for _, id := range []string{"w1", "w2"} {
		start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
			o.WorkerID = id
			o.Registry.Workflow("holds", func(ctx workflow.Context) (int, error) {
				return workflow.Await[int](ctx, workflow.ExecuteActivity(workflow.InSession(ctx, "moves"), "pid"))
			})
		})
	}
	pid := result[int](t, run(t, a, "holds"))
	v, err := a.View().Session(t.Context(), "", "moves")
	if err != nil || v.LeaseOwner == nil {
		t.Fatalf("the session: %+v, %v", v, err)
	}
	from, to := *v.LeaseOwner, "w1"
	if from == to {
		to = "w2"
	}
	began := time.Now()
	if _, err := a.Broker().OperateSession(t.Context(), protocol.SessionOperation{
		SessionID: "moves", Verb: "migrate", Force: true, To: to, Identity: "eve", Reason: "new disk",
	}); err != nil {
		t.Fatal(err)
	}
	goneAtOnce(t, pid, began)
	if second := result[int](t, run(t, a, "holds")); second == pid {
		t.Errorf("the session still runs in executor %d", pid)
	}
	if v, err = a.View().Session(t.Context(), "", "moves"); err != nil || v.LeaseOwner == nil || *v.LeaseOwner != to {
		t.Errorf("the session must move to %s: %+v, %v", to, v, err)
	}
}
