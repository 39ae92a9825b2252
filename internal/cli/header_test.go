package cli_test

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
)

func registerHeaders(r *worker.Registry) {
	tenant := func(ctx context.Context) (string, error) { return activity.Headers(ctx)["tenant"], nil }
	r.Activity("headers.read", tenant)
	r.Activity("headers.isolated", tenant, activity.Isolated)
}

// Headers of starts, signals, updates and actions of schedules are in the history, and a flag without a name and a
// value is a usage error.
func TestHeadersAreSetFromAShell(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	headersOf := func(id, event string) map[string]string {
		t.Helper()
		for line := range strings.Lines(s.try(0, event, "workflow", "history", id, "--json")) {
			var e struct {
				Type    string `json:"event_type"`
				Payload struct {
					Headers map[string]string
				}
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			if e.Type == event {
				return e.Payload.Headers
			}
		}
		t.Errorf("%s has no event %s", id, event)
		return nil
	}
	check := func(id, event string) {
		t.Helper()
		if got := headersOf(id, event); !maps.Equal(got, map[string]string{"tenant": "a=b", "empty": ""}) {
			t.Errorf("%s of %s: headers %q", event, id, got)
		}
	}
	with := func(args ...string) []string { return append(args, "--header", "tenant=a=b", "--header", "empty=") }
	s.try(0, "started_new b", with("workflow", "start", "tour.basket", "--id", "b", "--input", "[2]")...)
	check("b", "WorkflowStarted")
	s.try(0, "1", with("workflow", "update", "b", "add", "--input", `["pear"]`)...)
	check("b", "UpdateAccepted")
	s.try(0, "pear", with("workflow", "query", "b", "items")...)
	s.try(0, "started_new, signal_received w", with("workflow", "signal-with-start", "tour.basket", "--id", "w", "--signal", "s")...)
	check("w", "WorkflowStarted")
	check("w", "SignalReceived")
	s.try(0, "signal_received", with("workflow", "signal", "b", "s")...)
	check("b", "SignalReceived")
	s.try(0, "started_new", with("activity", "run", "none", "--id", "a", "--detach")...)
	check("a", "ActivityScheduled")
	s.try(0, `"a=b"`, with("activity", "run", "headers.read")...)
	s.try(0, `"a=b"`, with("activity", "run", "headers.isolated")...)
	s.try(0, "created n", with("schedules", "create", "n", "--every", "1h", "--type", "tour.greeting")...)
	var fired struct {
		WorkflowID string `json:"workflow_id"`
	}
	s.read(&fired, "schedules", "trigger", "n")
	check(fired.WorkflowID, "WorkflowStarted")
	s.try(2, "--header requires NAME=VALUE", "workflow", "signal", "b", "s", "--header", "tenant")
	s.try(2, "--header a is set twice", "workflow", "signal", "b", "s", "--header", "a=1", "--header", "a=2")
	s.try(2, "require --type or --activity", "schedules", "update", "n", "--header", "a=1")
}
