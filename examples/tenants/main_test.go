package main

import (
	"context"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/workflowtest"
)

const result = "acme charged for tea, tea shipped to acme"

func TestTheTenantReachesActivitiesAndChildren(t *testing.T) {
	r := worker.NewRegistry()
	Register(r)
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		o := workflowtest.StartOptions{Headers: map[string]string{"tenant": "acme", "other": "x"}}
		for fn, want := range map[string]string{"order": result, "refund": "acme charged for tea"} {
			if got, err := workflowtest.Result[string](env.StartWith(o, fn, "tea")); err != nil || got != want {
				t.Errorf("%s: %q, %v", fn, got, err)
			}
		}
	})
}

func orderFor(ctx context.Context, app *client.Client, tenant, item string) (bill string, err error) {
	ctx = client.WithHeaders(ctx, map[string]string{"tenant": tenant})
	return bill, app.Execute(ctx, "order", client.Args{item}, &bill, client.StartOptions{})
}

func TestAClientSetsTheTenant(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	r := worker.NewRegistry()
	Register(r)
	w, err := worker.New(workeropt.Over(link.Local{Join: a.Connections().Join}, worker.Options{
		Registry: r, Release: "test", Executors: worker.ExecutorOptions{Disabled: true},
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	app, err := client.New(client.Options{URLs: []string{a.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := orderFor(t.Context(), app, "acme", "tea"); err != nil || got != result {
		t.Errorf("got %q, %v", got, err)
	}
}
