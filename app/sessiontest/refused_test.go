package sessiontest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// The app refuses an activity in the commit that schedules it, by an eager workflow task. The response contains both
// events, so the next workflow task contains none, and the worker must not issue the command again.
func TestActivityRefusedByAnEagerTaskIsScheduledOnce(t *testing.T) {
	bubble(t, "other requirements", func(h *harness) {
		h.flow("flow", func(ctx workflow.Context) (string, error) {
			in := func(s workflow.WorkerSession) workflow.Context {
				return workflow.WithActivity(ctx, workflow.ActivityOptions{WorkerSession: &s})
			}
			first := in(workflow.WorkerSession{ID: "s"})
			if err := workflow.ExecuteActivity(first, "work", "a", 10).Get(ctx, nil); err != nil {
				return "", err
			}
			other := in(workflow.WorkerSession{ID: "s", Requirements: []string{"gpu"}})
			return fmt.Sprint(workflow.ExecuteActivity(other, "work", "b", 10).Get(ctx, nil)), nil
		})
		h.start("A")
		run := h.begin("flow")
		if got := output[string](h, run); !strings.Contains(got, "exists with other options") {
			h.t.Errorf("the activity ended with %q", got)
		}
		h.equal("activities", count(h.types(run), "ActivityScheduled"), 2)
	})
}
