package sessiontest

import (
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A chain of runs keeps its session, with its owner and epoch, and its open children, however many runs continue as
// new. The release policy and the parent-close policy apply when the last run ends.
func TestASessionAndChildrenOfAChainGoWithItsLastRun(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.flow("sleeper", func(ctx workflow.Context) error { return workflow.Signal(ctx, "never").Receive(ctx, nil) })
		h.flow("chain", func(ctx workflow.Context, s *workflow.Session, n int) (*workflow.Session, error) {
			if n == 0 {
				var err error
				if s, err = workflow.StartSession(ctx, workflow.SessionOptions{}); err != nil {
					return nil, err
				}
			}
			for _, policy := range []workflow.ParentClosePolicy{workflow.TerminateHard, workflow.Abandon} {
				id := fmt.Sprintf("%s-%d", policy, n)
				workflow.StartChild(workflow.WithChild(ctx, workflow.ChildOptions{WorkflowID: id, ParentClose: policy}), "sleeper")
			}
			item := string(rune('a' + n))
			if err := s.Execute(ctx, "work", item, 1000).Get(ctx, nil); err != nil {
				return nil, err
			}
			if n < 2 {
				return nil, workflow.ContinueAsNew(ctx, s, n+1)
			}
			return s, workflow.Signal(ctx, "go").Receive(ctx, nil)
		})
		h.start("A")
		h.start("B")
		run := h.begin("chain", nil, 0)
		h.running("c")
		h.wait(60 * sec) // longer than any lease
		first, last := h.once("a"), h.once("c")
		if last.worker != first.worker || last.session.Epoch != first.session.Epoch || last.session.ID != first.session.ID {
			t.Errorf("the session moved: %+v after %+v", last, first)
		}
		children := func(policy workflow.ParentClosePolicy) (all []string) {
			for n := range 3 {
				v, err := h.Describe(h.t.Context(), protocol.Target{WorkflowID: fmt.Sprintf("%s-%d", policy, n)})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, v.Status)
			}
			return all
		}
		waiting := []string{"waiting", "waiting", "waiting"}
		h.equal("children of a chain that goes on", children(workflow.TerminateHard), waiting)
		h.signal(run, "go")
		h.wait(10 * sec)
		h.equal("children at its end", children(workflow.TerminateHard), []string{"terminated", "terminated", "terminated"})
		h.equal("those that go on", children(workflow.Abandon), waiting)
		h.equal("timeline", h.timeline(first.session.ID), []string{"started", "claimed", "closed"})
	})
}
