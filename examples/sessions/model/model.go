// Package model has a session that needs an amount of a resource and keeps its state when it moves: before a worker
// loses the session, it stores what the model has read, and the next worker restores it.
package model

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow is the name of the example; Tell is its signal with a text for the model; an empty text ends the workflow.
const (
	Workflow = "model"
	Tell     = "tell"
)

// Register offers the workflow, its activity and the session definition.
func Register(r *worker.Registry) {
	r.Workflow(Workflow, Chat)
	r.Session("model", activity.SessionDefinition{
		SetUp:      Load, // func(context.Context, args…) (T, error)
		OnHandOver: func(_ context.Context, m *Model) ([]byte, error) { return json.Marshal(m) },
		Restore:    func(_ context.Context, m *Model, data []byte) error { return json.Unmarshal(data, m) },
	})
	r.Activity("model.read", Read)
}

// Model stands for a model in the memory of a GPU, with the texts that it has read.
type Model struct {
	Texts []string `json:"texts"`
}

// Load loads a model that has read nothing.
func Load(context.Context) (*Model, error) { return &Model{}, nil }

// Answer contains the number of texts that the model has read, and the process that holds it.
type Answer struct {
	Texts  int    `json:"texts"`
	Worker string `json:"worker"`
}

// Read passes a text to the model.
func Read(ctx context.Context, text string) (Answer, error) {
	m, err := activity.State[*Model](ctx)
	if err != nil {
		return Answer{}, err
	}
	m.Texts = append(m.Texts, text)
	return Answer{Texts: len(m.Texts), Worker: activity.Info(ctx).WorkerID}, nil
}

// Chat passes the text of each signal to the model in its session.
func Chat(ctx workflow.Context) (answers []Answer, err error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: time.Minute})
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{
		Definition: &workflow.SessionDefinition{Name: "model"},
		Resources:  map[string]string{"gpu_mem": "24GiB"},
	})
	if err != nil {
		return nil, err
	}
	for {
		text, err := workflow.ReceiveSignal[string](ctx, Tell)
		if err != nil {
			return nil, err
		}
		if text == "" {
			return answers, s.End(ctx)
		}
		var a Answer
		if err := s.Execute(ctx, Read, text).Get(ctx, &a); err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
}
