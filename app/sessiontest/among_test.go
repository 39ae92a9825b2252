package sessiontest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Explicit sessions in runs with other sessions, timers and signals, and with workers that do not support sessions.
func TestExplicitSessionsAmongOthers(t *testing.T) {
	bubble(t, "OS-E6", func(h *harness) {
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
			h.between(
				"the attached session went on", h.once(fmt.Sprintf("x-%d", i)).from-began, time.Duration(i)*200*ms,
				time.Duration(i)*200*ms+300*ms,
			)
		}
		for _, r := range h.did() {
			if r.attempt != 1 {
				h.t.Errorf("%s had attempt %d", r.what, r.attempt)
			}
		}
	})

	for _, recovery := range []bool{false, true} {
		bubble(t, map[bool]string{false: "OS-E7", true: "OS-E7-recovered"}[recovery], func(h *harness) {
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
				workflow.Go(ctx, func(ctx workflow.Context) { // this branch continues with a timer
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
			h.equal("history but for recoveries", strings.Join(
				types, " ",
			), "WorkflowStarted SessionStarted ActivityScheduled ActivityCompleted"+
				strings.Repeat(" ActivityScheduled", 6)+strings.Repeat(
				" ActivityCompleted", 6,
			)+" SignalWaitOpened SignalReceived SignalApplied ActivityScheduled "+
				"ActivityCompleted ActivityScheduled TimerScheduled "+
				"TimerScheduled TimerFired ActivityScheduled ActivityCompleted TimerFired ActivityCancelRequested ActivityCancelled ActivityScheduled "+
				"ActivityCompleted SessionEnded WorkflowCompleted")
			h.replays(run, mixed)
		})
	}

	bubble(t, "OS-E8", func(h *harness) {
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

	// A session of a workflow has no idle time: it exists as long as its worker lives.
	bubble(t, "OS-idle", func(h *harness) {
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

// A session with options ends when its TTL has passed. Without a TTL, by the zero value or by NoTTL, it is still usable
// after hours.
func TestASessionWithoutATTLOutlivesItsFirstHour(t *testing.T) {
	bubble(t, "device", func(h *harness) {
		h.flow("print", func(ctx workflow.Context, device, item string, ttl time.Duration) (string, error) {
			ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
				StartToClose: time.Minute, WorkerSession: &workflow.WorkerSession{
					ID: device, Lease: 30 * time.Second, TTL: ttl, MaxActivities: 1,
				},
			})
			return workflow.Execute[string](ctx, "work", item, 10)
		})
		h.start("A", byDefault)
		for n, wait := range []time.Duration{0, 29 * time.Minute, 2 * time.Minute, time.Hour, 3 * time.Hour} {
			h.wait(wait)
			item := fmt.Sprint("page-", n)
			h.equal(item, output[string](h, h.begin("print", "endless", item, workflow.NoTTL)), "A")
			h.equal("plain "+item, output[string](h, h.begin("print", "plain", "plain-"+item, time.Duration(0))), "A")
			if n < 2 {
				h.equal("timed "+item, output[string](h, h.begin("print", "timed", "timed-"+item, 30*time.Minute)), "A")
			}
		}
		if s, ok := h.row("endless"); !ok || s.Status != protocol.SessionActive {
			h.t.Errorf("the session is %+v", s)
		}
		if s, ok := h.row("plain"); !ok || s.Status != protocol.SessionActive || s.TTL != 0 {
			h.t.Errorf("the session with the zero value is %+v", s)
		}
		if s, ok := h.row("timed"); ok && s.Status == protocol.SessionActive {
			h.t.Errorf("the session that has a TTL is %+v", s)
		}
	})
}
