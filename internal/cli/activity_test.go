package cli_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Activity runs are started from a shell, with and without waiting for the result, and every command that shows or ends
// runs accepts their IDs.
func TestActivitiesAreRunFromAShell(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	if got := s.try(0, "", "activity", "run", "say", `["hello", "Ada"]`, "--id", "one"); got != `"hello Ada"` {
		t.Errorf("the result is %q", got)
	}
	s.try(1, "duplicate_not_allowed", "activity", "run", "say", `["hello", "Ada"]`, "--id", "one")
	s.try(
		1, "no credit; for details run: sojourn workflow debug poor", "activity", "run", "charge", "[250]", "--max-attempts", "5",
		"--backoff", "1s", "--id", "poor",
	)
	if code, out, stderr := run(t, s.dir, s.env, "activity", "run", "say", `["hello"]`, "--delay", "3s"); code != 0 ||
		out != `"hello "` || strings.Count(stderr, "start delayed until") != 1 {
		t.Errorf("exit %d, %s; the shown wait reasons are:\n%s", code, out, stderr)
	}
	s.try(0, "null", "activity", "run", "charge", "[1]", "--start-to-close", "1m", "--heartbeat", "30s")
	for range 2 {
		s.try(0, "", "activity", "run", "epoch", "--session", "shared")
	}
	if out := s.try(0, "started_new held", "activity", "run", "slow", "--id", "held", "--detach"); strings.Contains(
		out, "null",
	) {
		t.Errorf("left to itself it printed %s", out)
	}
	for want, verb := range map[string]string{
		"slow (activity run)": "describe", "ActivityScheduled": "history",
	} {
		s.try(0, want, "workflow", verb, "held")
	}
	s.try(0, "started_new later", "activity", "run", "say", `["hello"]`, "--id", "later", "--delay", "1h", "--detach")
	s.try(0, "start delayed until", "workflow", "describe", "later")
	s.try(0, "created warm", "schedules", "create", "warm", "--every", "1h", "--activity", "say",
		"--input", `["hello", "Bo"]`, "--session", "shared", "--max-attempts", "3", "--backoff", "1s")
	s.try(0, "say (activity run)", "schedules", "describe", "warm")
	s.try(0, "every 1h\n", "schedules", "describe", "warm")
	s.try(0, "say\n", "__complete", "schedules", "update", "warm", "--activity", "s")
	s.try(0, "activity say", "schedules")
	s.try(0, "triggered warm", "schedules", "trigger", "warm")
	s.try(2, "not both", "schedules", "update", "warm", "--activity", "say", "--type", "sample")
	s.try(2, "set --activity", "schedules", "update", "warm", "--session", "other")
	s.try(2, "--backoff requires --max-attempts", "schedules", "update", "warm", "--activity", "say", "--backoff", "1s")
	s.try(1, "activity_run", "workflow", "signal", "held", "go")
	s.try(1, "activity_run", "workflow", "query", "held", "state")
	s.try(1, "activity_run", "workflow", "update", "held", "set")
	s.try(1, "activity_run", "workflow", "request-cancellation", "held")
	s.try(0, "cancelled held", "workflow", "cancel", "held", "--reason", "enough")
	s.try(1, "enough", "workflow", "result", "held")
	s.try(0, "activity say", "workflow", "list")
	if out := s.try(0, "activity say", "workflow", "list", "--kind", "activity", "--type", "say"); strings.Contains(
		out, "charge",
	) || strings.Contains(out, "sample") {
		t.Errorf("of one activity are listed %s", out)
	}
	if out := s.try(0, "sample", "workflow", "list", "--kind", "workflow"); strings.Contains(out, "activity ") {
		t.Errorf("of workflows are listed %s", out)
	}
	s.try(1, "kind", "workflow", "list", "--kind", "timer")
	var v struct{ Kind, Status string }
	if s.read(&v, "workflow", "describe", "held"); v.Kind != "activity" || v.Status != "cancelled" {
		t.Errorf("described as %+v", v)
	}
	for want, args := range map[string]string{
		"requires an activity type":         "",
		"ARGUMENTS must be a JSON array":    "say 2",
		"ARGUMENTS is not JSON":             "say [",
		"whole number of seconds":           "say [] --heartbeat 1500ms",
		"--backoff requires --max-attempts": "say [] --backoff 1s",
	} {
		s.try(2, want, append([]string{"activity", "run"}, strings.Fields(args)...)...)
	}
	s.try(1, "affinity", "activity", "run", "say", "--affinity", "soft")
}

// A run of an activity outlives the app and the worker it runs on, in the session that it names.
func TestAnActivityRunOutlivesTheAppAndItsWorker(t *testing.T) {
	t.Parallel()
	onDatabases(t, "and ends on another", func(p *plant) {
		p.begin("one", nil)
		asks := launch(
			p.t, p.dir, env{"SOJOURN_APP_URL": p.client.base, "SOJOURN_TOKEN": p.client.token},
			"activity", "run", "killed.work", `["item", true]`, "--id", "alone", "--session", "place",
		) // the commands wait for the result during the whole test
		p.noted("item", 1)
		var run struct {
			RunID string `json:"run_id"`
		}
		p.client.must(http.MethodGet, "/api/workflows/alone", nil, &run)
		p.app.kill()
		asks.line(asks.err, "no app answers")
		p.app = launch(p.t, p.dir, p.fleet.app, "app")
		p.client.up()
		p.node["one"].kill()
		p.begin("two", nil)
		p.noted("item", 2)
		p.let("item", "two")
		events := p.client.completed("alone", run.RunID)
		if got := result[string](p, events); got != "two" {
			p.t.Errorf("it ended on %s", got)
		}
		if got := strings.Fields(types(events)); !slices.Equal(got, []string{
			"WorkflowStarted", "ActivityScheduled", "ActivityCompleted", "WorkflowCompleted",
		}) {
			p.t.Errorf("its history: %v", got)
		}
		p.ran("item", "one", "two")
		if code := asks.exit(); code != 0 {
			p.t.Errorf("who asked for it ended with %d", code)
		}
		asks.line(asks.out, `^"two"$`)
	})
}
