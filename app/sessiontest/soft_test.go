package sessiontest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A session with soft affinity waits for its owner only for the fallback time. The worker that acquires it then reports
// the state as lost, as after any loss.
func TestSoftAffinity(t *testing.T) {
	// steps runs "first", waits for the signal and runs "second", both in the session s with soft affinity and this
	// fallback time.
	steps := func(fallback time.Duration) func(workflow.Context) ([]string, error) {
		return func(ctx workflow.Context) (by []string, err error) {
			ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{Session: "s", SessionFallback: fallback})
			for _, item := range []string{"first", "second"} {
				name, err := workflow.Execute[string](ctx, "use", item, 10)
				if err != nil {
					return by, err
				}
				if by = append(by, name); item == "first" {
					if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
						return by, err
					}
				}
			}
			return by, nil
		}
	}
	// big gives worker A a capability; fill schedules an activity that takes a minute and requires it.
	big := func(o *worker.Options) { o.Capabilities = []string{"big"} }
	fill := func(ctx workflow.Context, item string) workflow.Future {
		return begin(workflow.WithActivity(ctx, workflow.ActivityOptions{Requirements: []string{"big"}}), "", item, 60_000)
	}
	// filled starts A, makes it acquire s, and fills its slots for a minute with other activities; then B starts.
	filled := func(h *harness, fallback time.Duration) (a *proc, run string) {
		h.warm()
		h.flow("steps", steps(fallback))
		h.flow("fill", func(ctx workflow.Context) error {
			return workflow.Join(ctx, fill(ctx, "fill1"), fill(ctx, "fill2"))
		})
		a = h.start("A", slots(2), big)
		run = h.begin("steps")
		h.until("the first is done", 5*ms, func() bool { return len(h.did("first")) == 1 })
		h.begin("fill")
		h.running("fill2")
		h.start("B", slots(2))
		h.wait(sec)
		return a, run
	}

	bubble(t, "full", func(h *harness) {
		_, run := filled(h, 5*sec)
		before, _ := h.row("s")
		h.signal(run, "go")
		asked := h.at()
		h.wait(2 * sec)
		v, err := h.Describe(h.t.Context(), protocol.Target{RunID: run})
		if err != nil {
			h.t.Fatal(err)
		}
		from := h.began.Add(asked + 5*sec).UTC().Format(time.RFC3339)
		if why := v.Pending.Activities[0].Why; why != "session s is held by worker A, which is busy or not polling; any worker may acquire the session from "+from {
			h.t.Errorf("it waits %q, want the time %s", why, from)
		}
		h.equal("by", output[[]string](h, run), []string{"A", "B"})
		h.near("the second", h.once("second").from-asked, 5*sec, 100*ms)
		after, _ := h.row("s")
		if after.Owner != "B" || after.Epoch <= before.Epoch {
			h.t.Errorf("s is owned by %s under epoch %d, before it was %d", after.Owner, after.Epoch, before.Epoch)
		}
		// The first use of the session also counts as a rebuild.
		h.equal("rebuilds in history", count(h.types(run), "SessionRecovered"), 2)
		h.equal("timeline", h.timeline("s"), []string{"claimed", "released", "reclaimed"})
		claim := h.entries("s")[2]
		if h.entries("s")[1].Why != "fallback" ||
			!strings.HasPrefix(claim.Why, "fallback: a task waited for worker A since ") {
			h.t.Errorf("the timeline says %+v", h.entries("s"))
		}
	})
	bubble(t, "hard", func(h *harness) {
		_, run := filled(h, 0)
		h.signal(run, "go")
		h.equal("by", output[[]string](h, run), []string{"A", "A"})
		h.equal("timeline", h.timeline("s"), []string{"claimed"})
		if at := h.once("second").from; at < min(h.once("fill1").to, h.once("fill2").to) {
			h.t.Errorf("the second ran at %s, before there was room", at)
		}
	})
	bubble(t, "gone", func(h *harness) {
		a, run := filled(h, 5*sec)
		a.kill()
		h.signal(run, "go")
		asked := h.at()
		h.equal("by", output[[]string](h, run), []string{"A", "B"})
		h.near("the second", h.once("second").from-asked, 5*sec, 100*ms)
	})
	bubble(t, "draining", func(h *harness) {
		a, run := filled(h, 3*sec)
		drained := make(chan struct{})
		// The drain waits for the running tasks, and A holds the session until they end.
		go func() { a.stop(); close(drained) }()
		h.wait(sec)
		h.signal(run, "go")
		asked := h.at()
		h.equal("by", output[[]string](h, run), []string{"A", "B"})
		h.near("the second", h.once("second").from-asked, 3*sec, 100*ms)
		<-drained
		h.equal("owner", h.owner("s"), "B")
	})
	bubble(t, "of a workflow, nothing that runs is thrown away", func(h *harness) {
		h.warm()
		h.flow("steps", func(ctx workflow.Context) (by []string, err error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{Fallback: 5 * sec})
			if err != nil {
				return nil, err
			}
			if err := s.Execute(ctx, "load", "load", 10).Get(ctx, nil); err != nil {
				return nil, err
			}
			before, long := fill(ctx, "before"), s.Execute(ctx, "use", "long", 20_000)
			if err := workflow.Signal(ctx, "full").Receive(ctx, nil); err != nil {
				return nil, err
			}
			behind, short := fill(ctx, "behind"), s.Execute(ctx, "use", "short", 10)
			for _, f := range []workflow.Future{long, short} {
				name, err := workflow.Await[string](ctx, f)
				if err != nil {
					return by, err
				}
				by = append(by, name)
			}
			return by, workflow.Join(ctx, before, behind)
		})
		h.start("A", slots(2), big)
		run := h.begin("steps")
		h.running("before")
		h.running("long")
		h.signal(run, "full")
		h.start("B", slots(2))
		h.equal("by", output[[]string](h, run), []string{"A", "B"})
		h.near("the short one", h.once("short").from-h.once("long").to, 5*sec, 100*ms)
	})
}

// The time since which a task waits is stored, so the end of an app does not restart the fallback time.
func TestSoftAffinityOutlivesTheApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := apptest.SQLite(t)
		steps := func(w *script, list string) {
			w.pass = func(d time.Duration) { time.Sleep(d); synctest.Wait() }
			for _, w.line = range strings.Split(list, "; ") {
				w.step(strings.Fields(w.line))
			}
		}
		first := newScript(t, serverOptions{Database: database}, "default", 1)
		steps(first, "worker A; worker B; schedule 1:s 2:s soft=10s; A fetches 1; wait 6s")
		first.close()
		second := newScript(t, serverOptions{Database: database}, "default", 1)
		steps(second, "worker A; worker B; wait 2s; B fetches nothing; wait 3s")
		second.top = first.top
		steps(second, "B fetches 2; row s owner=B")
		second.tasks["1"] = first.tasks["1"]
		steps(second, "A completes 1; row s owner=B active=1")
	})
}

// The worker that takes over may be connected to another app than the owner.
func TestSoftAffinityAcrossApps(t *testing.T) {
	database := apptest.Postgres(t)
	first := newScript(t, serverOptions{Database: database}, "default", 1)
	second := open(t, serverOptions{Database: database})
	for _, first.line = range []string{"worker A", "schedule 1:s 2:s soft=1s", "A fetches 1"} {
		first.step(strings.Fields(first.line))
	}
	if _, err := second.Register(t.Context(), protocol.RegisterRequest{
		WorkerID: "B", Incarnation: "B-1", TaskQueue: "default", AnyActivity: true,
		Capabilities: []string{broker.CapSessions},
	}); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(30 * time.Second); ; {
		a, err := second.Poll(
			t.Context(), protocol.PollRequest{WorkerID: "B", Kinds: []protocol.TaskKind{protocol.KindActivity}, Max: 1},
		)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Tasks) == 1 {
			if got := a.Tasks[0].Activity; got.ActivityType != "2" || got.Session.LeaseOwner != "B" {
				t.Errorf("B got %+v", got)
			}
			break
		}
		if time.Now().After(late) {
			t.Fatal("B got nothing")
		}
	}
	for _, first.line = range []string{
		"A heartbeats s refused=session_owner_mismatch", "A completes 1", "row s owner=B active=1",
	} {
		first.step(strings.Fields(first.line))
	}
}

// Contradictory options of soft affinity are rejected by the call that sets them, and have no effect.
func TestSoftAffinityIsCheckedWhereItIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScript(t, serverOptions{}, "default", 1)
		w.pass = time.Sleep
		w.worker("A", nil)
		no := false
		for _, c := range []struct {
			what, member string
			options      protocol.SessionOptions
		}{
			{"no such affinity", "affinity", protocol.SessionOptions{Affinity: "warm"}},
			{"a fallback of a hard one", "fallback_after_seconds", protocol.SessionOptions{Affinity: "hard", FallbackAfter: 5}},
			{"a fallback alone", "fallback_after_seconds", protocol.SessionOptions{FallbackAfter: 5}},
			{"before it began", "fallback_after_seconds", protocol.SessionOptions{Affinity: "soft", FallbackAfter: -1}},
			{"for ever", "fallback_after_seconds", protocol.SessionOptions{Affinity: "soft", FallbackAfter: 1 << 40}},
			{"never to be acquired again", "affinity", protocol.SessionOptions{Affinity: "soft", Reacquire: &no}},
		} {
			o := c.options
			o.SessionID = "s"
			_, err := w.CreateSession(t.Context(), protocol.SessionCreate{WorkerID: "A", SessionOptions: o})
			refusals := []error{err}
			commands := []protocol.Command{{Type: protocol.ScheduleActivity, ActivityType: "x", WorkerSession: &o}}
			if o.Reacquire == nil {
				commands = append(commands, protocol.Command{Type: protocol.StartSession, WorkerSession: &o}, protocol.Command{
					Type: protocol.ScheduleActivity, ActivityType: "x", SessionID: "s", Affinity: o.Affinity,
					FallbackAfter: o.FallbackAfter,
				})
			}
			for _, command := range commands {
				w.runs++
				if _, err := w.Start(t.Context(), protocol.StartRequest{
					WorkflowID: fmt.Sprint("w", w.runs), WorkflowType: "wf",
				}); err != nil {
					t.Fatal(err)
				}
				task := w.poll("flow", protocol.KindWorkflow, 1)[0].Workflow
				refusals = append(refusals, w.complete(protocol.CompleteItem{
					Kind: protocol.KindWorkflow, TaskID: task.TaskID, Owner: task.LeaseOwner, Attempt: task.Attempt,
					Commands: []protocol.Command{command},
				}).Err)
			}
			for i, err := range refusals {
				if !slices.Contains([]protocol.Reason{
					protocol.ReasonValidation, protocol.ReasonInvalidCommands,
				}, protocol.ReasonOf(err)) ||
					!strings.Contains(fmt.Sprint(err), c.member) {
					t.Errorf("%s, by way %d: %v, want a refusal of %s", c.what, i, err, c.member)
				}
			}
		}
		if rows := w.rows(); len(rows) != 0 {
			t.Errorf("refused requests left %d sessions", len(rows))
		}
	})
}
