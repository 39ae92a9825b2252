// Command first is the program on the first screen of the README.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/sojourn-run/sojourn"
	"github.com/sojourn-run/sojourn/examples/research"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Research finds the passage of a text that is nearest to "whale", and returns it after a signal approves.
func Research(ctx workflow.Context, path string) (string, error) {
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{}) // from here on: one worker, one process
	if err != nil {
		return "", err
	}
	if err := s.Execute(ctx, "index", path).Get(ctx, nil); err != nil { // builds an index in memory …
		return "", err
	}
	var best string
	if err := s.Execute(ctx, "nearest", "whale").Get(ctx, &best); err != nil { // … which the second activity uses
		return "", err
	}
	var approved bool
	if err := workflow.Signal(ctx, "approve").Receive(ctx, &approved); err != nil { // may take a month
		return "", err
	}
	return best, nil
}

func main() {
	sojourn.Main(func(r *worker.Registry) {
		r.Workflow("research", Research)
		r.Activity("index", Index, activity.Options{})
		r.Activity("nearest", Nearest, activity.Options{})
	})
}

// Index builds a model of a file's passages and stores it in the session's state.
func Index(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	activity.SessionState(ctx).Set("model", research.NewModel(string(text)))
	return nil
}

// Nearest returns the passage nearest to a word.
func Nearest(ctx context.Context, word string) (string, error) {
	m, err := activity.Get[*research.Model](ctx, "model")
	if err != nil {
		return "", err
	}
	found := m.Nearest(word, 1)
	if len(found) == 0 {
		return "", errors.New("no passage is near " + word)
	}
	return found[0].Text, nil
}
