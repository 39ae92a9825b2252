package worker_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
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
