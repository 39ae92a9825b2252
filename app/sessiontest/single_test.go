package sessiontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// overlap reports whether two executions overlapped in time.
func overlap(a, b ran) bool { return a.from < b.to && b.from < a.to }

// nameless makes the worker generate its ID.
func nameless(o *worker.Options) { o.WorkerID = "" }

// scheduled returns the session IDs of a run's ActivityScheduled events.
func (h *harness) scheduled(run string) (ids []string) {
	h.t.Helper()
	for _, e := range h.events(run) {
		if d, ok := e.Data.(*history.ActivityScheduled); ok {
			ids = append(ids, d.SessionID)
		}
	}
	return ids
}

// The acceptance cases with one worker.
func TestOneWorker(t *testing.T) {
	bubble(t, "IS-S1", func(h *harness) {
		h.flow("three", func(ctx workflow.Context) ([]string, error) { return turns(ctx, "s", "t", 3, 10) })
		h.flow("pair", func(ctx workflow.Context) error {
			return workflow.Join(ctx, begin(ctx, "s", "half", 500), begin(ctx, "s", "fifth", 200))
		})
		a := h.start("A", nameless, slots(2))
		output[[]string](h, h.begin("three"))
		for _, r := range h.did() {
			h.equal("epoch", r.session.Epoch, h.once("t1").session.Epoch)
		}
		h.equal("owner", h.owner("s"), a.ID())
		began := h.at()
		h.finish(h.begin("pair"))
		h.near("both done", h.at()-began, 500*ms, 50*ms)
		if !overlap(h.once("half"), h.once("fifth")) {
			h.t.Errorf("%+v", h.did("half", "fifth"))
		}
	})

	bubble(t, "IS-S2", func(h *harness) {
		h.flow("pair", func(ctx workflow.Context) error {
			return workflow.Join(ctx, begin(ctx, "s1", "a", 300), begin(ctx, "s2", "b", 300))
		})
		h.start("A", slots(2))
		run := h.begin("pair")
		if last := h.finish(run); last.Type() != "WorkflowCompleted" || !overlap(h.once("a"), h.once("b")) {
			h.t.Errorf("%s: %+v", last.Type(), h.did())
		}
	})

	bubble(t, "IS-S3", func(h *harness) {
		h.uses(func(r *worker.Registry, _ *proc) {
			r.Activity("tag", func(ctx context.Context, name string) (string, error) {
				if id := activity.SessionID(ctx); id != "" {
					return "session:" + name, nil
				}
				return "regular:" + name, nil
			})
		})
		h.flow("mix", func(ctx workflow.Context) (string, error) {
			var all []string
			futures := []workflow.Future{
				workflow.ExecuteActivity(ctx, "tag", "a"), workflow.ExecuteActivity(workflow.InSession(ctx, "s"), "tag", "b"),
				workflow.ExecuteActivity(ctx, "tag", "c"),
			}
			for _, f := range futures {
				tag, err := workflow.Await[string](ctx, f)
				if err != nil {
					return "", err
				}
				all = append(all, tag)
			}
			return strings.Join(all, "|"), nil
		})
		h.start("A")
		h.equal("result", output[string](h, h.begin("mix")), "regular:a|session:b|regular:c")
	})

	bubble(t, "IS-S4", func(h *harness) {
		tracked := func(version string) any {
			return func(ctx workflow.Context, session string, iteration int) (string, error) {
				if _, err := in(ctx, session, fmt.Sprintf("iter-%d", iteration), 10); err != nil {
					return "", err
				}
				if iteration == 1 {
					return "tracked:iter-1 " + version, nil
				}
				if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
					return "", err
				}
				return "", workflow.ContinueAsNew(ctx, session, iteration+1)
			}
		}
		two := false
		h.uses(func(r *worker.Registry, _ *proc) {
			r.WorkflowVersion("track", 1, tracked("v1"))
			if two {
				r.WorkflowVersion("track", 2, tracked("v2"))
			}
		})
		a := h.start("A")
		run := h.begin("track", "s", 0)
		h.done("iter-0")
		h.signal(run, "go")
		h.equal("result", output[string](h, run), "tracked:iter-1 v1")
		h.equal("epochs", h.once("iter-1").session.Epoch, h.once("iter-0").session.Epoch)
		run = h.begin("track", "t", 0)
		h.until("the second run waits", 10*ms, func() bool { return len(h.did("iter-0")) == 2 && h.did("iter-0")[1].to > 0 })
		a.stop()
		two = true
		h.start("A")
		h.signal(run, "go")
		h.equal("result", output[string](h, run), "tracked:iter-1 v2")
		h.equal("session", h.did("iter-1")[1].session.ID, "t")
	})

	bubble(t, "IS-S5", func(h *harness) {
		h.flow("race", func(ctx workflow.Context) (string, error) {
			inner, cancel := workflow.WithCancel(ctx)
			won, err := workflow.Select(ctx, begin(inner, "s", "endless", 3_600_000), workflow.NewTimer(ctx, 3*time.Second))
			if err != nil || won != 1 {
				return "", fmt.Errorf("%d won: %w", won, err)
			}
			cancel()
			return in(ctx, "s", "next", 10)
		})
		h.start("A", attempts(4*sec))
		h.start("B", attempts(4*sec))
		run := h.begin("race")
		first := h.running("endless")
		h.wait(first.from + 3*sec - h.at() + 100*ms)
		h.equal("owner", h.owner("s"), first.worker)
		h.equal("worker", output[string](h, run), first.worker)
		h.until("the loser is told", 10*ms, func() bool { return h.once("endless").to > 0 })
		h.between("the loser was told", h.once("endless").to, first.from+3*sec, first.from+3*sec+2*sec)
		h.equal("epochs", h.once("next").session.Epoch, first.session.Epoch)
		tasks := 0
		for _, typ := range h.types(run) {
			if typ == "ActivityCancelled" {
				tasks++
			}
		}
		h.equal("cancelled activities", tasks, 1)
	})

	bubble(t, "IS-S6", func(h *harness) {
		h.flow("one", one)
		h.flow("doomed", func(ctx workflow.Context) (string, error) {
			_, err := in(ctx, "s", "doomed", 60_000)
			if errors.Is(err, workflow.ErrPoison) {
				return "poison", nil
			}
			return "", fmt.Errorf("no poison: %w", err)
		})
		n1 := h.start("n1")
		run := h.begin("doomed")
		for i := range 3 {
			h.equal("attempt", h.running("doomed").attempt, i+1)
			n1.kill()
			n1 = h.start("n1")
			h.wait(100 * ms)
		}
		h.equal("result", output[string](h, run), "poison")
		h.equal("owner", h.owner("s"), "n1")
		h.start("B")
		h.equal("worker", output[string](h, h.begin("one", "s", "after", 10)), "n1")
	})

	bubble(t, "IS-S8", func(h *harness) {
		h.flow("mix", func(ctx workflow.Context) error {
			if _, err := in(ctx, "sess-1", "a", 10); err != nil {
				return err
			}
			_, err := in(ctx, "", "b", 10)
			return err
		})
		h.start("A")
		run := h.begin("mix")
		h.finish(run)
		h.equal("sessions in the history", h.scheduled(run), []string{"sess-1", ""})
		raw, err := json.Marshal(h.events(run))
		if err != nil {
			h.t.Fatal(err)
		}
		h.equal("mentions of a session id", strings.Count(string(raw), `"session_id"`), 1)
	})

	bubble(t, "IS-S10", func(h *harness) {
		type sum struct{ Left, Right int }
		type total struct {
			Value int
			Of    []string
		}
		h.uses(func(r *worker.Registry, _ *proc) {
			r.Activity("add", func(_ context.Context, s sum) (total, error) {
				return total{s.Left + s.Right, []string{"l", "r"}}, nil
			})
		})
		h.flow("typed", func(ctx workflow.Context, s sum) (total, error) {
			return workflow.Execute[total](workflow.InSession(ctx, "s"), "add", s)
		})
		h.start("A")
		h.equal("result", output[total](h, h.begin("typed", sum{40, 2})), total{42, []string{"l", "r"}})
	})

	for _, c := range []struct{ name, id string }{{"IS-S11", "Kunde 7/ä ½ \"x\"·"}, {"IS-S12", ""}} {
		bubble(t, c.name, func(h *harness) {
			h.uses(func(r *worker.Registry, _ *proc) {
				r.Activity("ask", func(ctx context.Context) (string, error) { return activity.SessionID(ctx), nil })
			})
			h.flow("ask", func(ctx workflow.Context) (string, error) {
				return workflow.Execute[string](workflow.InSession(ctx, c.id), "ask")
			})
			h.start("A")
			h.equal("session id", output[string](h, h.begin("ask")), c.id)
		})
	}
}

// The app and the worker end after an item was scheduled; another app and another worker continue from the store.
func TestWorkContinuesAtAnotherApp(t *testing.T) {
	database := "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	bubbleOn(t, "IS-S9", serverOptions{Database: database}, func(h *harness) {
		h.flow("steps", func(ctx workflow.Context) ([]string, error) {
			a, err := in(ctx, "", "first", 10)
			if err != nil {
				return nil, err
			}
			b, err := in(ctx, "s", "second", 10)
			if err != nil {
				return nil, err
			}
			c, err := in(ctx, "s", "third", 10)
			return []string{a, b, c}, err
		})
		a := h.start("A", most(0)) // acquires no sessions, so the item stays in the queue
		run := h.begin("steps")
		h.done("first")
		h.wait(sec)
		h.equal("scheduled", h.scheduled(run), []string{"", "s"})
		a.stop()
		h.testServer.close()
		h.testServer = open(h.t, serverOptions{Database: database})
		h.start("B")
		h.equal("workers", output[[]string](h, run), []string{"A", "B", "B"})
		h.equal("session", h.once("second").session.ID, "s")
		if slices.Contains(h.types(run), "WorkflowTaskFailed") {
			h.t.Error("the code did not replay")
		}
	})
}

// A child uses its parent's session like any other run: by the ID in its arguments.
func TestChildInTheSession(t *testing.T) {
	bubble(t, "IS-S7", func(h *harness) {
		h.flow("child", func(ctx workflow.Context, session string) (string, error) { return in(ctx, session, "inside", 10) })
		h.flow("parent", func(ctx workflow.Context, session string) ([]string, error) {
			before, err := in(ctx, session, "before", 10)
			if err != nil {
				return nil, err
			}
			inside, err := workflow.ExecuteChild[string](ctx, "child", session)
			if err != nil {
				return nil, err
			}
			after, err := in(ctx, session, "after", 10)
			return []string{before, inside, after}, err
		})
		h.start("A")
		h.start("B")
		workers := output[[]string](h, h.begin("parent", "s"))
		if workers[0] != workers[1] || workers[0] != workers[2] {
			h.t.Errorf("ran on %v, want one worker", workers)
		}
		h.equal("session of the child's activity", h.once("inside").session.ID, "s")
		h.equal("epochs", h.once("inside").session.Epoch, h.once("before").session.Epoch)
		h.equal("epochs", h.once("after").session.Epoch, h.once("before").session.Epoch)
		h.equal("timeline", h.timeline("s"), []string{"claimed"})
	})

	// A session started by a workflow is private: child workflows cannot use it, and the parent gets the reason.
	bubble(t, "IS-S7-started", func(h *harness) {
		h.flow("child", func(ctx workflow.Context, s workflow.Session) (string, error) {
			return workflow.ExecuteIn[string](ctx, &s, "work", "inside", 10)
		})
		h.flow("parent", func(ctx workflow.Context) (string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return "", err
			}
			_, err = workflow.ExecuteChild[string](ctx, "child", s)
			if failed, ok := errors.AsType[*workflow.ChildError](err); !ok || failed.Type != "session_missing" {
				return "", fmt.Errorf("want a missing session, got %w", err)
			}
			after, err := workflow.ExecuteIn[string](ctx, s, "work", "after", 10)
			return after, errors.Join(err, s.End(ctx))
		})
		h.start("A")
		h.equal("worker", output[string](h, h.begin("parent")), "A")
		h.equal("items", len(h.did("inside")), 0)
	})
}
