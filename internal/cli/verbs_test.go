package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shell runs commands against an app, each in a separate process.
type shell struct {
	t   *testing.T
	dir string
	env env
}

// try runs a command and checks its exit code and output.
func (s shell) try(exit int, want string, args ...string) string {
	s.t.Helper()
	code, out, err := run(s.t, s.dir, s.env, args...)
	if code != exit || !strings.Contains(out+err, want) {
		s.t.Fatalf("%v: exit %d: %q %s, want %d and %q", args, code, out, err, exit, want)
	}
	return out
}

// read runs a command that must print JSON.
func (s shell) read(out any, args ...string) {
	s.t.Helper()
	raw := s.try(0, "", append(args, "--json")...)
	if err := json.Unmarshal([]byte(raw), out); err != nil {
		s.t.Fatalf("%v printed %q: %v", args, raw, err)
	}
}

func startShell(t *testing.T) shell {
	t.Helper()
	dir := t.TempDir()
	_, c, _ := dev(t, dir, "127.0.0.1:0", nil)
	return shell{t, dir, env{"SOJOURN_APP_URL": c.base}}
}

func TestWarningsOfTheAppArePrintedOnStandardError(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"outcome":"accepted","warnings":[{"code":"c","subject":"s","message":"one"},{"message":"two"}]}`))
	}))
	defer app.Close()
	code, out, err := run(t, t.TempDir(), env{"SOJOURN_APP_URL": app.URL}, "workflow", "signal", "a", "b", "--json")
	if code != 0 || err != "warning: one\nwarning: two" || !strings.HasPrefix(out, "{") {
		t.Errorf("exit %d, output %q, errors %q", code, out, err)
	}
}

func TestWorkflowsAreStartedTalkedToAndEndedFromAShell(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	if got := s.try(
		0, "", "workflow", "start", "tour.greeting", "--id", "g", "--input", `["Ada"]`, "--wait",
	); got != `"hello Ada, goodbye Ada"` {
		t.Errorf("the result is %q", got)
	}
	s.try(1, `workflow ID "g" was used by a run that completed at `, "workflow", "start", "tour.greeting", "--id", "g",
		"--input", `["Ada"]`)
	s.try(1, "only a failed run can be redriven", "workflow", "redrive", "g")
	s.try(1, "argument", "workflow", "start", "tour.greeting", "--id", "f", "--input", `[1, 2]`, "--wait")
	s.try(2, "exactly one of", "workflow", "reset", "g")
	s.try(1, "nearest: ", "workflow", "reset", "g", "--event", "1")
	s.try(0, "reset g to event ", "workflow", "reset", "g", "--first-task", "--reason", "again")
	s.try(0, "redriven f: run ", "workflow", "redrive", "f", "--request-id", "first")
	s.try(0, "hello Bob", "workflow", "start", "tour.greeting", "--input", `["Bob"]`, "--wait")
	s.try(0, "3", "workflow", "start", "tour.counter", "--id", "n", "--input", "[1, 3]", "--wait") // across three runs
	var runs []struct {
		Number int    `json:"run_number"`
		Reason string `json:"closed_reason"`
	}
	if s.read(&runs, "workflow", "runs", "n"); len(runs) != 3 {
		t.Errorf("runs of n: %+v", runs)
	}

	// A conversation: updates with a result, with a failure and with a validator's rejection, a query, and the end.
	file := filepath.Join(s.dir, "arguments.json")
	if err := os.WriteFile(file, []byte("[2]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.try(
		0, "started_new b", "workflow", "start", "tour.basket", "--id", "b", "--input", "@"+file, "--memo", `{"for":"Ada"}`,
		"--priority", "2",
	)
	s.try(0, "1", "workflow", "update", "b", "add", "--input", `["pear"]`, "--request-id", "one")
	// the first one, repeated
	s.try(0, "1", "workflow", "update", "b", "add", "--input", `["pear"]`, "--request-id", "one")
	s.try(1, "request_id_conflict", "workflow", "update", "b", "add", "--input", `["fig"]`, "--request-id", "one")
	s.try(0, "2", "workflow", "update", "b", "add", "--input", `["fig"]`)
	s.try(1, "update_validator_rejected", "workflow", "update", "b", "add", "--input", `["plum"]`)
	if got := strings.Join(strings.Fields(s.try(0, "", "workflow", "query", "b", "items")), ""); got != `["pear","fig"]` {
		t.Errorf("the query says %s", got)
	}
	s.try(1, "rejected_unknown_query", "workflow", "query", "b", "colour")
	for _, want := range []string{"tour.basket", `{"for":"Ada"}`, "running"} {
		s.try(0, want, "workflow", "describe", "b")
	}
	s.try(0, "update_accepted", "workflow", "update", "b", "pay", "--input", "[1]", "--wait-for", "accepted")
	s.try(0, "fig", "workflow", "result", "b")
	s.try(0, "UpdateCompleted", "workflow", "history", "b")
	s.try(0, "ActivityCompleted        charge", "workflow", "history", "b", "--follow")

	s.try(0, "1", "workflow", "update-with-start", "tour.basket", "--id", "w", "--input", "@"+file, "--update", "add",
		"--update-input", `["pear"]`)
	s.try(0, "2", "workflow", "update-with-start", "tour.basket", "--id", "w", "--input", "@"+file, "--update", "add",
		"--update-input", `["fig"]`)
	s.try(1, "update_validator_rejected", "workflow", "update-with-start", "tour.basket", "--id", "w", "--update", "add",
		"--update-input", `["plum"]`)
	s.try(0, "update_accepted", "workflow", "update-with-start", "tour.basket", "--id", "w", "--update", "pay",
		"--update-input", "[1]", "--wait-for", "accepted")
	s.try(0, "started_new, signal_received z", "workflow", "signal-with-start", "tour.approval", "--id", "z", "--signal",
		"approve", "--signal-input", `["Eve"]`)
	s.try(0, "Eve", "workflow", "result", "z")
	s.try(1, "reuse_policy", "workflow", "signal-with-start", "tour.approval", "--id", "z", "--signal", "approve")
	s.try(2, "--signal is required", "workflow", "signal-with-start", "tour.approval", "--id", "z")

	s.try(0, "started_new", "workflow", "start", "tour.approval", "--id", "a")
	s.try(0, "signal_received a", "workflow", "signal", "a", "approve", "--input", `["Eve"]`)
	s.try(0, "Eve", "workflow", "result", "a")
	s.try(1, "run_not_active", "workflow", "signal", "a", "approve")

	s.try(0, "started_new", "workflow", "start", "tour.cleanup", "--id", "c")
	s.try(0, "cancellation_requested c", "workflow", "request-cancellation", "c", "--reason", "enough")
	s.try(0, "cleaned up", "workflow", "result", "c")
	s.try(0, "started_new", "workflow", "start", "tour.cleanup", "--id", "c2")
	s.try(0, "cancellation_requested c2", "workflow", "cancel", "c2", "--reason", "enough")
	s.try(0, "cleaned up", "workflow", "result", "c2")
	for verb, outcome := range map[string]string{"cancel": "cancelled", "terminate": "terminated"} {
		s.try(0, "started_new", "workflow", "start", "nobody", "--id", verb, "--queue", "nowhere")
		end := []string{"workflow", verb, verb}
		if verb == "cancel" {
			s.try(1, "cancellation_not_supported", end...)
			s.try(1, "to end the run immediately run: sojourn workflow cancel cancel --now", end...)
			end = append(end, "--now")
		}
		s.try(0, outcome+" "+verb, append(end, "--reason", "no more of it")...)
		s.try(1, "no more of it", "workflow", "result", verb)
		s.try(1, "run_not_active", end...)
	}
	s.try(1, "run_not_active", "workflow", "repair", "c")
	var list []struct {
		ID string `json:"workflow_id"`
	}
	if s.read(&list, "workflow", "list", "--status", "terminated"); len(list) != 1 || list[0].ID != "terminate" {
		t.Errorf("listed %+v", list)
	}
	if s.read(&list, "workflow", "list", "--limit", "2"); len(list) != 2 {
		t.Errorf("a list of at most 2 has %d", len(list))
	}

	for message, args := range map[string]string{
		"--input must be a JSON array":            "signal b x --input 2",
		"is not JSON":                             "start x --input [",
		"whole number of seconds":                 "start x --run-timeout 1500ms",
		"--wait cannot be combined with --cron":   "start x --wait --cron @hourly",
		"requires a workflow ID and a query name": "query b",
		"requires a workflow type":                "start",
		"--limit must be at least 1":              "list --limit 0",
		"see sojourn workflow start":              "start x --inputs []",
		"did you mean list?":                      "lst",
	} {
		s.try(2, message, append([]string{"workflow"}, strings.Fields(args)...)...)
	}
	s.try(2, "--input must be a JSON array", "workflow", "start", "x", "--input", `{"a": 1}`)
	s.try(2, `unknown command or argument "workflows"`, "help", "workflows")
	s.try(0, "List runs", "help", "workflow", "list")
	s.try(0, "none", "workflow", "list", "--type", "nothing")
	s.try(0, "warning: no run carries the search attribute Amuont", "workflow", "list", "--filter", "Amuont > 3")
	if s.read(&list, "workflow", "list", "--filter", "Amuont > 3"); len(list) != 0 {
		// the warning is not on the standard output
		t.Errorf("Amuont > 3: %v", list)
	}
	s.try(1, "instance_not_found", "workflow", "describe", "nothing")
	s.try(1, "no app answers at http://127.0.0.1:1 (--app-url)", "workflow", "list", "--app-url", "http://127.0.0.1:1")
}

func TestSchedulesAreMadeChangedAndFiredFromAShell(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	s.try(2, "requires --type", "schedules", "create", "s", "--every", "1h")
	s.try(2, "whole number of seconds", "schedules", "create", "s", "--every", "soon", "--type", "tour.greeting")
	s.try(
		0, "created s", "schedules", "create", "s", "--every", "1h", "--every", "90m", "--type", "tour.greeting", "--input",
		`["Ada"]`, "--jitter", "5s",
	)
	s.try(1, `--cron "61 * * * *": minute must be 0–59, got "61"`, "schedules", "create", "t", "--cron", "61 * * * *",
		"--type", "tour.greeting")
	s.try(1, "schedule_already_exists", "schedules", "create", "s", "--every", "1h", "--type", "tour.greeting")
	var v struct {
		Times struct {
			Cron      []string                 `json:"cron_expressions"`
			Intervals []struct{ Every string } `json:"intervals"`
			Zone      string                   `json:"timezone"`
		} `json:"spec"`
		Type, Overlap string
		Jitter        int    `json:"jitter_seconds"`
		Policy        string `json:"overlap_policy"`
		Paused        bool
	}
	if s.read(&v, "schedules", "describe", "s"); len(v.Times.Intervals) != 2 || v.Jitter != 5 || v.Policy != "skip" {
		t.Errorf("the schedule is %+v", v)
	}
	s.try(
		0, "updated s", "schedules", "update", "s", "--overlap", "allow_all", "--cron", "0 7 * * 1-5", "--timezone",
		"Europe/Berlin",
	)
	v.Times.Intervals = nil
	if s.read(&v, "schedules", "describe", "s"); len(v.Times.Cron) != 1 || len(v.Times.Intervals) != 0 || v.Jitter != 5 ||
		v.Policy != "allow_all" {
		t.Errorf("the changed schedule is %+v", v)
	}
	s.try(0, "Europe/Berlin", "schedules")
	var fired struct {
		WorkflowID string `json:"workflow_id"`
	}
	s.read(&fired, "schedules", "trigger", "s")
	s.try(0, "hello Ada", "workflow", "result", fired.WorkflowID)
	s.try(0, "5 firings", "schedules", "backfill", "s", "2026-11-16T00:00:00Z", "2026-11-21T00:00:00Z") // Monday to Friday
	s.try(0, "paused s", "schedules", "pause", "s", "--note", "holidays")
	s.try(0, "status_not_triggerable", "schedules", "trigger", "s")
	s.try(0, "holidays", "schedules", "describe", "s")
	s.try(0, "resumed s", "schedules", "resume", "s")
	s.try(0, "ScheduleTriggered", "schedules", "history", "s")
	s.try(0, "deleted s", "schedules", "delete", "s")
	s.try(1, "schedule_not_found", "schedules", "describe", "s")
}

func TestWorkersSessionsAndNamespacesAreSeenFromAShell(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	s.try(0, "local", "workers")
	s.try(0, "tour.basket", "workers", "describe", "local")
	s.try(1, "worker_not_found", "workers", "describe", "nobody")
	s.try(0, "", "workflow", "result", "sample") // it used a session
	var sessions []struct {
		ID string `json:"session_id"`
	}
	if s.read(&sessions, "sessions"); len(sessions) == 0 {
		t.Fatal("no session is listed")
	}
	id := sessions[0].ID
	s.try(0, "claimed", "sessions", "describe", id)
	s.try(0, "completed", "sessions", "attempts", id)
	s.try(0, "claimed", "sessions", "timeline", id)
	s.try(1, "session_not_active", "sessions", "migrate", id)
	s.try(1, "worker_session_not_found", "sessions", "close", "none")

	s.try(0, "created team, closed runs are kept for 7 days", "namespaces", "create", "team", "--retention-days", "7")
	s.try(1, "namespace_already_exists", "namespaces", "create", "team")
	s.try(0, "updated team, closed runs are kept for 7 days", "namespaces", "update", "team", "--description", "ours")
	s.try(0, "ours", "namespaces")
	s.try(0, "started_new", "workflow", "start", "x", "--id", "x", "--namespace", "team")
	s.try(1, "instance_not_found", "workflow", "describe", "x")
	s.try(0, "running", "workflow", "describe", "x", "--namespace", "team")
	s.try(2, "nothing was deleted", "namespaces", "delete", "team") // no input
	s.try(2, "Namespace team: 1 open runs, ", "namespaces", "delete", "team")
	s.try(0, "ours", "namespaces")
	s.try(0, "deleted team", "namespaces", "delete", "team", "--yes")
	s.try(0, "deregistered local", "workers", "remove", "local")
}
