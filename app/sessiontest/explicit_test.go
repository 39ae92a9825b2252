package sessiontest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// warm are the activities of a session with state: "load" makes it, "use" needs it and has it rebuilt by "load", "bare" needs it and hands its loss on.
func (h *house) warm() {
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
			OnError: activity.Lost, RebuildActivity: "load", MaxAutoRetries: 1, SingleflightPerSession: true,
		}})
	})
}

// failureType names what became of an activity for the tests: the errors of the authoring package.
func failureType(err error) string {
	for name, known := range map[string]error{
		"closed": workflow.ErrSessionClosed, "missing": workflow.ErrSessionMissing, "lost": workflow.ErrSessionLost, "cancelled": workflow.ErrCancelled,
	} {
		if errors.Is(err, known) {
			return name
		}
	}
	return fmt.Sprint(err)
}

// replays checks that the code agrees with every prefix of a run's history.
func (h *house) replays(run string, fn any) {
	h.t.Helper()
	def, err := workflow.NewDefinition("x", fn)
	if err != nil {
		h.t.Fatal(err)
	}
	events := h.events(run)
	for n := 1; n <= len(events); n++ {
		if err := workflow.Replay(def, workflow.Options{}, events[:n]); err != nil {
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

// Sessions a workflow starts and ends.
func TestExplicitSessions(t *testing.T) {
	bubble(t, "OS-E1", func(h *house) {
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
				s.Execute(ctx, "bare", "late", 2000) // nobody waits for it
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

	bubble(t, "OS-E1-foreign", func(h *house) {
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

	bubble(t, "OS-E2", func(h *house) {
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
			got := []string{failureType(a.Get(ctx, nil)), failureType(b.Get(ctx, nil)), failureType(s.Execute(ctx, "work", "c", 1).Get(ctx, nil))}
			if err := s.End(ctx); err != nil { // again
				return nil, err
			}
			return got, workflow.Sleep(ctx, 10*time.Second)
		}
		h.flow("ending", ending)
		h.uses(func(r *worker.Registry, p *proc) {
			r.Activity("deaf", func(ctx context.Context, item string, millis int) (string, error) { // hears of no cancellation
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

	bubble(t, "OS-E2-refused", func(h *house) {
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
		if err := decide(0, protocol.Command{Type: protocol.StartSession}, protocol.Command{Type: protocol.StartTimer, Delay: 1}); err != nil {
			h.t.Fatal(err)
		}
		before := len(h.events(run)) + 1 // and the timer fires
		if err := decide(-1, protocol.Command{Type: protocol.EndSession, SessionID: id}); protocol.ReasonOf(err) == "" {
			h.t.Errorf("a stale decision: %v", err)
		}
		h.equal("events", len(h.events(run)), before)
		s, _ := h.row(id)
		h.equal("row", fmt.Sprintf("%s %t", s.Status, s.Terminal), "active false")
	})

	// The end of a session races with a result: whichever is stored first stands, and there is one outcome.
	bubble(t, "OS-E2-race", func(h *house) {
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

	bubble(t, "OS-E3", func(h *house) {
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
		h.equal("history", strings.Join(types, " "), "WorkflowStarted SessionStarted ActivityScheduled ActivityCompleted ActivityScheduled ActivityCompleted "+
			"SignalWaitOpened SignalReceived SignalApplied ActivityScheduled SessionRecovered ActivityCompleted WorkflowCompleted")
		h.replays(run, recovering)
	})

	bubble(t, "OS-E3-in-flight", func(h *house) {
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
		// A lives on without a way to the app: it holds on to what it has, and B takes over when the leases end.
		a.sever()
		lost := h.at()
		h.until("B rebuilds", 10*ms, func() bool { return len(h.did("load")) == 2 })
		rebuild := h.did("load")[1]
		h.between("B rebuilds", rebuild.from, lost+sec, lost+2*sec+500*ms)
		b.kill() // in the middle of it
		h.start("C", with)
		a.rejoin()
		result, _ := payload.Encode("A, too late")
		out, err := h.Complete(h.t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{{
			Kind: protocol.KindActivity, TaskID: item.id[:strings.LastIndex(item.id, "-")], Owner: "A", AttemptID: item.id, Result: result,
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

	// The session went to B while A's attempt still had its lease: A's result is refused all the same, and the item goes to B at once.
	bubble(t, "OS-E3-superseded", func(h *house) {
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

	bubble(t, "OS-E4", func(h *house) {
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
	bubble(t, "OS-E4-parallel", func(h *house) {
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

	bubble(t, "OS-E4-failing", func(h *house) {
		h.uses(func(r *worker.Registry, p *proc) {
			r.Activity("rebuild", func(ctx context.Context, _ string) error {
				if err := h.work(ctx, p, "rebuild", sec); err != nil {
					return err
				}
				return activity.NewError("NoModel", "the model is gone")
			})
			r.Activity("cold", func(ctx context.Context, _ string) (string, error) { return activity.Get[string](ctx, "model") },
				activity.Options{Recovery: &activity.SessionRecoveryPolicy{RebuildActivity: "rebuild", SingleflightPerSession: true}})
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

	bubble(t, "OS-E5", func(h *house) {
		lost := func(ctx context.Context, _ string) error { return activity.SessionLost("still nothing") }
		policy := func(rebuild string) activity.Options {
			return activity.Options{Recovery: &activity.SessionRecoveryPolicy{RebuildActivity: rebuild, MaxAutoRetries: 1, SingleflightPerSession: true}}
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
			r.Activity("bad rebuild", noted("bad rebuild", func(context.Context, string) error { return activity.NewError("Broken", "no") }))
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
		h.equal("failures", output[[]string](h, h.begin("lost")), []string{activity.TypeSessionLost, activity.TypeSessionLost, "Broken"})
		for item, n := range map[string]int{
			"lost rebuild": 1, "rebuild of the rebuild": 0, "over a lost rebuild": 1, "good rebuild": 1, "lost again": 2, "bad rebuild": 1, "over a bad rebuild": 1,
		} {
			h.equal(item+" ran", len(h.did(item)), n)
		}
	})

	// Cancelled while it rebuilds: the rebuild is told, and so is the activity.
	bubble(t, "OS-E5-cancelled", func(h *house) {
		h.warm()
		h.flow("cancelling", func(ctx workflow.Context) (string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return "", err
			}
			inner, cancel := workflow.WithCancel(ctx)
			f := s.Execute(inner, "use", "item", 60_000) // its rebuild takes as long
			if err := workflow.Sleep(ctx, 2*time.Second); err != nil {
				return "", err
			}
			cancel()
			return failureType(f.Get(ctx, nil)), nil
		})
		h.start("A", attempts(4*sec))
		run := h.begin("cancelling")
		h.running("load")
		h.equal("outcome", output[string](h, run), "cancelled")
		h.until("the rebuild is told", 10*ms, func() bool { return h.once("load").to > 0 })
		h.between("the rebuild was told", h.once("load").to, 2*sec, 4*sec+100*ms)
		h.wait(5 * sec)
		h.equal("runs of the activity", len(h.did("item")), 0)
	})

	bubble(t, "OS-E6", func(h *house) {
		h.flow("start", func(ctx workflow.Context, name string, long, rounds int) ([]string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return nil, err
			}
			if _, err := workflow.Await[string](ctx, s.Execute(ctx, "work", name+"-first", 10)); err != nil {
				return nil, err
			}
			if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
				return nil, err
			}
			var got []string
			for i := range rounds {
				w, err := workflow.Await[string](ctx, s.Execute(ctx, "work", fmt.Sprintf("%s-%d", name, i), long))
				if err != nil {
					return nil, err
				}
				got = append(got, w)
			}
			return got, s.End(ctx)
		})
		h.flow("one", one)
		h.start("A", most(2), slots(3))
		x, y := h.begin("start", "x", 200, 10), h.begin("start", "y", 200, 10)
		h.done("x-first")
		h.done("y-first")
		var fresh, plain []string
		for i := range 3 {
			fresh = append(fresh, h.begin("start", fmt.Sprint("new", i), 100, 2))
		}
		for i := range 6 {
			plain = append(plain, h.begin("one", "", fmt.Sprint("plain", i), 100))
		}
		h.signal(x, "go")
		h.signal(y, "go")
		began := h.at()
		h.wait(sec)
		h.equal("new sessions on A alone", len(h.did("new0-first", "new1-first", "new2-first")), 0)
		h.equal("plain items done", len(h.did("plain0", "plain1", "plain2", "plain3", "plain4", "plain5")), 6)
		h.start("B", most(1), slots(2))
		for range 100 {
			h.wait(50 * ms)
			held := map[string]int{}
			for _, s := range h.held() {
				held[s]++
			}
			if held["A"] > 2 || held["B"] > 1 {
				h.t.Fatalf("at %s they hold %v", h.at(), held)
			}
		}
		for _, run := range fresh {
			h.signal(run, "go")
		}
		for _, run := range []string{x, y} {
			if got := output[[]string](h, run); len(got) != 10 || len(slices.Compact(got)) != 1 {
				h.t.Errorf("ran on %q", got)
			}
		}
		for _, run := range append(fresh, plain...) {
			h.finish(run)
		}
		for i := range 10 { // attached sessions never wait for the cap
			h.between("the attached session went on", h.once(fmt.Sprintf("x-%d", i)).from-began, time.Duration(i)*200*ms, time.Duration(i)*200*ms+300*ms)
		}
		for _, r := range h.did() {
			if r.attempt != 1 {
				h.t.Errorf("%s had attempt %d", r.what, r.attempt)
			}
		}
	})

	for _, recovery := range []bool{false, true} {
		bubble(t, map[bool]string{false: "OS-E7", true: "OS-E7-recovered"}[recovery], func(h *house) {
			h.warm()
			h.rebuild = 100 * ms
			mixed := func(ctx workflow.Context) (got []string, err error) {
				s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
				if err != nil {
					return nil, err
				}
				if err := s.Execute(ctx, "load", "load", 10).Get(ctx, nil); err != nil {
					return nil, err
				}
				got = append(got, "loaded")
				var all []workflow.Future
				for i := range 6 {
					all = append(all, s.Execute(ctx, "use", fmt.Sprint("join", i), 100+i*10))
				}
				if err := workflow.Join(ctx, all...); err != nil {
					return nil, err
				}
				if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
					return nil, err
				}
				if err := s.Execute(ctx, "use", "probe", 10).Get(ctx, nil); err != nil {
					return nil, err
				}
				workflow.Go(ctx, func(ctx workflow.Context) { // driven by a timer
					if workflow.Sleep(ctx, sec) == nil {
						if s.Execute(ctx, "use", "timed", 10).Get(ctx, nil) == nil {
							got = append(got, "timed")
						}
					}
				})
				inner, cancel := workflow.WithCancel(ctx)
				loser := s.Execute(inner, "use", "loser", 60_000)
				won, err := workflow.Select(ctx, loser, workflow.NewTimer(ctx, 3*time.Second))
				if err != nil {
					return nil, err
				}
				cancel()
				got = append(got, fmt.Sprint("won ", won), failureType(loser.Get(ctx, nil)))
				if err := s.Execute(ctx, "use", "last", 10).Get(ctx, nil); err != nil {
					return nil, err
				}
				return append(got, "done"), s.End(ctx)
			}
			h.flow("mixed", mixed)
			with := func(o *worker.Options) { lock(2*sec, 0)(o); attempts(2 * sec)(o); slots(10)(o) }
			a := h.start("A", with)
			run := h.begin("mixed")
			for i := range 6 {
				h.done(fmt.Sprint("join", i))
			}
			h.wait(100 * ms)
			if recovery {
				a.kill()
				h.start("B", with)
				h.wait(3 * sec)
			}
			h.signal(run, "go")
			h.equal("output", output[[]string](h, run), []string{"loaded", "timed", "won 1", "cancelled", "done"})
			types := h.types(run)
			if n := count(types, "SessionRecovered"); (n > 0) != recovery {
				h.t.Errorf("%d recoveries", n)
			}
			types = slices.DeleteFunc(types, func(t string) bool { return t == "SessionRecovered" })
			h.equal("history but for recoveries", strings.Join(types, " "), "WorkflowStarted SessionStarted ActivityScheduled ActivityCompleted"+
				strings.Repeat(" ActivityScheduled", 6)+strings.Repeat(" ActivityCompleted", 6)+" SignalWaitOpened SignalReceived SignalApplied ActivityScheduled ActivityCompleted ActivityScheduled TimerScheduled "+
				"TimerScheduled TimerFired ActivityScheduled ActivityCompleted TimerFired ActivityCancelRequested ActivityCancelled ActivityScheduled "+
				"ActivityCompleted SessionEnded WorkflowCompleted")
			h.replays(run, mixed)
		})
	}

	bubble(t, "OS-E8", func(h *house) {
		h.warm()
		h.flow("bound", func(ctx workflow.Context) (string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return "", err
			}
			if err := s.Execute(ctx, "load", "load", 10).Get(ctx, nil); err != nil {
				return "", err
			}
			return workflow.Await[string](ctx, s.Execute(ctx, "use", "used", 10))
		})
		h.flow("one", one)
		older := h.start("older", func(o *worker.Options) { o.Release = "before" })
		o := h.start("O", most(0), slots(1))
		run := h.begin("bound")
		h.equal("plain work", output[string](h, h.begin("one", "", "plain", 10)), "O")
		h.wait(10 * time.Minute)
		h.equal("bound items run", len(h.did("load")), 0)
		h.start("N", slots(1))
		h.equal("result", output[string](h, run), "N")
		h.equal("attempt", h.once("load").attempt, 1)
		var runs []string
		for i := range 6 {
			runs = append(runs, h.begin("one", "", fmt.Sprint("shared", i), 500))
		}
		for _, run := range runs {
			output[string](h, run)
		}
		h.equal("workers of plain items", distinct(h.inSession("")), []string{"N", "O"})
		o.stop()
		older.stop()
		h.equal("after they left", output[string](h, h.begin("bound")), "N")
		for _, r := range h.did() {
			if r.worker == "older" || r.worker == "O" && r.session.ID != "" {
				h.t.Errorf("it ran %+v", r)
			}
		}
	})

	// A session of a workflow knows no idle time: it stays as long as its worker lives.
	bubble(t, "OS-idle", func(h *house) {
		h.warm()
		h.flow("rests", func(ctx workflow.Context) (string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return "", err
			}
			if err := s.Execute(ctx, "load", "load", 10).Get(ctx, nil); err != nil {
				return "", err
			}
			if err := workflow.Sleep(ctx, 10*time.Minute); err != nil {
				return "", err
			}
			return workflow.Await[string](ctx, s.Execute(ctx, "bare", "after", 10))
		})
		h.start("A", lock(10*sec, 12*sec))
		run := h.begin("rests")
		h.done("load")
		h.start("B", lock(10*sec, 12*sec))
		h.equal("state", output[string](h, run), "A")
		h.equal("epochs", h.once("after").session.Epoch, h.once("load").session.Epoch)
	})
}
