package sessiontest

import (
	"sync/atomic"
	"testing"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A workflow task is leased for 300 s. An app that hears nothing of the worker for 60 s gives the task to another.
func TestASilentWorkersWorkflowTaskMovesOn(t *testing.T) {
	// cutOff has a worker lose its way to the app in the middle of a workflow task, when another has joined.
	cutOff := func(h *house) (a *proc, run string) {
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
	bubble(t, "killed", func(h *house) {
		a, run := cutOff(h)
		a.kill()
		killed := h.at()
		h.equal("decided by", output[string](h, run), "B")
		h.between("B decided", h.at(), killed+40*sec, killed+70*sec)
	})
	bubble(t, "cut off", func(h *house) {
		a, run := cutOff(h)
		h.equal("decided by", output[string](h, run), "B")
		a.rejoin()
		h.wait(20 * sec)
		h.equal("decided by, after A's decision came late", output[string](h, run), "B")
	})
}
