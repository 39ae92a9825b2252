package worker_test

import (
	"context"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// With workers of two builds, new runs are dispatched to the promoted build, also after the other build was drained and
// promoted again.
func TestRunsGoToThePromotedBuild(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		build := func(id string) {
			carrier := c
			if s, ok := c.(*link.Socket); ok {
				carrier = &link.Socket{URLs: s.URLs} // each worker needs its own carrier
			}
			start(t, a, carrier, func(o *worker.Options) {
				o.WorkerID, o.BuildID = "of-"+id, id
				o.Registry.Workflow("which", func(workflow.Context) (string, error) { return id, nil })
			})
		}
		build("v1")
		build("v2")
		decide := func(verb, build string) {
			t.Helper()
			if _, err := a.Broker().DecideBuild(t.Context(), protocol.BuildRequest{
				Queue: "default", Verb: verb, BuildID: &build,
			}); err != nil {
				t.Fatal(err)
			}
		}
		want := func(build string) {
			t.Helper()
			if got := result[string](t, run(t, a, "which")); got != build {
				t.Errorf("the run completed on build %s, want the promoted build %s", got, build)
			}
		}
		decide(protocol.BuildPromote, "v2")
		decide(protocol.BuildDrain, "v1")
		want("v2")
		decide(protocol.BuildPromote, "v1") // promoting a drained build ends its drain
		decide(protocol.BuildDrain, "v2")
		want("v1")
		v, err := a.View().Worker(context.WithoutCancel(t.Context()), "", "of-v1")
		if err != nil || v.BuildID == nil || *v.BuildID != "v1" {
			t.Errorf("the worker is shown with build %v, %v", v.BuildID, err)
		}
	})
}
