package worker_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// A worker registers the resources of its definitions in Go and in files. Sessions of definitions in executors use the
// memory limit of the executor, because the worker declares memory.
func TestAWorkerRegistersTheResourcesOfItsDefinitions(t *testing.T) {
	const limit = 256 << 20
	for program, files := range map[string]map[string]string{
		"node": {
			"model.session.mjs": "export function setUp() { return 1; }\n" +
				"export const options = { resources: { gpu_mem: '24GiB', licence: 2 } };\n",
			"plain.session.mjs": "export function setUp() { return 1; }\n",
		},
		"python3": {
			"model.session.py": "def set_up(input, ctx):\n    return 1\n\n\n" +
				"options = {\"resources\": {\"gpu_mem\": \"24GiB\", \"licence\": 2}}\n",
			"plain.session.py": "def set_up(input, ctx):\n    return 1\n",
		},
	} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			apptest.Program(t, program)
			dir := t.TempDir()
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			a := apptest.Start(t, apptest.Options{})
			start(t, a, ways["socket"](a), func(o *worker.Options) {
				o.WorkerID, o.Handlers = "w", dir
				o.Resources = map[string]string{"gpu_mem": "80GiB", "licence": "4", "memory": "8GiB"}
				o.Registry.Session("go", activity.SessionDefinition{
					SetUp: func(context.Context) (int, error) { return 1, nil }, Resources: map[string]string{"licence": "1"},
				})
				limits := map[string]worker.Limits{}
				for _, name := range []string{"native", "node", "python"} {
					l := o.Executors.Limits[name]
					l.Memory = limit
					limits[name] = l
				}
				o.Executors.Limits = limits
			})
			var view protocol.WorkerView
			eventually(t, "the worker registers the definition", func() bool {
				var err error
				view, err = a.View().Worker(t.Context(), "", "w")
				return err == nil && len(view.SessionResources["model"]) == 3
			})
			for name, want := range map[string]string{
				"model": "gpu_mem=24GiB,licence=2,memory=256MiB", "plain": "memory=256MiB", "go": "licence=1",
			} {
				if got := view.SessionResources[name].String(); got != want {
					t.Errorf("%s uses %s, want %s", name, got, want)
				}
			}
			if got := view.Resources["gpu_mem"]; got.Total.String() != "80GiB" || got.Used.String() != "0" {
				t.Errorf("the worker has %+v", got)
			}
		})
	}
}

func TestInvalidResourcesOfAWorkerAreRefused(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	_, err := worker.New(workeropt.Over(ways["socket"](a), worker.Options{
		Registry: worker.NewRegistry(), Resources: map[string]string{"gpu_mem": "lots"},
	}))
	if err == nil {
		t.Error("the quantity lots is accepted")
	}
}
