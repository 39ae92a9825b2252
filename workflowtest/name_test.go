package workflowtest_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
	"github.com/sojourn-run/sojourn/workflowtest"
)

const doubles workflow.Name[int, int] = "double"

func TestATypedNameStartsAWorkflowAndAChild(t *testing.T) {
	r := worker.NewRegistry()
	worker.Register(r, doubles, func(ctx workflow.Context, n int) (int, error) {
		if n >= 100 {
			return n, nil
		}
		return workflow.ExecuteChild[int](ctx, doubles, 2*n)
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		if n, err := workflowtest.Result[int](env.Start(doubles, 30)); err != nil || n != 120 {
			t.Errorf("got %d, %v, want 120", n, err)
		}
	})
}
