package tour_test

import (
	"context"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/examples/tour"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
	"github.com/sojourn-run/sojourn/workflowtest"
)

// An activity whose worker is lost runs again on the other worker.
func TestRenderingContinuesOnAnotherWorker(t *testing.T) {
	r := worker.NewRegistry()
	began := map[string]int{} // by worker; the test runs one goroutine at a time
	r.Activity("frames", func(ctx context.Context) error {
		began[activity.Info(ctx).WorkerID]++
		time.Sleep(2 * time.Minute)
		return nil
	})
	r.Workflow("render", func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "frames").Get(ctx, nil) })
	o := workflowtest.Options{Workers: []workflowtest.WorkerSpec{{ID: "a"}, {ID: "b"}}}
	workflowtest.RunWith(t, o, r, func(t *testing.T, env *workflowtest.Env) {
		run := env.Start("render")
		time.Sleep(time.Minute)
		env.Worker(0).Kill() // the app notices the loss after a minute without heartbeats
		if _, err := workflowtest.Result[any](run); err != nil {
			t.Error(err)
		}
	})
	if began["b"] != 1 || began["a"] > 1 {
		t.Errorf("the activity began %v times", began)
	}
}

func TestRecordedHistories(t *testing.T) {
	r := worker.NewRegistry()
	tour.Register(r)
	workflowtest.Replay(t, r, "testdata/histories/*.json") // written by sojourn workflow export ID -o FILE
}
