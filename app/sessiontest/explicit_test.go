package sessiontest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Sessions that a workflow starts and ends.
func TestExplicitSessions(t *testing.T) {
	bubble(t, "OS-E1", func(h *harness) {
		h.warm()
		first := ""
		h.flow("chain", func(ctx workflow.Context, s *workflow.Session, n int) ([]string, error) {
			if n == 0 {
				var err error
				if s, err = workflow.StartSession(ctx, workflow.SessionOptions{}); err != nil {
					return nil, err
				}
				first = s.ID
				if err := s.Execute(ctx, "load", "load", 10).Get(ctx, nil); err != nil {
					return nil, err
				}
				s.Execute(ctx, "bare", "late", 2000) // its result is not awaited
				if err := workflow.Sleep(ctx, 500*ms); err != nil {
					return nil, err
				}
				return nil, workflow.ContinueAsNew(ctx, s, 1)
			}
			got := []string{s.ID}
			by, err := workflow.Await[string](ctx, s.Execute(ctx, "bare", "again", 3000))
			if err != nil {
				return nil, err
			}
			never := workflow.Session{ID: workflow.Info(ctx).RunID + "-77"}
			got = append(got, by, failureType(never.Execute(ctx, "bare", "never", 1).Get(ctx, nil)))
			if err := s.End(ctx); err != nil {
				return nil, err
			}
			return append(got, failureType(s.Execute(ctx, "bare", "ended", 1).Get(ctx, nil))), nil
		})
		h.start("A")
		h.start("B")
		run := h.begin("chain", nil, 0)
		got := output[[]string](h, run)
		h.equal("run 2", got, []string{first, h.once("load").worker, "missing", "closed"})
		h.equal("epochs", h.once("again").session.Epoch, h.once("load").session.Epoch)
		h.equal("rebuilds", len(h.did("load")), 1)
		second := h.events(run)[len(h.events(run))-1].Data.(*history.WorkflowContinuedAsNew).NewRunID
		h.equal("starts in run 1", count(h.types(run), "SessionStarted"), 1)
		h.equal("starts in run 2", count(h.types(second), "SessionStarted"), 0)
		h.equal("results of the activity nobody waited for", count(h.types(run), "ActivityCompleted"), 1)
		h.equal("timeline", h.timeline(first), []string{"started", "claimed", "closed"})
	})

	bubble(t, "OS-E1-foreign", func(h *harness) {
		h.warm()
		h.flow("owner", func(ctx workflow.Context) (string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return "", err
			}
			if err := s.Execute(ctx, "load", "load", 10).Get(ctx, nil); err != nil {
				return "", err
			}
			return s.ID, workflow.Signal(ctx, "go").Receive(ctx, nil)
		})
		h.flow("other", func(ctx workflow.Context, s workflow.Session) (string, error) {
			return failureType(s.Execute(ctx, "bare", "stolen", 1).Get(ctx, nil)), nil
		})
		h.start("A")
		run := h.begin("owner")
		id := h.done("load").session.ID
		h.equal("a handle of another workflow", output[string](h, h.begin("other", workflow.Session{ID: id})), "missing")
		h.equal("owner", h.owner(id), "A")
		h.signal(run, "go")
		h.equal("handle", output[string](h, run), id)
		s, _ := h.row(id)
		h.equal("after the end of the chain", s.Status, protocol.SessionClosed)
	})

	bubble(t, "OS-E2", func(h *harness) {
		ending := func(ctx workflow.Context) ([]string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return nil, err
			}
			a, b := s.Execute(ctx, "work", "a", 60_000), s.Execute(ctx, "deaf", "b", 6000)
			if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
				return nil, err
			}
			if err := s.End(ctx); err != nil {
				return nil, err
			}
			got := []string{
				failureType(a.Get(ctx, nil)), failureType(b.Get(ctx, nil)),
				failureType(s.Execute(ctx, "work", "c", 1).Get(ctx, nil)),
			}
			if err := s.End(ctx); err != nil { // a second time
				return nil, err
			}
			return got, workflow.Sleep(ctx, 10*time.Second)
		}
		h.flow("ending", ending)
		h.uses(func(r *worker.Registry, p *proc) {
			// this activity ignores cancellation
			r.Activity("deaf", func(ctx context.Context, item string, millis int) (string, error) {
				return "too late", h.work(context.WithoutCancel(ctx), p, item, time.Duration(millis)*ms)
			})
		})
		h.start("A", attempts(2*sec))
		run := h.begin("ending")
		id := h.running("a").session.ID
		h.running("b")
		h.wait(sec)
		h.signal(run, "go")
		began := h.at()
		h.until("the activity is told", 10*ms, func() bool { return h.once("a").to > 0 })
		h.between("the activity was told", h.once("a").to, began, began+sec+200*ms)
		h.equal("results", output[[]string](h, run), []string{"cancelled", "cancelled", "closed"})
		if h.once("b").to == 0 {
			h.t.Error("the deaf activity should have ended by now")
		}
		types := h.types(run)
		h.equal("ends", count(types, "SessionEnded"), 2)
		h.equal("cancelled", count(types, "ActivityCancelled"), 2)
		h.equal("completed", count(types, "ActivityCompleted"), 0)
		at := slices.Index(types, "SessionEnded")
		h.equal("what follows the end", types[at+1:at+3], []string{"ActivityCancelled", "ActivityCancelled"})
		s, _ := h.row(id)
		h.equal("row", fmt.Sprintf("%s %t %d %d", s.Status, s.Terminal, s.Active, s.Ready), "closed true 0 0")
		h.replays(run, ending)
	})

	bubble(t, "OS-E2-refused", func(h *harness) {
		ctx := h.t.Context()
		if _, err := h.Register(ctx, protocol.RegisterRequest{
			WorkerID: "flows", Incarnation: "1", TaskQueue: "default", WorkflowTypes: []string{"wf"},
		}); err != nil {
			h.t.Fatal(err)
		}
		wait := int64(5)
		decide := func(delay int64, commands ...protocol.Command) error {
			a, err := h.Poll(ctx, protocol.PollRequest{WorkerID: "flows", Timeout: &wait})
			if err != nil || len(a.Tasks) != 1 {
				h.t.Fatalf("poll: %+v, %v", a, err)
			}
			w := a.Tasks[0].Workflow
			c, err := h.Complete(ctx, protocol.CompleteRequest{Items: []protocol.CompleteItem{{
				Kind: protocol.KindWorkflow, TaskID: w.TaskID, Owner: w.LeaseOwner, Attempt: w.Attempt + delay, Commands: commands,
			}}})
			if err != nil {
				h.t.Fatal(err)
			}
			return c.Items[0].Err
		}
		run := h.begin("wf")
		id := run + "-1"
		if err := decide(0, protocol.Command{Type: protocol.StartSession}, protocol.Command{
			Type: protocol.StartTimer, Delay: new(int64(1)),
		}); err != nil {
			h.t.Fatal(err)
		}
		before := len(h.events(run)) + 1 // one event later, the timer fires
		if err := decide(-1, protocol.Command{Type: protocol.EndSession, SessionID: id}); protocol.ReasonOf(err) == "" {
			h.t.Errorf("a stale decision: %v", err)
		}
		h.equal("events", len(h.events(run)), before)
		s, _ := h.row(id)
		h.equal("row", fmt.Sprintf("%s %t", s.Status, s.Terminal), "active false")
	})

	// The end of a session races with a result: the one stored first counts, and there is one outcome.
	bubble(t, "OS-E2-race", func(h *harness) {
		racing := func(ctx workflow.Context, millis int) (string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return "", err
			}
			a := s.Execute(ctx, "work", fmt.Sprint("item", millis), millis)
			if err := workflow.Sleep(ctx, sec); err != nil {
				return "", err
			}
			if err := s.End(ctx); err != nil {
				return "", err
			}
			_, err = workflow.Await[string](ctx, a)
			return failureType(err), nil
		}
		h.flow("racing", racing)
		h.start("A")
		seen := map[string]bool{}
		for _, millis := range []int{985, 990, 995, 1000, 1000, 1000, 1005, 1010} {
			run := h.begin("racing", millis)
			got, types := output[string](h, run), h.types(run)
			ends := count(types, "ActivityCompleted") + count(types, "ActivityCancelled")
			if ends != 1 || (got == "cancelled") != (count(types, "ActivityCancelled") == 1) {
				h.t.Errorf("%d ms: got %s of %q", millis, got, types)
			}
			seen[got] = true
			h.replays(run, racing)
		}
		h.equal("both orders", len(seen), 2)
	})
}
