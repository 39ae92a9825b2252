package sessiontest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// warm are the activities of a session with state: "load" creates it, "use" needs it and has it rebuilt by "load",
// "bare" needs it and fails if it is lost.
func (h *harness) warm() {
	h.uses(func(r *worker.Registry, p *proc) {
		load := func(ctx context.Context, item string, millis int) error {
			d := time.Duration(millis) * ms // a rebuild gets the arguments of the activity that needs it
			if h.rebuild > 0 {
				d = h.rebuild
			}
			if err := h.work(ctx, p, "load", d); err != nil {
				return err
			}
			activity.SessionState(ctx).Set("model", p.name)
			return nil
		}
		use := func(ctx context.Context, item string, millis int) (string, error) {
			by, err := activity.Get[string](ctx, "model")
			if err != nil {
				return "", err
			}
			return by, h.work(ctx, p, item, time.Duration(millis)*ms)
		}
		r.Activity("load", load)
		r.Activity("bare", use)
		r.Activity("use", use, activity.Options{Recovery: &activity.SessionRecoveryPolicy{
			OnError: activity.Lost, RebuildActivity: "load", MaxAutoRetries: 1,
		}})
	})
}

// failureType returns the name of an activity's failure: the errors of package workflow.
func failureType(err error) string {
	for name, known := range map[string]error{
		"closed": workflow.ErrSessionClosed, "missing": workflow.ErrSessionMissing, "lost": workflow.ErrSessionLost,
		"cancelled": workflow.ErrCancelled,
	} {
		if errors.Is(err, known) {
			return name
		}
	}
	return fmt.Sprint(err)
}

// replays checks that the code agrees with every prefix of a run's history.
func (h *harness) replays(run string, fn any) {
	h.t.Helper()
	def, err := workflow.NewDefinition("x", fn)
	if err != nil {
		h.t.Fatal(err)
	}
	events := h.events(run)
	for n := 1; n <= len(events); n++ {
		if err := replay.Events(def, replay.Options{}, events[:n]); err != nil {
			h.t.Errorf("replay of %d of %d events: %v", n, len(events), err)
		}
	}
}

func count(types []string, typ string) (n int) {
	for _, t := range types {
		if t == typ {
			n++
		}
	}
	return n
}

// The cases of lost session state that a rebuild activity restores.
func TestRecovery(t *testing.T) {
	bubble(t, "OS-E3", func(h *harness) {
		h.warm()
		recovering := func(ctx workflow.Context) ([]string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return nil, err
			}
			if err := s.Execute(ctx, "load", "load", 10).Get(ctx, nil); err != nil {
				return nil, err
			}
			a, err := workflow.Await[string](ctx, s.Execute(ctx, "use", "first", 10))
			if err != nil {
				return nil, err
			}
			if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
				return nil, err
			}
			b, err := workflow.Await[string](ctx, s.Execute(ctx, "use", "second", 10))
			return []string{a, b}, err
		}
		h.flow("recovering", recovering)
		with := func(o *worker.Options) { lock(2*sec, 0)(o); attempts(2 * sec)(o) }
		a := h.start("A", with)
		run := h.begin("recovering")
		first := h.done("first")
		h.start("B", with)
		h.wait(3 * sec)
		lease := h.lease(first.session.ID)
		a.kill()
		h.wait(5 * sec)
		h.equal("owner before anybody asks", h.owner(first.session.ID), "")
		h.signal(run, "go")
		h.equal("states", output[[]string](h, run), []string{"A", "B"})
		loads := h.did("load")
		if len(loads) != 2 || loads[1].worker != "B" || loads[1].session != h.once("second").session {
			h.t.Errorf("rebuilds: %+v", loads)
		}
		if h.once("second").from < lease {
			h.t.Errorf("B ran at %s, A's lease ended at %s", h.once("second").from, lease)
		}
		types := h.types(run)
		h.equal("history", strings.Join(
			types, " ",
		), "WorkflowStarted SessionStarted ActivityScheduled ActivityCompleted ActivityScheduled ActivityCompleted "+
			"SignalWaitOpened SignalReceived SignalApplied ActivityScheduled SessionRecovered ActivityCompleted WorkflowCompleted")
		h.replays(run, recovering)
	})

	bubble(t, "OS-E3-in-flight", func(h *harness) {
		h.warm()
		h.flow("long", func(ctx workflow.Context) (string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return "", err
			}
			if err := s.Execute(ctx, "load", "load", 2000).Get(ctx, nil); err != nil {
				return "", err
			}
			return workflow.Await[string](ctx, s.Execute(ctx, "use", "item", 4000))
		})
		with := func(o *worker.Options) { lock(2*sec, 0)(o); attempts(2 * sec)(o) }
		a := h.start("A", with)
		run := h.begin("long")
		item := h.running("item")
		h.wait(sec)
		b := h.start("B", with)
		// A continues without a connection to the app and keeps its tasks. B receives them when the leases end.
		a.sever()
		lost := h.at()
		h.until("B rebuilds", 10*ms, func() bool { return len(h.did("load")) == 2 })
		rebuild := h.did("load")[1]
		h.between("B rebuilds", rebuild.from, lost+sec, lost+3*sec+500*ms) // a blamed task has a backoff of one secff
		b.kill()                                                           // B is killed during the rebuild
		h.start("C", with)
		a.rejoin()
		result, _ := payload.Encode("A, too late")
		out, err := h.Complete(h.t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{{
			Kind: protocol.KindActivity, TaskID: item.id[:strings.LastIndex(item.id, "-")], Owner: "A", AttemptID: item.id,
			Result: result,
		}}})
		if err != nil || out.Items[0].Err == nil {
			h.t.Errorf("a late result of A: %+v, %v", out, err)
		}
		got := output[string](h, run)
		last := h.did("item")[len(h.did("item"))-1]
		h.equal("state", got, last.worker)
		if last.attempt < 3 || last.session.Epoch <= rebuild.session.Epoch {
			h.t.Errorf("the last run: %+v", last)
		}
		h.equal("results", count(h.types(run), "ActivityCompleted"), 2)
	})

	// B acquired the session before the lease of A's attempt ended: A's result is rejected, and B receives the item at
	// once.
	bubble(t, "OS-E3-superseded", func(h *harness) {
		h.flow("pair", func(ctx workflow.Context) ([]string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return nil, err
			}
			long := s.Execute(ctx, "work", "long", 8000)
			if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
				return nil, err
			}
			b, err := workflow.Await[string](ctx, s.Execute(ctx, "work", "other", 1000))
			if err != nil {
				return nil, err
			}
			a, err := workflow.Await[string](ctx, long)
			return []string{a, b}, err
		})
		a := h.start("A", lock(2*sec, 0), attempts(30*sec))
		run := h.begin("pair")
		first := h.running("long")
		h.start("B", lock(2*sec, 0), attempts(30*sec))
		a.sever()
		h.signal(run, "go")
		h.equal("worker", h.running("other").worker, "B")
		a.rejoin()
		h.equal("workers", output[[]string](h, run), []string{"B", "B"})
		both := h.did("long")
		if len(both) != 2 || both[1].attempt != 2 || both[1].session.Epoch <= first.session.Epoch {
			h.t.Fatalf("ran %+v", both)
		}
		h.between("redelivered", both[1].from, first.from+2*sec, first.from+8*sec+200*ms)
		h.equal("results", count(h.types(run), "ActivityCompleted"), 2)
	})

	bubble(t, "OS-E4", func(h *harness) {
		h.warm()
		h.flow("cold", func(ctx workflow.Context, k int) ([]int, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return nil, err
			}
			var rebuilds []int
			for wave := range 2 {
				var all []workflow.Future
				for i := range k {
					all = append(all, s.Execute(ctx, "use", fmt.Sprintf("%s-%d-%d", s.ID, wave, i), 1000))
				}
				if err := workflow.Join(ctx, all...); err != nil {
					return nil, err
				}
				n, _ := workflow.SideEffect(ctx, func() int { return len(h.inSession(s.ID)) })
				rebuilds = append(rebuilds, n-(wave+1)*k)
			}
			return rebuilds, nil
		})
		h.start("A", slots(40))
		began := h.at()
		one, two := h.begin("cold", 10), h.begin("cold", 10)
		h.equal("rebuilds of the first", output[[]int](h, one), []int{1, 1})
		h.equal("rebuilds of the second", output[[]int](h, two), []int{1, 1})
		loads := h.did("load")
		h.equal("rebuilds", len(loads), 2)
		h.between("sessions rebuild at the same time: both waves of both took", h.at()-began, 2*sec, 4*sec)
	})

	// Rebuilds of different sessions overlap.
	bubble(t, "OS-E4-parallel", func(h *harness) {
		h.warm()
		h.flow("cold", func(ctx workflow.Context) error {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return err
			}
			return s.Execute(ctx, "use", "item", 3000).Get(ctx, nil)
		})
		h.start("A", slots(4))
		one, two := h.begin("cold"), h.begin("cold")
		h.finish(one)
		h.finish(two)
		if loads := h.did("load"); len(loads) != 2 || !overlap(loads[0], loads[1]) {
			h.t.Errorf("rebuilds: %+v", loads)
		}
	})

	bubble(t, "OS-E4-failing", func(h *harness) {
		h.uses(func(r *worker.Registry, p *proc) {
			r.Activity("rebuild", func(ctx context.Context, _ string) error {
				if err := h.work(ctx, p, "rebuild", sec); err != nil {
					return err
				}
				return activity.NewError("NoModel", "the model is gone")
			})
			r.Activity("cold", func(ctx context.Context, _ string) (string, error) { return activity.Get[string](ctx, "model") },
				activity.Options{
					Recovery: &activity.SessionRecoveryPolicy{RebuildActivity: "rebuild"},
				})
		})
		h.flow("cold", func(ctx workflow.Context) (types []string, err error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return nil, err
			}
			var all []workflow.Future
			for range 10 {
				all = append(all, s.Execute(ctx, "cold", "x"))
			}
			for _, f := range all {
				var failed *workflow.ActivityError
				if !errors.As(f.Get(ctx, nil), &failed) {
					return types, errors.New("an activity without state succeeded")
				}
				types = append(types, failed.Type)
			}
			return types, nil
		})
		h.start("A", slots(20))
		got := output[[]string](h, h.begin("cold"))
		if len(got) != 10 || len(slices.Compact(got)) != 1 || got[0] != "NoModel" {
			h.t.Errorf("failures: %q", got)
		}
		h.equal("rebuilds", len(h.did("rebuild")), 1)
	})

	bubble(t, "OS-E5", func(h *harness) {
		lost := func(ctx context.Context, _ string) error { return activity.SessionLost("still nothing") }
		policy := func(rebuild string) activity.Options {
			return activity.Options{
				Recovery: &activity.SessionRecoveryPolicy{
					RebuildActivity: rebuild, MaxAutoRetries: 1,
				},
			}
		}
		h.uses(func(r *worker.Registry, p *proc) {
			noted := func(item string, next func(context.Context, string) error) func(context.Context, string) error {
				return func(ctx context.Context, x string) error {
					if err := h.work(ctx, p, item, 0); err != nil {
						return err
					}
					return next(ctx, x)
				}
			}
			ok := func(context.Context, string) error { return nil }
			r.Activity("lost rebuild", noted("lost rebuild", lost), policy("rebuild of the rebuild"))
			r.Activity("rebuild of the rebuild", noted("rebuild of the rebuild", ok))
			r.Activity("over a lost rebuild", noted("over a lost rebuild", lost), policy("lost rebuild"))
			r.Activity("good rebuild", noted("good rebuild", ok))
			r.Activity("lost again", noted("lost again", lost), policy("good rebuild"))
			r.Activity("bad rebuild", noted("bad rebuild", func(context.Context, string) error {
				return activity.NewError("Broken", "no")
			}))
			r.Activity("over a bad rebuild", noted("over a bad rebuild", lost), policy("bad rebuild"))
		})
		h.flow("lost", func(ctx workflow.Context) (got []string, err error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return nil, err
			}
			for _, name := range []string{"over a lost rebuild", "lost again", "over a bad rebuild"} {
				var failed *workflow.ActivityError
				if !errors.As(s.Execute(ctx, name, "x").Get(ctx, nil), &failed) {
					return got, fmt.Errorf("%s succeeded", name)
				}
				got = append(got, failed.Type)
			}
			return got, nil
		})
		h.start("A")
		run := h.begin("lost")
		h.equal("failures", output[[]string](h, run), []string{activity.TypeSessionLost, activity.TypeSessionLost, "Broken"})
		for item, n := range map[string]int{
			"lost rebuild": 1, "rebuild of the rebuild": 0, "over a lost rebuild": 1, "good rebuild": 1, "lost again": 2,
			"bad rebuild": 1, "over a bad rebuild": 1,
		} {
			h.equal(item+" ran", len(h.did(item)), n)
		}
		h.equal(
			"what history says of the rebuilds", h.recoveries(run),
			[]string{"lost rebuild: failed after 0", "good rebuild: rebuilt after 1", "bad rebuild: failed after 0"},
		)
	})

	// The activity or its session ends during the rebuild, and the worker sends no report: the app records both as
	// cancelled. The history has the progress of the rebuild that the app received before.
	for _, c := range []struct {
		name    string
		rebuild time.Duration
		end     func(ctx workflow.Context, s *workflow.Session, cancel func()) error
		outcome string
		ends    string
	}{
		{
			"OS-E5-cancelled", time.Minute, func(_ workflow.Context, _ *workflow.Session, cancel func()) error {
				cancel()
				return nil
			},
			"cancelled after 0", "ActivityCancelRequested SessionRecovered ActivityCancelled WorkflowCompleted",
		},
		{
			"OS-E5-session-ended", time.Minute, func(ctx workflow.Context, s *workflow.Session, _ func()) error {
				return s.End(ctx)
			},
			"cancelled after 0", "SessionEnded SessionRecovered ActivityCancelled WorkflowCompleted",
		},
		{
			"OS-E5-cancelled-when-rebuilt", sec, func(_ workflow.Context, _ *workflow.Session, cancel func()) error {
				cancel()
				return nil
			},
			"rebuilt after 1", "ActivityCancelRequested SessionRecovered ActivityCancelled WorkflowCompleted",
		},
	} {
		bubble(t, c.name, func(h *harness) {
			h.warm()
			h.rebuild = c.rebuild
			ending := func(ctx workflow.Context) (string, error) {
				s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
				if err != nil {
					return "", err
				}
				inner, cancel := workflow.WithCancel(ctx)
				f := s.Execute(inner, "use", "item", 60_000)
				if err := workflow.Sleep(ctx, 2*time.Second); err != nil {
					return "", err
				}
				if err := c.end(ctx, s, cancel); err != nil {
					return "", err
				}
				return failureType(f.Get(ctx, nil)), nil
			}
			h.flow("ending", ending)
			h.start("A", attempts(4*sec))
			run := h.begin("ending")
			h.running("load")
			h.equal("outcome", output[string](h, run), "cancelled")
			rebuilt := c.rebuild < 2*sec
			method := map[bool]string{false: "load", true: "item"}[rebuilt]
			h.until("the running activity is cancelled", 10*ms, func() bool { return h.once(method).to > 0 })
			if !rebuilt {
				h.between("the rebuild was told", h.once("load").to, 2*sec, 4*sec+100*ms)
			}
			h.wait(5 * sec)
			h.equal("runs of the activity", len(h.did("item")), map[bool]int{true: 1}[rebuilt])
			h.equal(
				"history", strings.Join(h.types(run), " "),
				"WorkflowStarted SessionStarted ActivityScheduled TimerScheduled TimerFired "+c.ends,
			)
			h.equal("what history says of the rebuild", h.recoveries(run), []string{"load: " + c.outcome})
			h.replays(run, ending)
		})
	}
}

// recoveries returns the rebuilds in a run's history.
func (h *harness) recoveries(run string) (list []string) {
	h.t.Helper()
	for _, e := range h.events(run) {
		if d, ok := e.Data.(*history.SessionRecovered); ok {
			list = append(list, fmt.Sprint(d.Rebuild, ": ", d.Outcome, " after ", d.Retries))
		}
	}
	return list
}
