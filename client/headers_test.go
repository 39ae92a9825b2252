package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// workWith runs a worker with a registry at an app until the test ends.
func workWith(t *testing.T, a *apptest.App, r *worker.Registry) {
	t.Helper()
	w, err := worker.New(workeropt.Over(link.Local{Join: a.Connections().Join}, worker.Options{
		Registry: r, Release: "test", Logger: slogbridge.Slog(apptest.Log(t)),
		Executors: worker.ExecutorOptions{Disabled: true},
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// tenants is a workflow that returns the tenants in the headers of its start, of its update, of its signal, and of its
// activity, which it passes the tenant of its start.
func tenants(ctx workflow.Context) ([]string, error) {
	seen := []string{workflow.Headers(ctx)["tenant"]}
	workflow.HandleUpdate(ctx, "update", func(ctx workflow.Context) (string, error) {
		seen = append(seen, workflow.Headers(ctx)["tenant"])
		return workflow.Headers(ctx)["tenant"], nil
	})
	workflow.HandleQuery(ctx, "query", func(ctx workflow.Context) (string, error) {
		return workflow.Headers(ctx)["tenant"], nil
	})
	signals := workflow.Signal(ctx, "signal")
	if err := signals.Receive(ctx); err != nil {
		return nil, err
	}
	seen = append(seen, signals.Headers()["tenant"])
	ctx = workflow.WithHeaders(ctx, map[string]string{"tenant": seen[0]})
	tenant, err := workflow.Execute[string](ctx, "tenant")
	return append(seen, tenant), err
}

func TestHeadersReachTheCode(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("tenants", tenants)
	r.Activity("tenant", func(ctx context.Context) (string, error) { return activity.Headers(ctx)["tenant"], nil })
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		workWith(t, b, r)
		c := asking(t, a.URL())
		of := func(tenant string) context.Context {
			return client.WithHeaders(t.Context(), map[string]string{"tenant": tenant, "other": "x"})
		}
		w, err := c.Start(of("outer"), "tenants", nil, client.StartOptions{Headers: map[string]string{"tenant": "start"}})
		if err != nil {
			t.Fatal(err)
		}
		var tenant string
		if err := w.Update(of("update"), "update", &tenant); err != nil || tenant != "update" {
			t.Errorf("update: %q, %v", tenant, err)
		}
		if err := w.Query(of("query"), "query", &tenant); err != nil || tenant != "query" {
			t.Errorf("query: %q, %v", tenant, err)
		}
		if err := w.Signal(of("signal"), "signal"); err != nil {
			t.Fatal(err)
		}
		var got []string
		want := []string{"start", "update", "signal", "start"}
		if err := w.Result(t.Context(), &got); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v", got, err)
		}
		run, err := c.StartActivity(of("run"), "tenant", nil, client.ActivityOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Result(t.Context(), &tenant); err != nil || tenant != "run" {
			t.Errorf("activity run: %q, %v", tenant, err)
		}
	})
}

// Headers are those of the request or command that caused the code to run, also in a second attempt of an activity, in
// the second run of a child that is retried, and after a run has continued as new.
func TestHeadersSurviveRetriesAndContinuations(t *testing.T) {
	r := worker.NewRegistry()
	r.Activity("tenant", func(ctx context.Context) (string, error) {
		if activity.Info(ctx).Attempt == 1 {
			return "", errors.New("once more")
		}
		return activity.Headers(ctx)["tenant"], nil
	})
	r.Workflow("child", func(ctx workflow.Context) (string, error) {
		if workflow.Info(ctx).RunNumber == 1 {
			return "", errors.New("once more")
		}
		return workflow.Headers(ctx)["tenant"], nil
	})
	r.Workflow("hops", func(ctx workflow.Context, hop int) ([]string, error) {
		signals := workflow.Signal(ctx, "signal")
		if hop == 1 {
			if err := workflow.Signal(ctx, "continue").Receive(ctx); err != nil {
				return nil, err
			}
			return nil, workflow.ContinueAsNew(workflow.WithHeaders(ctx, map[string]string{"tenant": "hop"}), 2)
		}
		out := workflow.WithHeaders(ctx, map[string]string{"tenant": "out"})
		out = workflow.WithActivity(out, workflow.ActivityOptions{Retry: &workflow.RetryPolicy{MaxAttempts: 2}})
		tenant, err := workflow.Execute[string](out, "tenant")
		if err != nil {
			return nil, err
		}
		out = workflow.WithChild(out, workflow.ChildOptions{Retry: &workflow.RetryPolicy{MaxAttempts: 2}})
		child, err := workflow.Await[string](ctx, workflow.StartChild(out, "child"))
		if err != nil {
			return nil, err
		}
		seen := []string{workflow.Headers(ctx)["tenant"], tenant, child}
		for received := true; received; {
			if received, err = signals.ReceiveAsync(); received {
				seen = append(seen, signals.Headers()["tenant"])
			}
		}
		return seen, err
	})
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		workWith(t, b, r)
		c := asking(t, a.URL())
		of := func(tenant string) context.Context {
			return client.WithHeaders(t.Context(), map[string]string{"tenant": tenant})
		}
		const signals = 40 // more than the next run gets as copies
		w, err := c.SignalWithStart(of("start"), "hops", client.Args{1}, "signal", nil, client.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"hop", "out", "out", "start"}
		for i := range signals {
			want = append(want, fmt.Sprint("signal ", i))
			if err := w.Signal(of(want[i+4]), "signal"); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Signal(of("unused"), "continue"); err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := c.Handle(w.ID, "").Result(t.Context(), &got); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v", got, err)
		}
	})
}
