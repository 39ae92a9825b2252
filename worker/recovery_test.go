package worker_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// fragile registers a workflow that runs n activities concurrently, all of which lack the session state that they need.
// A signal can cancel the activities. hold is called in the rebuild and can block it.
func fragile(r *worker.Registry, rebuilds *atomic.Int32, hold func(context.Context) error) {
	r.Workflow("fragile", func(ctx workflow.Context, n int) (int, error) {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		if err != nil {
			return 0, err
		}
		inner, cancel := workflow.WithCancel(ctx)
		var all []workflow.Future
		for range n {
			all = append(all, s.Execute(inner, "uses", "a b c"))
		}
		workflow.Go(ctx, func(ctx workflow.Context) {
			if workflow.Signal(ctx, "stop").Receive(ctx, nil) == nil {
				cancel()
			}
		})
		sum := 0
		for _, f := range all {
			k, err := workflow.Await[int](ctx, f)
			if err != nil {
				return 0, err
			}
			sum += k
		}
		return sum, s.End(ctx)
	})
	r.Activity("rebuilds", func(ctx context.Context, text string) error {
		rebuilds.Add(1)
		activity.SessionState(ctx).Set("text", text)
		return hold(ctx)
	})
	r.Activity("uses", func(ctx context.Context, _ string) (int, error) {
		text, err := activity.Get[string](ctx, "text")
		return len(text), err
	}, activity.Options{Recovery: &activity.SessionRecoveryPolicy{
		OnError: activity.Lost, RebuildActivity: "rebuilds", MaxAutoRetries: 1,
	}})
}

// Recovery policies behave the same over every carrier: activities without state share one rebuild, and history records
// the rebuild.
func TestRecoveryOverEveryCarrier(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		var rebuilds atomic.Int32
		start(t, a, c, func(o *worker.Options) {
			o.Concurrency = 5
			fragile(o.Registry, &rebuilds, func(context.Context) error { return nil })
		})
		last := run(t, a, "fragile", 5)
		if got := result[int](t, last); got != 25 || rebuilds.Load() != 1 {
			t.Errorf("got %d after %d rebuilds", got, rebuilds.Load())
		}
		eventually(t, "one rebuild is counted, and none for those that waited for it", func() bool {
			res, err := http.Get(a.URL() + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			return err == nil && strings.Contains(string(text), "sojourn_session_rebuilds_total{reason=\"missing_state\"} 1\n")
		})
	})
}

// If a workflow cancels an activity while the activity's state is being rebuilt, the activity ends immediately. The
// rebuild is cancelled, and history records that.
func TestARebuildThatIsCancelledIsInHistoryOverEveryCarrier(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		var rebuilds, stopped atomic.Int32
		start(t, a, c, func(o *worker.Options) {
			fragile(o.Registry, &rebuilds, func(ctx context.Context) error { <-ctx.Done(); stopped.Add(1); return ctx.Err() })
		})
		answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "fragile", Input: []byte("[1]")})
		if err != nil {
			t.Fatal(err)
		}
		reported := func() bool {
			v, err := a.View().Describe(t.Context(), protocol.Target{RunID: answer.RunID})
			if err != nil {
				t.Fatal(err)
			}
			return len(v.Pending.Activities) == 1 && v.Pending.Activities[0].Rebuild != nil
		}
		eventually(t, "the rebuild is reported to the app", reported)
		if _, err := a.Broker().Signal(t.Context(), protocol.SignalRequest{
			Target: protocol.Target{WorkflowID: answer.WorkflowID}, SignalName: "stop",
		}); err != nil {
			t.Fatal(err)
		}
		end(t, a, answer.RunID)
		var types []string
		for _, e := range events(t, a, answer.RunID) {
			types = append(types, e.Data.Type())
			if d, ok := e.Data.(*history.SessionRecovered); ok &&
				(d.Outcome != protocol.RebuildCancelled || d.Rebuild != "rebuilds" || d.Retries != 0 || d.Epoch == 0) {
				t.Errorf("the rebuild events in history: %+v", d)
			}
		}
		at := slices.Index(types, "SessionRecovered")
		if at < 0 || types[at-1] != "ActivityCancelRequested" || types[at+1] != "ActivityCancelled" {
			t.Errorf("history: %q", types)
		}
		eventually(t, "the rebuild is cancelled", func() bool { return stopped.Load() == 1 })
	})
}
