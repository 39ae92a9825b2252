package sessiontest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A loan ends with the last run of its workflow ID, whichever way the run closes, also if no activity used the member.
func TestALoanEndsWithTheLastRun(t *testing.T) {
	ends := map[string]func(h *harness, run string){
		"completes": func(h *harness, run string) { h.signal(run, "go", nil) },
		"is terminated": func(h *harness, run string) {
			if _, err := h.Terminate(h.t.Context(), protocol.EndRequest{
				Target: protocol.Target{RunID: run, WorkflowID: h.poolRun(run)},
			}); err != nil {
				h.t.Fatal(err)
			}
		},
	}
	for name, end := range ends {
		for _, uses := range []bool{false, true} {
			bubble(t, name, func(h *harness) {
				h.pool(sec, protocol.PoolRequest{Size: 1})
				h.flow("keep", func(ctx workflow.Context) (string, error) {
					s, err := workflow.Borrow(ctx, "p", workflow.BorrowOptions{})
					if err != nil {
						return "", err
					}
					if uses {
						if _, err := use(ctx, s, "use", 10); err != nil {
							return "", err
						}
					}
					return s.ID, workflow.Signal(ctx, "go").Receive(ctx, nil)
				})
				h.start("A")
				h.freeMembers(1)
				run := h.begin("keep")
				h.until("the loan", 10*ms, func() bool { return h.poolState().Lent == 1 })
				id := h.poolState().Members[0].SessionID
				h.wait(time.Minute)
				end(h, run)
				h.finish(run)
				h.wait(time.Minute)
				s, _ := h.row(id)
				h.equal("the member has ended", s.Terminal, true)
				h.freeMembers(1)
			})
		}
	}
}

// A pool that becomes smaller ends free members while others are lent. A deleted pool without members leaves no pool in
// the row of its queue.
func TestAPoolBecomesSmallerAndIsDeleted(t *testing.T) {
	bubble(t, "smaller", func(h *harness) {
		h.pool(sec, protocol.PoolRequest{Size: 3})
		h.flow("loan", loan)
		h.start("A")
		h.freeMembers(3)
		var runs []string
		for i := range 3 {
			runs = append(runs, h.begin("loan", fmt.Sprint("use ", i), workflow.BorrowOptions{}))
			h.begun(fmt.Sprint("use ", i))
		}
		h.signal(runs[0], "go", nil)
		output[string](h, runs[0])
		h.freeMembers(1)
		in := protocol.PoolRequest{Name: "p", Definition: "llama", Queue: "default", Size: 2}
		if _, err := h.SetPool(h.t.Context(), in); err != nil {
			h.t.Fatal(err)
		}
		h.wait(time.Minute)
		p := h.poolState()
		h.equal("lent", p.Lent, 2)
		h.equal("members", len(p.Members), 2)
		for _, run := range runs[1:] {
			h.signal(run, "go", nil)
			output[string](h, run)
		}
		h.freeMembers(2)
	})
	bubble(t, "deleted without members", func(h *harness) {
		h.pool(sec, protocol.PoolRequest{Size: 1, Warm: warmSize(0)})
		h.wait(10 * time.Second)
		h.equal("members", len(h.poolState().Members), 0)
		if _, err := h.DeletePool(h.t.Context(), protocol.PoolRequest{Name: "p"}); err != nil {
			h.t.Fatal(err)
		}
		h.wait(10 * time.Second)
		h.equal("pools", len(h.store.Pools()), 0)
	})
}

// A reset to a point before the loan ends the loan, since the new run borrows again.
func TestAResetEndsLaterLoans(t *testing.T) {
	bubble(t, "reset", func(h *harness) {
		h.pool(sec, protocol.PoolRequest{Size: 1})
		h.flow("late", func(ctx workflow.Context) (string, error) {
			if err := workflow.Sleep(ctx, time.Second); err != nil {
				return "", err
			}
			return loan(ctx, "use", workflow.BorrowOptions{})
		})
		h.start("A")
		h.freeMembers(1)
		run := h.begin("late")
		h.begun("use")
		h.wait(time.Second)
		id := h.poolState().Members[0].SessionID
		out, err := h.Reset(h.t.Context(), protocol.ResetRequest{
			Target: protocol.Target{RunID: run, WorkflowID: h.poolRun(run)}, To: protocol.ResetToFirstTask,
		})
		if err != nil {
			h.t.Fatal(err)
		}
		h.until("the second use", 100*ms, func() bool { return len(h.did("use")) == 2 })
		s, _ := h.row(id)
		h.equal("the first member has ended", s.Terminal, true)
		h.signal(out.RunID, "go", nil)
		h.equal("other member", output[string](h, out.RunID) != id, true)
		h.freeMembers(1)
	})
}
