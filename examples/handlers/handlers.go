// Package handlers calls activities written in JavaScript and Python from a workflow in Go, all in one session.
package handlers

import (
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow is the name under which the example is registered. Its activities are the files in activities/; a worker
// finds them by its setting handlers.
const Workflow = "handlers"

// Register offers the workflow.
func Register(r *worker.Registry) { r.Workflow(Workflow, Report) }

// Words is the result of the JavaScript activity text.words for one text.
type Words struct {
	Text  int      `json:"text"` // which one this was, as its process remembers
	Words []string `json:"words"`
}

// Tally is the result of the Python activity text.tally for all texts so far.
type Tally struct {
	Texts int            `json:"texts"`
	Words int            `json:"words"`
	Most  map[string]int `json:"most"`
}

// Report splits each text into words in JavaScript and counts them in Python. Both keep their state between calls,
// since a session has one process for each language.
func Report(ctx workflow.Context, texts []string) (Tally, error) {
	var t Tally
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: time.Minute})
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
	if err != nil {
		return t, err
	}
	for _, text := range texts {
		var w Words
		if err := s.Execute(ctx, "text.words", text).Get(ctx, &w); err != nil {
			return t, err
		}
		if err := s.Execute(ctx, "text.tally", w).Get(ctx, &t); err != nil {
			return t, err
		}
	}
	return t, s.End(ctx)
}
