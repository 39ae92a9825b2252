package sessiontest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// model is the state of the sessions of these cases: the worker that set it up, and with which argument.
type model struct{ worker, path string }

// defines registers the definition "llama" on every worker that starts later, and the activity "ask", which uses its
// state. A set-up takes the given time; fail returns its error.
func (h *harness) defines(takes time.Duration, fail func(p *proc) error, change ...func(*activity.SessionDefinition)) {
	h.uses(func(r *worker.Registry, p *proc) {
		d := activity.SessionDefinition{
			SetUp: func(ctx context.Context, path string) (*model, error) {
				if err := h.work(ctx, p, "set up", takes); err != nil {
					return nil, err
				}
				if fail != nil {
					if err := fail(p); err != nil {
						return nil, err
					}
				}
				return &model{p.name, path}, nil
			},
			TearDown: func(ctx context.Context, m *model) { _ = h.work(ctx, p, "tear down "+m.worker, 0) },
		}
		for _, f := range change {
			f(&d)
		}
		r.Session("llama", d)
	})
	h.asks()
}

// asks registers the activity "ask" on every worker that starts later.
func (h *harness) asks() {
	h.uses(func(r *worker.Registry, p *proc) {
		r.Activity("ask", func(ctx context.Context, item string, millis int) (string, error) {
			m, err := activity.State[*model](ctx)
			if err != nil {
				return "", err
			}
			return m.worker + " " + m.path, h.work(ctx, p, item, time.Duration(millis)*ms)
		})
	})
}

// asking runs "ask" in a session with the definition "llama".
func asking(ctx workflow.Context, session, path, item string, millis int) workflow.Future {
	def := workflow.SessionDefinition{Name: "llama", Arguments: []any{path}}
	return workflow.ExecuteActivity(workflow.InSession(ctx, session, def), "ask", item, millis)
}

// setUps returns the set-up events of a run, in short form.
func (h *harness) setUps(run string) (list []string) {
	h.t.Helper()
	for _, e := range h.events(run) {
		if d, ok := e.Data.(*history.SessionSetUp); ok {
			list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s", d.Definition, d.Outcome, d.Reason)))
		}
	}
	return list
}

// arguments returns the stored arguments of a session's definition.
func (h *harness) arguments(id string) (blob string) {
	h.t.Helper()
	err := h.store.View(h.t.Context(), func(r store.Reader) (err error) {
		blob, err = r.SessionArguments(h.t.Context(), engine.SessionKey{Namespace: "default", ID: id})
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return blob
}

// onBothDatabases runs a case in virtual time on SQLite, and on the PostgreSQL server of the tests, if there is one, in
// real time.
func TestSessionDefinitions(t *testing.T) {
	// Two tasks at once and a third one later share one set-up. Its time does not count in their StartToClose, and
	// history has one event.
	bubble(t, "one set-up", func(h *harness) {
		h.defines(30*sec, nil)
		flow := func(ctx workflow.Context) (out []string, err error) {
			ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: 5 * sec, Heartbeat: 3 * sec})
			a, b := asking(ctx, "s", "m.gguf", "a", 2000), asking(ctx, "s", "m.gguf", "b", 2000)
			for _, f := range []workflow.Future{a, b, nil} {
				if f == nil {
					f = asking(ctx, "s", "other.gguf", "c", 1000)
				}
				var s string
				if err := f.Get(ctx, &s); err != nil {
					return nil, err
				}
				out = append(out, s)
			}
			return out, nil
		}
		h.flow("flow", flow)
		a := h.start("A")
		run := h.begin("flow")
		h.equal("states", output[[]string](h, run), []string{"A m.gguf", "A m.gguf", "A m.gguf"})
		h.once("set up")
		h.equal("set-ups", h.setUps(run), []string{"llama completed"})
		h.equal("timeline", h.timeline("s"), []string{"claimed", "set_up"})
		h.replays(run, flow)
		warnings := 0
		for _, e := range h.events(run) {
			if d, ok := e.Data.(*history.ActivityScheduled); ok && d.SessionWarning != "" {
				warnings++
			}
		}
		h.equal("warnings about other arguments", warnings, 1)
		a.stop()
		h.equal("tear-downs", len(h.did("tear down A")), 1)
	})

	// The owner is killed after the set-up: the next owner runs the set-up with the stored arguments, and history
	// records the reason.
	bubble(t, "killed after it", func(h *harness) {
		h.defines(sec, nil)
		h.flow("flow", func(ctx workflow.Context) ([]string, error) {
			a, err := workflow.Await[string](ctx, asking(ctx, "s", "m.gguf", "first", 10))
			if err != nil {
				return nil, err
			}
			if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
				return nil, err
			}
			b, err := workflow.Execute[string](workflow.InSession(ctx, "s"), "ask", "second", 10)
			return []string{a, b}, err
		})
		with := func(o *worker.Options) { lock(2*sec, 0)(o); attempts(2 * sec)(o) }
		a := h.start("A", with)
		run := h.begin("flow")
		h.until("first", 10*ms, func() bool { return len(h.did("first")) == 1 })
		h.start("B", with)
		h.wait(sec)
		a.kill()
		h.signal(run, "go")
		h.equal("states", output[[]string](h, run), []string{"A m.gguf", "B m.gguf"})
		h.equal("set-ups", h.setUps(run), []string{"llama completed", "llama completed worker_lost"})
	})

	// The owner is killed or frozen during the set-up: another worker sets up, and the killed one serves nothing.
	for name, fail := range map[string]func(p *proc){
		"killed in it": func(p *proc) { p.kill() },
		"frozen in it": func(p *proc) { p.swallow() },
	} {
		bubble(t, name, func(h *harness) {
			h.defines(20*sec, nil)
			h.flow("flow", func(ctx workflow.Context) (string, error) {
				return workflow.Await[string](ctx, asking(ctx, "s", "m.gguf", "item", 10))
			})
			with := func(o *worker.Options) { lock(2*sec, 0)(o); attempts(2 * sec)(o); o.Workflows = 1 }
			a := h.start("A", with)
			run := h.begin("flow")
			h.running("set up")
			h.start("B", with)
			h.wait(sec)
			fail(a)
			h.equal("state", output[string](h, run), "B m.gguf")
			h.equal("served by", distinct(h.did("item")), []string{"B"})
			h.equal("set-ups", h.setUps(run), []string{"llama cancelled", "llama completed worker_lost"})
			if name == "frozen in it" {
				for _, r := range h.did("set up") {
					if r.worker == "A" && r.cause == nil {
						h.t.Error("the set-up of the worker without a connection was not cancelled")
					}
				}
			}
		})
	}

	// A worker without the definition does not acquire the session, and the wait reason names the definition.
	bubble(t, "not registered", func(h *harness) {
		h.asks()
		h.flow("flow", func(ctx workflow.Context) (string, error) {
			return workflow.Await[string](ctx, asking(ctx, "s", "m.gguf", "item", 10))
		})
		h.start("A")
		run := h.begin("flow")
		h.wait(5 * sec)
		w := h.waitOf(run)
		if w.Reason != protocol.WaitNoDefinition || !slices.Equal(w.Missing, []string{"llama"}) || !w.Attention {
			h.t.Errorf("the wait is %+v", w)
		}
		h.defines(0, nil)
		h.setup = slices.Delete(h.setup, 1, 2) // "ask" is registered once
		h.start("B")
		h.equal("state", output[string](h, run), "B m.gguf")
	})

	// A failed set-up fails the attempt with its error, and the next attempt sets up again.
	bubble(t, "fails", func(h *harness) {
		calls := 0
		h.defines(sec, func(*proc) error {
			if calls++; calls == 1 {
				return activity.NewError("NoGPU", "no memory on the GPU")
			}
			return nil
		})
		h.flow("flow", func(ctx workflow.Context) (string, error) {
			retried := workflow.WithActivity(ctx, workflow.ActivityOptions{Retry: &workflow.RetryPolicy{MaxAttempts: 2}})
			return workflow.Await[string](ctx, asking(retried, "s", "m.gguf", "item", 10))
		})
		h.start("A")
		run := h.begin("flow")
		h.equal("state", output[string](h, run), "A m.gguf")
		h.equal("set-ups", h.setUps(run), []string{"llama failed", "llama completed"})
		h.equal("timeline", h.timeline("s"), []string{"claimed", "set_up_failed", "set_up"})
		for _, e := range h.events(run) {
			if d, ok := e.Data.(*history.ActivityRetryScheduled); ok && d.ExceptionType != "NoGPU" {
				h.t.Errorf("the attempt failed with %q", d.ExceptionType)
			}
		}
	})

	// With TryAnotherWorker the other worker gets the session first, and the attempt does not count.
	bubble(t, "tries another worker", func(h *harness) {
		h.defines(sec, func(p *proc) error {
			if p.name == "A" {
				return errors.New("no GPU here")
			}
			return nil
		}, func(d *activity.SessionDefinition) { d.OnFailure = activity.TryAnotherWorker })
		h.flow("flow", func(ctx workflow.Context) (string, error) {
			return workflow.Await[string](ctx, asking(ctx, "s", "m.gguf", "item", 10))
		})
		h.start("A")
		run := h.begin("flow")
		h.running("set up")
		h.start("B")
		h.equal("state", output[string](h, run), "B m.gguf")
		h.equal("set-ups by", len(h.did("set up")), 2)
		h.equal("attempt", h.once("item").attempt, 1)
		h.equal("set-ups", h.setUps(run), []string{"llama failed", "llama completed set_up_failed"})
		entries := h.entries("s")
		e := entries[2]
		why := strings.HasPrefix(e.Why, protocol.ReturnedSetUpFailed)
		if entries[1].What != "set_up_failed" || e.What != "released" || !why {
			h.t.Errorf("the end of the first acquisition is %+v", e)
		}
	})

	// A set-up that failed at the first worker left no state that could be lost: with on_lost fail, too, the other
	// worker sets the session up and runs the activity.
	bubble(t, "tries another worker for a workflow that asks for losses", func(h *harness) {
		h.defines(sec, func(p *proc) error {
			if p.name == "A" {
				return errors.New("no GPU here")
			}
			return nil
		}, func(d *activity.SessionDefinition) { d.OnFailure = activity.TryAnotherWorker })
		h.flow("flow", func(ctx workflow.Context) (string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{Definition: &workflow.SessionDefinition{
				Name: "llama", Arguments: []any{"m.gguf"}, OnLost: "fail",
			}})
			if err != nil {
				return "", err
			}
			return workflow.ExecuteIn[string](ctx, s, "ask", "item", 10)
		})
		h.start("A")
		run := h.begin("flow")
		h.running("set up")
		h.start("B")
		h.equal("state", output[string](h, run), "B m.gguf")
	})

	// The set-up's own timeout fails the attempt.
	bubble(t, "times out", func(h *harness) {
		h.defines(time.Hour, nil, func(d *activity.SessionDefinition) { d.SetUpTimeout = 20 * sec })
		h.flow("flow", func(ctx workflow.Context) (string, error) {
			short := workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: sec})
			_, err := workflow.Await[string](ctx, asking(short, "s", "m.gguf", "item", 10))
			return fmt.Sprint(err), nil
		})
		h.start("A")
		run := h.begin("flow")
		if got := output[string](h, run); !strings.Contains(got, "did not end within 20s") {
			h.t.Errorf("the activity failed with %q", got)
		}
		h.between("the end", h.at(), 20*sec, 22*sec)
		h.equal("set-ups", h.setUps(run), []string{"llama failed"})
	})

	// With on_lost fail the first activity at the next owner fails, and the following one sets the session up.
	bubble(t, "the workflow asks for losses", func(h *harness) {
		h.defines(sec, nil)
		h.flow("flow", func(ctx workflow.Context) ([]string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{Definition: &workflow.SessionDefinition{
				Name: "llama", Arguments: []any{"m.gguf"}, OnLost: "fail",
			}})
			if err != nil {
				return nil, err
			}
			var out []string
			for i, item := range []string{"first", "second", "third"} {
				got, err := workflow.ExecuteIn[string](ctx, s, "ask", item, 10)
				if err != nil {
					got = failureType(err)
				}
				if out = append(out, got); i == 0 {
					if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
						return nil, err
					}
				}
			}
			return out, nil
		})
		a := h.start("A")
		run := h.begin("flow")
		h.until("first", 10*ms, func() bool { return len(h.did("first")) == 1 })
		a.stop()
		h.start("B")
		h.signal(run, "go")
		h.equal("results", output[[]string](h, run), []string{"A m.gguf", "lost", "B m.gguf"})
	})

	// Code that declares the state lost gets a new one within the attempt, after the old one was torn down.
	bubble(t, "declared lost", func(h *harness) {
		h.defines(sec, nil)
		broken := true
		h.uses(func(r *worker.Registry, p *proc) {
			r.Activity("use", func(ctx context.Context) (string, error) {
				m, err := activity.State[*model](ctx)
				if err != nil {
					return "", err
				}
				if broken {
					broken = false
					return "", activity.SessionLost("the browser crashed")
				}
				return m.worker, nil
			})
		})
		h.flow("flow", func(ctx workflow.Context) (string, error) {
			def := workflow.SessionDefinition{Name: "llama", Arguments: []any{"m.gguf"}}
			return workflow.Execute[string](workflow.InSession(ctx, "s", def), "use")
		})
		h.start("A")
		run := h.begin("flow")
		h.equal("state", output[string](h, run), "A")
		h.equal("set-ups", len(h.did("set up")), 2)
		h.equal("tear-downs", len(h.did("tear down A")), 1)
	})

	// At most MaxSetUps set-ups run at once. Sessions whose state exists are not delayed by the others.
	bubble(t, "max-set-ups", func(h *harness) {
		h.defines(20*sec, nil)
		h.flow("flow", func(ctx workflow.Context, session, item string) (string, error) {
			short := workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: 5 * sec})
			return workflow.Await[string](ctx, asking(short, session, "m.gguf", item, 10))
		})
		h.start("A", slots(16), func(o *worker.Options) { o.Sessions.MaxSetUps = 2 })
		h.equal("state", output[string](h, h.begin("flow", "warm", "warm")), "A m.gguf")
		var runs []string
		for i := range 6 {
			runs = append(runs, h.begin("flow", fmt.Sprint("s", i), "item"))
		}
		h.wait(sec)
		at := h.at()
		output[string](h, h.begin("flow", "warm", "bystander"))
		h.near("the bystander", h.at(), at, 200*ms)
		for _, run := range runs {
			output[string](h, run)
			h.equal("set-ups", h.setUps(run), []string{"llama completed"})
		}
		var most int
		all := h.did("set up")[1:]
		for _, r := range all {
			together := 0
			for _, o := range all {
				if o.from <= r.from && r.from < o.to {
					together++
				}
			}
			most = max(most, together)
		}
		h.equal("set-ups", len(all), 6)
		h.equal("set-ups at once", most, 2)
	})

	// The arguments exist as long as the session's row.
	bubble(t, "arguments", func(h *harness) {
		h.defines(0, nil)
		h.flow("flow", func(ctx workflow.Context) (string, error) {
			return workflow.Await[string](ctx, asking(ctx, "s", strings.Repeat("x", 100_000), "item", 10))
		})
		h.start("A")
		output[string](h, h.begin("flow"))
		if n := len(h.arguments("s")); n < 100_000 {
			h.t.Errorf("%d bytes of arguments are stored", n)
		}
		for _, verb := range []string{"close", "forget"} {
			if _, err := h.OperateSession(h.t.Context(), protocol.SessionOperation{
				SessionID: "s", Verb: verb, Reason: "test", Force: true, Identity: "operator",
			}); err != nil {
				h.t.Fatal(err)
			}
		}
		if h.arguments("s") != "" {
			h.t.Error("the arguments of a removed session are stored")
		}
	})

	// Another definition, or one for a session that has none, is refused once the session was acquired.
	bubble(t, "another definition", func(h *harness) {
		h.defines(0, nil)
		h.flow("flow", func(ctx workflow.Context) (string, error) {
			if err := asking(ctx, "s", "m.gguf", "item", 10).Get(ctx, nil); err != nil {
				return "", err
			}
			other := workflow.SessionDefinition{Name: "other"}
			return fmt.Sprint(workflow.ExecuteActivity(workflow.InSession(ctx, "s", other), "ask", "x", 1).Get(ctx, nil)), nil
		})
		h.start("A")
		got := output[string](h, h.begin("flow"))
		if !strings.Contains(got, "exists with the definition llama, not other") {
			h.t.Errorf("got %q", got)
		}
	})
}
