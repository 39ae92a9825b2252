package worker_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// This program runs a worker that connects to two apps.
func ExampleNew() {
	r := worker.NewRegistry()
	r.Activity("greet", func(_ context.Context, name string) (string, error) {
		return fmt.Sprintf("Hello, %s!", name), nil
	}, activity.Options{})

	w, err := worker.New(worker.Options{
		Registry: r,
		URLs:     []string{"https://app-1.example.com", "https://app-2.example.com"},
		Token:    "the worker's token",
		Release:  "1.4.0",
		Queues:   []string{"default"},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// A handler of the program receives the log of the worker and what workflows and activities log.
func ExampleNew_logger() {
	logger := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r := worker.NewRegistry()
	r.Activity("charge", func(ctx context.Context, account string) error {
		activity.Logger(ctx).Warn("no credit", "account", account)
		return activity.NewError("card_declined", "no credit", activity.NonRetryable)
	})
	w, err := worker.New(worker.Options{
		Registry: r, URLs: []string{"https://app.example.com"}, Logger: logger.With("service", "billing"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
}

// A program with isolated activities that uses New calls RunExecutor first: its workers start the same program as their
// executors.
func ExampleRunExecutor() {
	r := worker.NewRegistry()
	r.Activity("render", func(_ context.Context, page string) (string, error) { return "<p>" + page, nil },
		activity.Isolated)
	worker.RunExecutor(r) // in an executor it does not return
	w, err := worker.New(worker.Options{Registry: r, URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
}

// Register checks that the function has the argument and the result of the name.
func ExampleRegister() {
	type order struct{ Items []string }
	const orders workflow.Name[order, int] = "order"
	r := worker.NewRegistry()
	worker.Register(r, orders, func(_ workflow.Context, o order) (int, error) { return len(o.Items), nil })
	fmt.Println(r.WorkflowTypes())
	// Output: [order]
}

// This is a complete worker program: it reads the settings of "sojourn worker" from flags, the environment and a file.
func ExampleMain() {
	worker.Main(func(r *worker.Registry) {
		r.Workflow("greeting", func(ctx workflow.Context, name string) (string, error) {
			return workflow.Execute[string](ctx, "greet", name)
		})
		r.Activity("greet", func(_ context.Context, name string) (string, error) { return "Hello, " + name + "!", nil })
	})
}

func ExampleRegistry() {
	charge := func(context.Context, int) error { return nil }
	r := worker.NewRegistry()
	r.Activity("charge", charge)
	r.Activity("resize", func(_ context.Context, path string) (string, error) { return path, nil }, activity.Isolated)
	r.Workflow("order", func(ctx workflow.Context, amount int) error {
		return workflow.ExecuteActivity(ctx, charge, amount).Get(ctx, nil)
	})

	name, err := r.ActivityName(charge)
	fmt.Println(r.WorkflowTypes(), r.ActivityTypes(), name, err)
	// Output: [order] [charge resize] charge <nil>
}

// A new run uses the highest registered version of the workflow until it closes.
func ExampleRegistry_WorkflowVersion() {
	r := worker.NewRegistry()
	r.WorkflowVersion("order", 1, func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(ctx, "charge").Get(ctx, nil)
	})
	r.WorkflowVersion("order", 2, func(ctx workflow.Context) error {
		return workflow.Join(ctx, workflow.ExecuteActivity(ctx, "charge"), workflow.ExecuteActivity(ctx, "reserve"))
	})

	order, _ := r.FindWorkflow("order")
	fmt.Println(order.Versions())
	// Output: [1 2]
}

// A recovery policy names an activity that rebuilds the state of a session.
func ExampleRegistry_Check() {
	r := worker.NewRegistry()
	r.Activity("ask", func(_ context.Context, question string) (string, error) { return question, nil }, activity.Options{
		Recovery: &activity.SessionRecoveryPolicy{RebuildActivity: "index"},
	})
	fmt.Println(r.Check())
	// Output: activity "ask": its rebuild activity "index" is not registered
}
