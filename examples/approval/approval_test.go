package approval_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/examples/approval"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/workflowtest"
)

func TestAnExpenseWaitsForADecision(t *testing.T) {
	r := worker.NewRegistry()
	approval.Register(r)
	asked := make(chan string, 1)
	r.ReplaceActivity("ask_manager", func(_ context.Context, _ int, awakeable string) error {
		asked <- awakeable
		return nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		for want, decide := range map[string]func(id string) error{
			"approved: true, by Ada": func(id string) error {
				return env.CompleteAwakeable(id, approval.Decision{Approved: true, By: "Ada"})
			},
			"rejected: too much": func(id string) error {
				return env.FailAwakeable(id, activity.NewError("Rejected", "too much"))
			},
			"no decision in three days": func(id string) error {
				time.Sleep(73 * time.Hour)
				if err := env.CompleteAwakeable(id, approval.Decision{}); err == nil {
					return errors.New("a late decision was accepted")
				}
				return nil
			},
		} {
			run := env.Start(approval.Expense, 700)
			if err := decide(<-asked); err != nil {
				t.Error(err)
			}
			if got, err := workflowtest.Result[string](run); err != nil || got != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
	})
}

// A program outside of the workflow decides over HTTP.
func TestAProgramDecides(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	r := worker.NewRegistry()
	approval.Register(r)
	asked := make(chan string, 1)
	r.ReplaceActivity("ask_manager", func(_ context.Context, _ int, awakeable string) error {
		asked <- awakeable
		return nil
	})
	w, err := worker.New(worker.Options{
		Registry: r, URLs: []string{a.URL()}, Release: "test", Executors: worker.ExecutorOptions{Disabled: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	app, err := client.New(client.Options{URLs: []string{a.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	for want, decide := range map[string]func(id string) error{
		"approved: true, by Ada": func(id string) error {
			return approval.Decide(t.Context(), app, id, approval.Decision{Approved: true, By: "Ada"})
		},
		"rejected: too much": func(id string) error { return approval.Reject(t.Context(), app, id, "too much") },
	} {
		run, err := app.Start(t.Context(), "expense", client.Args{700}, client.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		id := <-asked
		for range 2 { // a repetition has no effect
			if err := decide(id); err != nil {
				t.Error(err)
			}
		}
		var got string
		if err := run.Result(t.Context(), &got); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}
