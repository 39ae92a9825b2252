package worker_test

import (
	"bytes"
	"context"
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
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// localRuns counts the runs of the local steps of all workflows of the type local.
type localRuns struct{ first, second, third atomic.Int32 }

// define registers a workflow that passes two local steps, an activity and a local step.
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
func begin(t *testing.T, a *apptest.App, typ string) protocol.Target {
	t.Helper()
	started, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: typ})
	if err != nil {
		t.Fatal(err)
	}
	return protocol.Target{WorkflowID: started.WorkflowID, RunID: started.RunID}
}

// localEvents returns the types of the local steps in a history, once for each event.
func localEvents(list []history.Event) string {
	var all []string
	for _, e := range list {
		if d, ok := e.Data.(*history.ActivityScheduled); ok && d.ExecutionMode == history.ModeLocal {
			all = append(all, d.ActivityType)
		}
		if _, a := history.EndedAttempt(e.Data); a.ExecutionMode == history.ModeLocal {
			all = append(all, fmt.Sprint("ended ", a.Number))
		}
	}
	return strings.Join(all, ", ")
}

const threeSteps = "first, ended 1, second, ended 1, third, ended 1"

// Local steps run once and are recorded once, over every transport and on both databases, with a sticky cache and with
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

// The response to each request that records a step is lost once. The worker repeats the request, and the app answers
// the repetition: each step is recorded once and runs once, and the task is not delivered again.
func TestALocalStepIsRecordedOnceAlthoughItsResponseIsLost(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		to, err := url.Parse(a.URL())
		if err != nil {
			t.Fatal(err)
		}
		var lost sync.Map
		var drops atomic.Int32
		proxy := httputil.NewSingleHostReverseProxy(to)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if _, again := lost.LoadOrStore(string(body), true); again || !bytes.Contains(body, []byte(`"record_from"`)) {
				proxy.ServeHTTP(w, r)
				return
			}
			drops.Add(1)
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // the app has committed, and its response does not arrive
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

// A run is terminated while its local step runs, at another app: the context of the step ends, and nothing of it is
// recorded. Other runs of the worker are served meanwhile, also those that have to be replayed.
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
				for range 20 { // more than replays at once
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
