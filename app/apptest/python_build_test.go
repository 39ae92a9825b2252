package apptest_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Two builds of a worker of the published SDK: new runs are pinned to the promoted build, and to the other one only
// until it is drained.
func TestPythonWorkersAreRolledOutByBuildID(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		old := workOfBuild(t, a, "py-old", "v1")
		workOfBuild(t, a, "py-new", "v2")
		decide := func(verb, build string) {
			t.Helper()
			if _, err := a.Broker().DecideBuild(t.Context(), protocol.BuildRequest{
				Queue: pythonQueue, Verb: verb, BuildID: &build,
			}); err != nil {
				t.Fatal(err)
			}
		}
		completed := func(id string) {
			t.Helper()
			in := protocol.StartRequest{WorkflowID: id, WorkflowType: "hello", TaskQueue: pythonQueue, Input: []byte(`["Ada"]`)}
			if _, err := a.Broker().Start(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			until(t, id+" completes", func() bool {
				v, err := a.View().Describe(t.Context(), protocol.Target{WorkflowID: id})
				return err == nil && fmt.Sprint(v.Status) == "completed"
			})
		}
		decide(protocol.BuildPromote, "v2")
		decide(protocol.BuildDrain, "v1")
		completed("on-v2")
		// promoting v1 also ends its drain; its worker keeps polling and receives tasks again
		decide(protocol.BuildPromote, "v1")
		completed("on-v1")
		old.stop()
	})
}

// workOfBuild starts a worker with a build ID.
func workOfBuild(t *testing.T, a *apptest.App, id, build string) *pythonWorker {
	t.Helper()
	c := exec.Command(python(t), "worker.py", a.URL(), pythonToken, pythonQueue, id, "1")
	c.Dir, c.Env = pythonDir, append(os.Environ(), "BUILD_ID="+build)
	return launchWorker(t, a, id, c)
}
