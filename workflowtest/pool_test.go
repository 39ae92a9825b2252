package workflowtest_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/examples/sessions/pool"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/workflowtest"
)

func TestWorkflowsBorrowFromAPoolInATest(t *testing.T) {
	r := worker.NewRegistry()
	pool.Register(r)
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		if err := env.SetPool(pool.Name, "", 1); err == nil {
			t.Error("a pool without a definition was accepted")
		}
		run := env.Start(pool.Workflow, "acme", "whale")
		time.Sleep(time.Minute)
		if err := env.SetPool(pool.Name, pool.Name, 1); err != nil {
			t.Fatal(err)
		}
		got, err := workflowtest.Result[string](run)
		if err != nil || got != `answer 1 of the model: "whale" has 5 letters` {
			t.Errorf("%q, %v", got, err)
		}
	})
}
