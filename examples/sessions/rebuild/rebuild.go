// Package rebuild has a session with an explicit start and end, and a recovery policy: if its worker is lost, the next
// one rebuilds the state, and the workflow is not affected.
package rebuild

import (
	"context"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow is the name of the example; Ask is its signal with a word to look up; an empty word ends the workflow.
const (
	Workflow = "rebuild"
	Ask      = "ask"
)

// Found has the number of a word's occurrences, and the process that counted them.
type Found struct {
	Word   string `json:"word"`
	Times  int    `json:"times"`
	Worker string `json:"worker"`
	Epoch  int64  `json:"epoch"`
}

// Register offers the workflow and its activities.
func Register(r *worker.Registry) {
	r.Workflow(Workflow, Answer)
	r.Activity("rebuild.index", Index)
	r.Activity("rebuild.find", Find, activity.Options{Recovery: &activity.SessionRecoveryPolicy{
		OnError:         activity.Lost,
		RebuildActivity: "rebuild.index", // receives as many of rebuild.find's arguments as it has parameters
		MaxAutoRetries:  1,
	}})
}

// Answer starts a session, indexes a text in it and looks up each word that a signal contains.
func Answer(ctx workflow.Context, text string) ([]Found, error) {
	ctx = workflow.WithActivity(
		ctx, workflow.ActivityOptions{StartToClose: time.Minute, Retry: &workflow.RetryPolicy{MaxAttempts: 3}},
	)
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{MaxActivities: 2})
	if err != nil {
		return nil, err
	}
	if err := s.Execute(ctx, Index, text).Get(ctx, nil); err != nil {
		return nil, err
	}
	found := []Found{}
	for {
		word, err := workflow.ReceiveSignal[string](ctx, Ask)
		if err != nil {
			return nil, err
		}
		if word == "" {
			return found, s.End(ctx)
		}
		var f Found
		if err := s.Execute(ctx, Find, text, word).Get(ctx, &f); err != nil {
			return nil, err
		}
		found = append(found, f)
	}
}

type index map[string]int

// Index counts the words of a text and stores the counts in the session's state.
func Index(ctx context.Context, text string) error {
	x := index{}
	for word := range strings.FieldsSeq(strings.ToLower(text)) {
		x[strings.Trim(word, ".,;:!?")]++
	}
	activity.SessionState(ctx).Set("index", x)
	return nil
}

// Find looks up a word. Its first argument is the text, for the rebuild.
func Find(ctx context.Context, _, word string) (Found, error) {
	x, err := activity.Get[index](ctx, "index")
	if err != nil {
		return Found{}, err
	}
	return Found{
		Word: word, Times: x[strings.ToLower(word)], Worker: activity.Info(ctx).WorkerID, Epoch: activity.SessionEpoch(ctx),
	}, nil
}
