package worker_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
)

// Activity code whose session state is missing receives the reason why the previous state was lost, also on another
// worker.
func TestLostStateReportsHowThePreviousLeaseEnded(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		visit := func(t *testing.T, session, activity string) string {
			return result[string](t, run(t, a, "visit", session, activity))
		}
		t.Run("the first worker", func(t *testing.T) {
			start(t, a, c, nil)
			visit(t, "crashed", "die")
			if got := visit(t, "drained", "pid"); got != "" {
				t.Errorf("drained: %s", got)
			}
			eventually(t, "the session whose executor died is given up", func() bool {
				v, err := a.View().Session(t.Context(), "", "crashed")
				return err == nil && v.LeaseOwner == nil
			})
		})
		start(t, a, c, nil)
		for session, want := range map[string]string{
			"crashed": "the previous acquisition of the session ended: crash: the executor exited with status 3",
			"drained": "the previous acquisition of the session ended: shutdown",
		} {
			// one activity runs in an executor, one in the worker process
			for _, activity := range []string{"words_isolated", "words"} {
				if got := visit(t, session, activity); !strings.Contains(got, want) {
					t.Errorf("%s, %s: %q", session, activity, got)
				}
			}
		}
		if got := visit(t, "new", "words"); strings.Contains(got, "previous acquisition") {
			t.Errorf("in the first epoch: %q", got)
		}
	})
}
