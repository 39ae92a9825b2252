package worker_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// A worker whose isolation is below the minimum of an operator stops offering activities that need executors, and
// continues with the others. When the minimum is lowered, it offers them again.
func TestIsolationFloorRemovesActivities(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		levels := make(chan string, 10)
		w := start(t, a, c, func(o *worker.Options) {
			o.Executors.Isolation, o.SetLogLevel = string(sandbox.LevelProcess), func(level string) { levels <- level }
		})
		applied := func(s protocol.FleetSettings) []string {
			t.Helper()
			state, err := a.Broker().Fleet().SetFleet(t.Context(), protocol.FleetSettingsRequest{FleetSettings: s})
			if err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(ceiling); ; time.Sleep(10 * time.Millisecond) {
				v, err := a.View().Worker(t.Context(), "default", w.ID())
				if err != nil {
					t.Fatal(err)
				}
				if v.Settings != nil && *v.Settings == state.Revision {
					return v.ActivityTypes
				}
				if time.Now().After(end) {
					t.Fatalf("the worker never reported settings revision %d, but %v", state.Revision, v.Settings)
				}
			}
		}
		isolated := func(types []string) bool {
			return slices.ContainsFunc(types, func(name string) bool { return strings.HasSuffix(name, "_isolated") })
		}
		low := applied(protocol.FleetSettings{IsolationMin: "confined", LogLevel: "debug"})
		if isolated(low) || slices.Contains(low, "pid") || !slices.Contains(low, "hello") {
			t.Errorf("below the minimum the worker offers %v", low)
		}
		if got := <-levels; got != "debug" {
			t.Errorf("the worker logs from level %q", got)
		}
		if got := result[string](t, run(t, a, "greet", "you")); got != "hello you" {
			t.Errorf("a workflow of the other activities: %q", got)
		}
		if all := applied(protocol.FleetSettings{IsolationMin: "process"}); !isolated(all) || !slices.Contains(all, "pid") {
			t.Errorf("at the minimum the worker offers %v", all)
		}
		if got := <-levels; got != "" {
			t.Errorf("the worker's own level was not restored: %q", got)
		}
		if got := result[int](t, run(t, a, "count_isolated", "a b c d")); got != 12 {
			t.Errorf("got %d words, want 12", got)
		}
	})
}
