package sessiontest

import (
	"sync/atomic"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// The lease of a workflow task is 300 s for a client of the HTTP contract. A worker that renews its leases gets the
// lease of an attempt.
func TestASilentWorkersWorkflowTaskMovesOn(t *testing.T) {
	// cutOff disconnects a worker from the app during a workflow task, after another worker has connected.
	cutOff := func(h *harness) (a *proc, run string) {
		var took atomic.Bool
		h.uses(func(r *worker.Registry, p *proc) {
			r.Workflow("who", func(workflow.Context) (string, error) {
				if p.name == "A" {
					p.sever()
					took.Store(true)
				}
				return p.name, nil
			})
		})
		a = h.start("A")
		run = h.begin("who")
		h.until("A takes it", ms, took.Load)
		h.start("B")
		return a, run
	}
	bubble(t, "killed", func(h *harness) {
		a, run := cutOff(h)
		a.kill()
		killed := h.at()
		h.equal("decided by", output[string](h, run), "B")
		h.between("B decided", h.at(), killed+4*sec, killed+6*sec)
	})
	bubble(t, "cut off", func(h *harness) {
		a, run := cutOff(h)
		h.equal("decided by", output[string](h, run), "B")
		a.rejoin()
		h.wait(20 * sec)
		h.equal("decided by, after A's decision came late", output[string](h, run), "B")
	})
	bubble(t, "one that names no process keeps its lease", func(h *harness) {
		_, err := h.Register(
			h.t.Context(), protocol.RegisterRequest{WorkerID: "A", TaskQueue: "default", WorkflowTypes: []string{"who"}},
		)
		if err != nil {
			h.t.Fatal(err)
		}
		run := h.begin("who")
		p, err := h.Poll(
			h.t.Context(), protocol.PollRequest{WorkerID: "A", Kinds: []protocol.TaskKind{protocol.KindWorkflow}},
		)
		if err != nil || len(p.Tasks) != 1 {
			h.t.Fatalf("polled %+v, %v", p, err)
		}
		taken := h.at()
		h.flow("who", func(workflow.Context) (string, error) { return "B", nil })
		h.start("B")
		h.equal("decided by", output[string](h, run), "B")
		h.between("B decided", h.at(), taken+engine.WorkflowLease, taken+engine.WorkflowLease+10*sec)
	})
}
