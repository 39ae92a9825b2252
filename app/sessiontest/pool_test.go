package sessiontest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// pool registers the definition "llama", whose set-up takes some time, and creates the pool "p" of it.
func (h *harness) pool(takes time.Duration, in protocol.PoolRequest) {
	h.t.Helper()
	h.uses(func(r *worker.Registry, p *proc) {
		r.Session("llama", activity.SessionDefinition{
			HandOver: activity.HandOverPrepare,
			SetUp: func(ctx context.Context) (*model, error) {
				return &model{worker: p.name}, h.work(ctx, p, "set up", takes)
			},
			TearDown: func(ctx context.Context, m *model) { _ = h.work(ctx, p, "tear down", 0) },
		})
		r.Activity("use", func(ctx context.Context, item string, millis int) (string, error) {
			m, err := activity.State[*model](ctx)
			if err != nil {
				return "", err
			}
			return m.worker, h.work(ctx, p, item, time.Duration(millis)*ms)
		})
	})
	in.Name, in.Definition, in.Queue = "p", "llama", "default"
	if _, err := h.SetPool(h.t.Context(), in); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) poolState() protocol.PoolView {
	h.t.Helper()
	p, err := h.Pool(h.t.Context(), "default", "p")
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// freeMembers waits until a number of members is free.
func (h *harness) freeMembers(n int) {
	h.t.Helper()
	h.until(fmt.Sprint(n, " free members"), 100*ms, func() bool { return h.poolState().Free == n })
}

// poolRun returns the workflow ID of a run.
func (h *harness) poolRun(run string) string {
	h.t.Helper()
	v, err := h.Describe(h.t.Context(), protocol.Target{RunID: run})
	if err != nil {
		h.t.Fatal(err)
	}
	return v.WorkflowID
}

func use(ctx workflow.Context, s *workflow.Session, item string, millis int) (string, error) {
	return workflow.ExecuteIn[string](ctx, s, "use", item, millis)
}

// loan borrows a member, uses it, waits for the signal "go" and returns it. It returns the session's ID.
func loan(ctx workflow.Context, item string, o workflow.BorrowOptions) (string, error) {
	s, err := workflow.Borrow(ctx, "p", o)
	if err != nil {
		return "", err
	}
	if _, err := use(ctx, s, item, 10); err != nil {
		return "", err
	}
	if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
		return "", err
	}
	return s.ID, s.Return(ctx)
}

func warmSize(n int) *int { return &n }

func TestPools(t *testing.T) {
	// Members are set up before a workflow asks. A returned member is lent again with its state, and replaced after the
	// maximum of loans.
	bubble(t, "members are warm, reused and replaced after max_uses", func(h *harness) {
		h.pool(20*sec, protocol.PoolRequest{Size: 1, MaxUses: 2})
		h.flow("loan", loan)
		h.start("A")
		h.freeMembers(1)
		h.equal("set-ups", len(h.did("set up")), 1)
		var ids []string
		for i := range 3 {
			began := h.at()
			run := h.begin("loan", fmt.Sprint("use ", i), workflow.BorrowOptions{})
			h.begun(fmt.Sprint("use ", i))
			if i < 2 {
				h.near("the loan", h.at(), began, sec/2)
			}
			if s := h.poolState(); s.Lent != 1 || s.Members[0].WorkflowID == "" {
				h.t.Errorf("pool: %+v", s)
			}
			h.signal(run, "go", nil)
			ids = append(ids, output[string](h, run))
		}
		h.equal("same member", ids[0] == ids[1], true)
		h.equal("other member", ids[1] != ids[2], true)
		h.equal("set-ups", len(h.did("set up")), 2)
		h.equal("tear-downs", len(h.did("tear down")), 1)
		h.equal("timeline", h.timeline(ids[0]), []string{
			"started", "preparing", "prepared", "claimed", "borrowed", "returned", "borrowed", "closed",
		})
	})

	// The loan belongs to the workflow ID: it survives continue-as-new and ends with the last run. A member whose
	// borrower ended is not used again.
	bubble(t, "a loan survives continue-as-new and ends with the last run", func(h *harness) {
		h.pool(sec, protocol.PoolRequest{Size: 1})
		h.flow("chain", func(ctx workflow.Context, s *workflow.Session, n int) (string, error) {
			if s == nil {
				var err error
				if s, err = workflow.Borrow(ctx, "p", workflow.BorrowOptions{}); err != nil {
					return "", err
				}
			}
			if _, err := use(ctx, s, fmt.Sprint("use ", n), 10); err != nil {
				return "", err
			}
			if n < 2 {
				return "", workflow.ContinueAsNew(ctx, s, n+1)
			}
			return s.ID, nil
		})
		h.flow("thief", func(ctx workflow.Context, id string) (string, error) {
			return use(ctx, &workflow.Session{ID: id}, "stolen", 10)
		})
		h.start("A")
		h.freeMembers(1)
		free := h.poolState().Members[0].SessionID
		failed, ok := h.finish(h.begin("thief", free)).Data.(*history.WorkflowFailed)
		if !ok || !strings.Contains(failed.Message, "belongs to another workflow") {
			h.t.Errorf("use of a free member: %+v", failed)
		}
		id := output[string](h, h.begin("chain", nil, 0))
		h.equal("set-ups before the end", len(h.did("set up")), 1)
		h.freeMembers(1)
		h.equal("member is replaced", h.poolState().Members[0].SessionID != id, true)
		h.equal("tear-downs", len(h.did("tear down")), 1)
		h.equal("stolen", len(h.did("stolen")), 0)
	})

	// Waiting workflows are served by priority, then by fairness key in turn, and see their position.
	bubble(t, "waiters are served by priority and fairness", func(h *harness) {
		h.pool(sec, protocol.PoolRequest{Size: 1})
		h.flow("loan", loan)
		h.start("A")
		h.freeMembers(1)
		holder := h.begin("loan", "holder", workflow.BorrowOptions{})
		h.begun("holder")
		runs, waiting := map[string]string{}, 0
		for _, w := range []struct {
			item string
			o    workflow.BorrowOptions
		}{
			{"a1", workflow.BorrowOptions{Priority: 5, FairnessKey: "a"}},
			{"a2", workflow.BorrowOptions{Priority: 5, FairnessKey: "a"}},
			{"a3", workflow.BorrowOptions{Priority: 5, FairnessKey: "a"}},
			{"b1", workflow.BorrowOptions{Priority: 5, FairnessKey: "b"}},
			{"urgent", workflow.BorrowOptions{Priority: 1}},
		} {
			runs[w.item] = h.begin("loan", w.item, w.o)
			waiting++
			h.until("waits", 10*ms, func() bool { return h.poolState().Waiting == waiting })
		}
		last := h.waitOf(runs["a3"])
		h.equal("reason", last.Reason, protocol.WaitPool)
		h.equal("position", last.Position, 5)
		h.equal("position of the urgent one", h.waitOf(runs["urgent"]).Position, 1)
		h.equal("text", strings.Contains(last.Message, "waiting for a session of pool p, position 5"), true)
		h.signal(holder, "go", nil)
		var order []string
		for range 5 {
			var now string
			h.until("the next loan", 10*ms, func() bool {
				for item := range runs {
					if len(h.did(item)) > 0 && !slices.Contains(order, item) {
						now = item
					}
				}
				return now != ""
			})
			order = append(order, now)
			h.signal(runs[now], "go", nil)
			output[string](h, runs[now])
		}
		h.equal("order", order, []string{"urgent", "a1", "b1", "a2", "a3"})
		h.equal("set-ups", len(h.did("set up")), 1)
	})

	// A loan that exceeds its timeout ends although its borrower waits; the next workflow gets another member.
	bubble(t, "a loan ends at its timeout", func(h *harness) {
		h.pool(sec, protocol.PoolRequest{Size: 1})
		h.flow("loan", loan)
		h.flow("late", func(ctx workflow.Context) (string, error) {
			s, err := workflow.Borrow(ctx, "p", workflow.BorrowOptions{WaitTimeout: time.Second})
			if err == nil {
				err = s.Return(ctx)
			}
			return "", err
		})
		h.start("A")
		h.freeMembers(1)
		first := h.begin("loan", "first", workflow.BorrowOptions{Timeout: time.Minute})
		h.begun("first")
		began := h.at()
		if f, ok := h.finish(h.begin("late")).Data.(*history.WorkflowFailed); !ok {
			h.t.Errorf("no failure after the timeout of the wait: %+v", f)
		}
		second := h.begin("loan", "second", workflow.BorrowOptions{})
		h.begun("second")
		h.between("the second loan", h.at()-began, 55*sec, 65*sec)
		h.signal(first, "go", nil)
		closed := output[string](h, first)
		s, _ := h.row(closed)
		h.equal("reason", s.Reason, "loan_expired")
		h.signal(second, "go", nil)
		h.equal("other member", output[string](h, second) != closed, true)
		h.equal("tear-downs", len(h.did("tear down")), 1)
	})

	// A killed worker loses its members: free ones are replaced, and a lent one stays with its borrower.
	bubble(t, "the worker of a member is killed", func(h *harness) {
		h.pool(sec, protocol.PoolRequest{Size: 2})
		h.flow("twice", func(ctx workflow.Context) (string, error) {
			s, err := workflow.Borrow(ctx, "p", workflow.BorrowOptions{})
			if err != nil {
				return "", err
			}
			if _, err := use(ctx, s, "before", 10); err != nil {
				return "", err
			}
			if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
				return "", err
			}
			where, err := use(ctx, s, "after", 10)
			if err != nil {
				return "", err
			}
			return where, s.Return(ctx)
		})
		a := h.start("A")
		h.freeMembers(2)
		run := h.begin("twice")
		h.begun("before")
		h.start("B")
		a.kill()
		h.signal(run, "go", nil)
		h.equal("second use", output[string](h, run), "B")
		h.freeMembers(2)
		for _, m := range h.poolState().Members {
			h.equal("owner", m.WorkerID, "B")
		}
	})

	// An activity runs while its workflow returns the member: the code may continue, so the member is replaced.
	bubble(t, "a member that is in use is not lent again", func(h *harness) {
		h.pool(sec, protocol.PoolRequest{Size: 1})
		h.flow("hasty", func(ctx workflow.Context) (string, error) {
			s, err := workflow.Borrow(ctx, "p", workflow.BorrowOptions{})
			if err != nil {
				return "", err
			}
			s.Execute(ctx, "use", "long", 60_000)
			if err := workflow.Sleep(ctx, time.Second); err != nil {
				return "", err
			}
			return s.ID, s.Return(ctx)
		})
		h.start("A")
		h.freeMembers(1)
		id := output[string](h, h.begin("hasty"))
		s, _ := h.row(id)
		h.equal("reason", s.Reason, "in_use")
		h.freeMembers(1)
		h.equal("member is replaced", h.poolState().Members[0].SessionID != id, true)
	})

	// Members count in the worker's maximum of sessions, and warm is the number of free ones.
	bubble(t, "size, warm and the worker's maximum", func(h *harness) {
		h.pool(sec, protocol.PoolRequest{Size: 4, Warm: warmSize(1)})
		h.flow("loan", loan)
		h.start("A", most(3))
		h.freeMembers(1)
		var runs []string
		for i := range 4 {
			runs = append(runs, h.begin("loan", fmt.Sprint("use ", i), workflow.BorrowOptions{}))
		}
		h.until("three loans", 100*ms, func() bool { return h.poolState().Lent == 3 })
		h.wait(time.Minute)
		if p := h.poolState(); p.Lent != 3 || p.Waiting != 1 || p.Unowned != 1 {
			h.t.Errorf("pool: %+v", p)
		}
		h.start("B")
		h.until("four loans", 100*ms, func() bool { return h.poolState().Lent == 4 })
		for _, run := range runs {
			h.signal(run, "go", nil)
			output[string](h, run)
		}
		if _, err := h.DeletePool(h.t.Context(), protocol.PoolRequest{Name: "p"}); err != nil {
			h.t.Fatal(err)
		}
		h.until("the members end", 100*ms, func() bool { return len(h.held()) == 0 })
		if _, err := h.Pool(h.t.Context(), "default", "p"); protocol.ReasonOf(err) != protocol.ReasonPoolNotFound {
			h.t.Error(err)
		}
	})

	// A set-up that fails is tried at another worker, and later by a new member.
	bubble(t, "a failing set-up", func(h *harness) {
		var works atomic.Bool
		h.uses(func(r *worker.Registry, p *proc) {
			r.Session("llama", activity.SessionDefinition{
				HandOver: activity.HandOverPrepare,
				SetUp: func(ctx context.Context) (*model, error) {
					if !works.Load() {
						return nil, fmt.Errorf("no memory")
					}
					return &model{worker: p.name}, h.work(ctx, p, "set up", 0)
				},
			})
		})
		if _, err := h.SetPool(h.t.Context(), protocol.PoolRequest{
			Name: "p", Definition: "llama", Queue: "default", Size: 1,
		}); err != nil {
			h.t.Fatal(err)
		}
		h.start("A")
		h.until("a failure", 100*ms, func() bool { return h.poolState().Unowned == 1 && h.at() > 5*sec })
		id := h.poolState().Members[0].SessionID
		works.Store(true)
		h.freeMembers(1)
		h.equal("member is replaced", h.poolState().Members[0].SessionID != id, true)
	})

	// A workflow that names an unknown pool waits until it exists, and stops waiting when it is cancelled.
	bubble(t, "an unknown pool", func(h *harness) {
		h.flow("loan", loan)
		h.start("A")
		run := h.begin("loan", "first", workflow.BorrowOptions{})
		h.until("waits", 10*ms, func() bool { return len(h.types(run)) == 2 })
		if w := h.waitOf(run); w.Reason != protocol.WaitNoPool || !w.Attention || w.Pool != "p" {
			h.t.Errorf("wait: %+v", w)
		}
		if _, err := h.RequestCancellation(h.t.Context(), protocol.EndRequest{
			Target: protocol.Target{RunID: run, WorkflowID: h.poolRun(run)},
		}); err != nil {
			h.t.Fatal(err)
		}
		last := h.finish(run)
		if _, ok := last.Data.(*history.WorkflowCancelled); !ok {
			h.t.Errorf("run ended with %s", last.Type())
		}
	})

	bubble(t, "invalid settings", func(h *harness) {
		for _, in := range []protocol.PoolRequest{
			{Name: "a/b", Definition: "d", Queue: "q", Size: 1},
			{Name: "p", Queue: "q", Size: 1},
			{Name: "p", Definition: "d", Size: 1},
			{Name: "p", Definition: "d", Queue: "q"},
			{Name: "p", Definition: "d", Queue: "q", Size: 1001},
			{Name: "p", Definition: "d", Queue: "q", Size: 1, Warm: warmSize(2)},
			{Name: "p", Definition: "d", Queue: "q", Size: 1, MaxUses: -1},
		} {
			if _, err := h.SetPool(h.t.Context(), in); protocol.ReasonOf(err) != protocol.ReasonValidation {
				h.t.Errorf("%+v: %v", in, err)
			}
		}
		list, err := h.Pools(h.t.Context(), "default")
		h.equal("pools", len(list.Pools), 0)
		if err != nil {
			h.t.Error(err)
		}
		_, err = h.DeletePool(h.t.Context(), protocol.PoolRequest{Name: "p"})
		h.equal("reason", protocol.ReasonOf(err), protocol.ReasonPoolNotFound)
	})
}
