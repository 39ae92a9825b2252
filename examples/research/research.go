// Package research is the sample that `sojourn dev` runs: a workflow that keeps a model in memory in a session, waits
// for a timer and an approval, and survives a kill at any point.
package research

import (
	"context"
	"os"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Names under which the sample is registered, and the signal it waits for.
const (
	Workflow = "research"
	Approve  = "approve"
)

// Question is the input of a run.
type Question struct {
	Text string `json:"text"`
	Near int    `json:"near"` // how many passages to read; 3
}

// Answer is the result of a run.
type Answer struct {
	Question string   `json:"question"`
	Passages []Match  `json:"passages"`
	Keywords []string `json:"keywords"`
	Approved string   `json:"approved_by"`
	Model    Built    `json:"model"`
}

// Built describes the model, and the process that has it in memory.
type Built struct {
	Passages int `json:"passages"`
	Words    int `json:"words"`
	Process  int `json:"process"`
}

// Register offers the sample's workflow and activities.
func Register(r *worker.Registry) {
	lost := &activity.SessionRecoveryPolicy{
		OnError: activity.Lost, RebuildActivity: "research.rebuild", MaxAutoRetries: 1,
	}
	r.Workflow(Workflow, Research)
	r.Activity("research.index", Index)
	r.Activity("research.rebuild", Rebuild)
	r.Activity("research.nearest", Nearest, activity.Options{Recovery: lost})
	r.Activity("research.keywords", Keywords, activity.Options{Recovery: lost})
}

// Research answers a question from the passages nearest to it. Its three activities run in one session: the first
// builds the model, the next two use it. If the worker dies in between, the next owner of the session builds the model
// again, and no completed activity is repeated.
func Research(ctx workflow.Context, q Question) (Answer, error) {
	a := Answer{Question: q.Text}
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
		StartToClose: time.Minute,
		Retry:        &workflow.RetryPolicy{MaxAttempts: 5, Backoff: []time.Duration{time.Second}},
	})
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
	if err != nil {
		return a, err
	}
	if err := s.Execute(ctx, "research.index").Get(ctx, &a.Model); err != nil {
		return a, err
	}
	if err := s.Execute(ctx, "research.nearest", q.Text, max(q.Near, 1)).Get(ctx, &a.Passages); err != nil {
		return a, err
	}
	if err := workflow.Sleep(ctx, 2*time.Second); err != nil { // durable: a restart does not begin it again
		return a, err
	}
	read := make([]int, len(a.Passages))
	for i, p := range a.Passages {
		read[i] = p.Passage
	}
	if err := s.Execute(ctx, "research.keywords", read, 6).Get(ctx, &a.Keywords); err != nil {
		return a, err
	}
	if err := s.End(ctx); err != nil {
		return a, err
	}
	return a, workflow.Signal(ctx, Approve).Receive(ctx, &a.Approved)
}

// Index builds the model and stores it in the session's state.
func Index(ctx context.Context) (Built, error) {
	m, err := activity.GetOrCreate(ctx, "model", func(context.Context) (*Model, error) { return NewModel(library), nil })
	if err != nil {
		return Built{}, err
	}
	return Built{Passages: m.Passages(), Words: m.Words(), Process: os.Getpid()}, nil
}

// Rebuild makes the model anew where the session was lost.
func Rebuild(ctx context.Context) error {
	_, err := Index(ctx)
	return err
}

// Nearest reads the passages nearest to a question. Where the model is missing, the session was lost.
func Nearest(ctx context.Context, question string, k int) ([]Match, error) {
	m, err := activity.Get[*Model](ctx, "model")
	if err != nil {
		return nil, err
	}
	return m.Nearest(question, k), nil
}

// Keywords returns the keywords of the passages.
func Keywords(ctx context.Context, passages []int, n int) ([]string, error) {
	m, err := activity.Get[*Model](ctx, "model")
	if err != nil {
		return nil, err
	}
	return m.Keywords(passages, n), nil
}
