package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// localRuns counts how often each local step ran, over all workflows of type "local".
type localRuns struct{ first, second, third atomic.Int32 }

// define registers a workflow that runs two local steps, an activity and a third local step.
func (s *localRuns) define(o *worker.Options) {
	count := func(n *atomic.Int32) func(context.Context) (int32, error) {
		return func(context.Context) (int32, error) { return n.Add(1), nil }
	}
	o.Registry.Workflow("local", func(ctx workflow.Context) (string, error) {
		a, err := workflow.Do(ctx, "first", count(&s.first))
		if err != nil {
			return "", err
		}
		b, err := workflow.Do(ctx, "second", count(&s.second), workflow.StepOptions{Durability: workflow.WithTurn})
		if err != nil {
			return "", err
		}
		hello, err := workflow.Execute[string](ctx, "hello", "you")
		if err != nil {
			return "", err
		}
		c, err := workflow.Do(ctx, "third", count(&s.third))
		return fmt.Sprint(a, b, hello, c), err
	})
}

// begin starts a run.
func begin(t *testing.T, a *apptest.App, typ string, args ...any) protocol.Target {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	started, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: typ, Input: raw})
	if err != nil {
		t.Fatal(err)
	}
	return protocol.Target{WorkflowID: started.WorkflowID, RunID: started.RunID}
}

// localEvents returns the names of the local steps in a history, one for each event.
func localEvents(list []history.Event) string {
	var all []string
	for _, e := range list {
		if d, ok := e.Data.(*history.ActivityScheduled); ok && d.ExecutionMode == history.ModeLocal {
			all = append(all, d.ActivityType)
		}
		if _, a := history.EndedAttempt(e.Data); a.ExecutionMode == history.ModeLocal {
			ended := fmt.Sprint("ended ", a.Number)
			if a.StartedAt.IsZero() || a.StartedAt.After(e.At.Time) {
				ended += fmt.Sprint(" without a start before ", e.At)
			}
			all = append(all, ended)
		}
	}
	return strings.Join(all, ", ")
}

const threeSteps = "first, ended 1, second, ended 1, third, ended 1"

// Each local step runs once and is recorded once: over every transport, on both databases, with a sticky cache and with
// a replay for each task.
func TestLocalStepsRunOnce(t *testing.T) {
	for way, carrier := range ways {
		t.Run(way, func(t *testing.T) {
			for _, cache := range []int{0, -1} {
				apptest.Databases(t, func(t *testing.T, database string) {
					a := apptest.Start(t, apptest.Options{Database: database})
					var s localRuns
					start(t, a, carrier(a), func(o *worker.Options) {
						s.define(o)
						o.StickyCache = cache
					})
					run := begin(t, a, "local")
					if got := result[string](t, end(t, a, run.RunID)); got != "1 1hello you1" {
						t.Errorf("with a cache of %d runs the result is %q", cache, got)
					}
					if got := localEvents(events(t, a, run.RunID)); got != threeSteps {
						t.Errorf("with a cache of %d runs the local steps are %s", cache, got)
					}
				})
			}
		})
	}
}

// The first response to each request that records a local step is lost, and a load balancer sends the worker's next
// request to the other app. The worker repeats the request, and the second app recognizes it: each step runs once and
// is recorded once, and the task is not delivered again.
func TestALocalStepIsRecordedOnceAlthoughItsResponseIsLost(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		var proxies []*httputil.ReverseProxy
		for _, app := range []*apptest.App{a, b} {
			to, err := url.Parse(app.URL())
			if err != nil {
				t.Fatal(err)
			}
			proxies = append(proxies, httputil.NewSingleHostReverseProxy(to))
		}
		var lost sync.Map
		var drops atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			proxy := proxies[drops.Load()%2]
			if _, repeated := lost.LoadOrStore(string(body), true); repeated || !bytes.Contains(body, []byte(`"record_from"`)) {
				proxy.ServeHTTP(w, r)
				return
			}
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			drops.Add(1)
			panic(http.ErrAbortHandler) // the app has committed the step; drop the response
		}))
		t.Cleanup(server.Close)
		var s localRuns
		start(t, a, &link.HTTP{URLs: []string{server.URL}}, s.define)
		run := begin(t, a, "local")
		if got := result[string](t, end(t, a, run.RunID)); got != "1 1hello you1" {
			t.Errorf("the result is %q", got)
		}
		if got := localEvents(events(t, a, run.RunID)); got != threeSteps || drops.Load() != 2 {
			t.Errorf("after %d lost responses the local steps are %s", drops.Load(), got)
		}
	})
}

// If a run is terminated at another app while its local step runs, the context of the step ends and the step is not
// recorded. Meanwhile the worker continues to run other runs, including runs that it has to replay.
func TestALocalStepEndsWithItsRun(t *testing.T) {
	for way, carrier := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			apptest.Databases(t, func(t *testing.T, database string) {
				t.Parallel()
				a, b := apptest.Two(t, apptest.Options{Database: database})
				var s localRuns
				var running, ended atomic.Int32
				start(t, a, carrier(a), func(o *worker.Options) {
					s.define(o)
					o.StickyCache = -1
					o.Registry.Workflow("blocks", func(ctx workflow.Context) (int, error) {
						return workflow.Do(ctx, "block", func(ctx context.Context) (int, error) {
							running.Add(1)
							<-ctx.Done()
							ended.Add(1)
							return 0, ctx.Err()
						}, workflow.StepOptions{StartToClose: 5 * time.Minute})
					})
				})
				var blocked []protocol.Target
				for range 20 { // more runs than a worker replays concurrently
					blocked = append(blocked, begin(t, a, "blocks"))
				}
				eventually(t, "all steps run", func() bool { return int(running.Load()) == len(blocked) })
				if got := result[string](t, end(t, a, begin(t, a, "local").RunID)); got != "1 1hello you1" {
					t.Errorf("the result of a bystander is %q", got)
				}
				for _, run := range blocked {
					order := protocol.EndRequest{Target: run}
					if _, err := b.Broker().Terminate(t.Context(), order); err != nil {
						t.Fatal(err)
					}
				}
				eventually(t, "the steps end", func() bool { return int(ended.Load()) == len(blocked) })
				for _, run := range blocked {
					if got := localEvents(events(t, a, run.RunID)); got != "" {
						t.Errorf("a terminated run has the local steps %s", got)
					}
				}
			})
		})
	}
}

// mixed registers a workflow that continues as new twice. Its three runs combine local steps with signals, an activity,
// a session, a timer, a child, an update and a cancelled branch. Its result is the number of signals that its runs
// received.
func (s *localRuns) mixed(runs *sync.Map) func(*worker.Options) {
	step := func(ctx workflow.Context, name string, d workflow.Durability) error {
		key := workflow.Info(ctx).RunID + " " + name
		_, err := workflow.Do(ctx, name, func(context.Context) (int, error) {
			n, _ := runs.LoadOrStore(key, &atomic.Int32{})
			n.(*atomic.Int32).Add(1)
			return 0, nil
		}, workflow.StepOptions{Durability: d})
		return err
	}
	return func(o *worker.Options) {
		o.Registry.Workflow("leaf", func(ctx workflow.Context) (string, error) {
			return "leaf", step(ctx, "leaf", workflow.EachStep)
		})
		o.Registry.Workflow("mixed", func(ctx workflow.Context, run, signals int) (int, error) {
			workflow.HandleUpdate(ctx, "add", func(ctx workflow.Context, n int) (int, error) {
				return n + 1, step(ctx, fmt.Sprint("update ", n), workflow.EachStep)
			})
			// this command is recorded together with the first local step
			hello := workflow.ExecuteActivity(ctx, "hello", "you")
			cancelled, cancel := workflow.WithCancel(ctx)
			late := workflow.NewTimer(cancelled, time.Hour)
			if err := step(ctx, "first", workflow.EachStep); err != nil {
				return 0, err
			}
			cancel()
			leaf := workflow.StartChild(ctx, "leaf")
			timer := workflow.NewTimer(ctx, 100*time.Millisecond)
			if err := step(ctx, "second", workflow.EachStep); err != nil {
				return 0, err
			}
			received := func() error {
				for {
					ok, err := workflow.Signal(ctx, "more").ReceiveAsync()
					if !ok || err != nil {
						return err
					}
					signals++
				}
			}
			if err := errors.Join(received(), hello.Get(ctx, nil), leaf.Get(ctx, nil), timer.Get(ctx, nil)); err != nil {
				return 0, err
			}
			if err := late.Get(ctx, nil); !errors.Is(err, workflow.ErrCancelled) {
				return 0, fmt.Errorf("timer of the cancelled branch: %w", err)
			}
			if err := step(ctx, "third", workflow.WithTurn); err != nil {
				return 0, err
			}
			var text string
			err := workflow.ExecuteActivity(workflow.InSession(ctx, "s-"+workflow.Info(ctx).WorkflowID), "hello", "you").
				Get(ctx, &text)
			if err != nil {
				return 0, err
			}
			if err := step(ctx, "fourth", workflow.EachStep); err != nil {
				return 0, err
			}
			if run < 3 {
				return 0, workflow.ContinueAsNew(ctx, run+1, signals)
			}
			for signals < allSignals {
				if err := workflow.Signal(ctx, "more").Receive(ctx); err != nil {
					return 0, err
				}
				signals++
				if err := step(ctx, fmt.Sprint("signal ", signals), workflow.EachStep); err != nil {
					return 0, err
				}
			}
			return signals, nil
		})
	}
}

// allSignals is the number of signals that the runs of one workflow of mixed receive together.
const allSignals = 12

// Two workers at two apps run workflows that combine local steps with all other commands, while signals and updates
// arrive. Each step of each run runs once, continue-as-new loses no signal, and each history replays.
func TestLocalStepsNextToEverythingElse(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		var s localRuns
		var ran sync.Map
		var registry *worker.Registry
		for i, app := range []*apptest.App{a, b} {
			start(t, app, &link.Socket{URLs: []string{app.URL()}}, func(o *worker.Options) {
				o.WorkerID, o.StickyCache = fmt.Sprint("w", i), -i // w1 replays its runs for every task
				s.mixed(&ran)(o)
				registry = o.Registry
			})
		}
		var targets []protocol.Target
		for range 4 {
			started, err := a.Broker().Start(t.Context(), protocol.StartRequest{
				WorkflowType: "mixed", Input: []byte(`[1,0]`),
			})
			if err != nil {
				t.Fatal(err)
			}
			targets = append(targets, protocol.Target{WorkflowID: started.WorkflowID})
		}
		for i := range allSignals {
			for _, target := range targets {
				at := a
				if i%2 == 1 {
					at = b
				}
				if i%4 == 0 {
					u, err := at.Broker().Update(t.Context(), protocol.UpdateRequest{
						Target: target, UpdateName: "add", Input: fmt.Appendf(nil, "[%d]", i), WaitFor: "completed",
					})
					if err != nil || string(u.Result) != fmt.Sprint(i+1) {
						t.Fatalf("update %d: %s, %v", i, u.Result, err)
					}
				}
				if _, err := at.Broker().Signal(t.Context(), protocol.SignalRequest{
					Target: target, SignalName: "more",
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, target := range targets {
			v, err := a.View().Result(t.Context(), target, ceiling, false)
			if err != nil || v.Status != "completed" || string(v.Output) != fmt.Sprint(allSignals) {
				t.Errorf("the run ended as %s with %s %s: %v", v.Status, v.Output, v.Reason, err)
			}
			runs, err := a.View().Runs(t.Context(), target)
			if err != nil || len(runs) != 3 {
				t.Fatalf("%d runs: %v", len(runs), err)
			}
			def, _ := registry.FindWorkflow("mixed")
			for _, run := range runs {
				if err := replay.Events(def, replay.Options{Names: registry}, events(t, a, run.RunID)); err != nil {
					t.Error(err)
				}
			}
		}
		n := 0
		ran.Range(func(key, count any) bool {
			n++
			if got := count.(*atomic.Int32).Load(); got != 1 {
				t.Errorf("step %s ran %d times", key, got)
			}
			return true
		})
		if least := len(targets) * 3 * 5; n < least { // each of the three runs has four steps and a child
			t.Errorf("%d steps ran, want %d at least", n, least)
		}
	})
}
