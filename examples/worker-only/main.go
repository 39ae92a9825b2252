// Command worker-only is a worker and nothing else: it takes its work from an app that runs elsewhere.
package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func main() {
	worker.Main(func(r *worker.Registry) {
		r.Workflow("count", Count)
		r.Activity("count.words", Words, activity.Isolated) // in a child process: a crash there fails only the attempt
	})
}

// Counted has the number of words, and the process that counted them.
type Counted struct {
	Words   int `json:"words"`
	Process int `json:"process"`
	Worker  int `json:"worker"` // the process that started that one
}

// Count counts the words of several texts concurrently.
func Count(ctx workflow.Context, texts []string) ([]Counted, error) {
	ctx = workflow.WithActivity(
		ctx, workflow.ActivityOptions{StartToClose: time.Minute, Retry: &workflow.RetryPolicy{MaxAttempts: 3}},
	)
	futures := make([]workflow.Future, len(texts))
	for i, text := range texts {
		futures[i] = workflow.ExecuteActivity(ctx, "count.words", text)
	}
	if err := workflow.Join(ctx, futures...); err != nil {
		return nil, err
	}
	all := make([]Counted, len(texts))
	for i, f := range futures {
		if err := f.Get(ctx, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Words counts the words of one text.
func Words(ctx context.Context, text string) (Counted, error) {
	return Counted{
		Words: len(strings.Fields(text)), Process: os.Getpid(), Worker: os.Getppid(),
	}, activity.Heartbeat(ctx, nil)
}
