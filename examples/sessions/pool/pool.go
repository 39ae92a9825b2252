// Package pool borrows a session from a pool: a model that workers have loaded before a workflow needs it.
package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow is the name of the example; Name is the name of its pool and of the session definition of the members.
const (
	Workflow = "pool"
	Name     = "llama"
)

// Register offers the workflow, its activity and the session definition.
func Register(r *worker.Registry) {
	r.Workflow(Workflow, Question)
	r.Session(Name, activity.SessionDefinition{
		SetUp:    Load,
		HandOver: activity.HandOverPrepare, // required of members of a pool
	})
	r.Activity("ask", Ask)
}

// Model stands for a model in the memory of a GPU.
type Model struct{ questions int }

// Load loads a model, which takes 2 seconds.
func Load(ctx context.Context) (*Model, error) {
	select {
	case <-time.After(2 * time.Second):
		return &Model{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Ask passes a question to the model of the session.
func Ask(ctx context.Context, question string) (string, error) {
	m, err := activity.State[*Model](ctx)
	if err != nil {
		return "", err
	}
	m.questions++
	return fmt.Sprintf("answer %d of the model: %q has %d letters", m.questions, question, len(question)), nil
}

// Question borrows a model for one question of a tenant.
func Question(ctx workflow.Context, tenant, question string) (string, error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: time.Minute})
	s, err := workflow.Borrow(ctx, "llama", workflow.BorrowOptions{
		Priority: 3, FairnessKey: tenant, Timeout: 10 * time.Minute,
	})
	if err != nil {
		return "", err
	}
	answer, err := workflow.ExecuteIn[string](ctx, s, "ask", question)
	return answer, errors.Join(err, s.Return(ctx))
}
