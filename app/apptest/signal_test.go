package apptest_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// listens registers a worker that declares signals of the type flow.
func listens(c caller, id, signals string) hand {
	c.t.Helper()
	return register(c, id, `,"workflow_command_contracts":{"flow":{"signals":`+signals+`,"queries":[],"updates":[]}}`)
}

func TestASignalTheTypeDoesNotHaveIsRefused(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		c.start("flow-1")
		send := func(status int, name, body string) response {
			t.Helper()
			return c.want(status, "POST", "/api/workflows/flow-1/signal/"+name, body)
		}
		send(202, "early", `{}`) // while no worker runs the type
		listens(c, "w1", `["go"]`)
		unchanged(t, a, "an unknown signal", func() {
			if s := send(404, "gone", `{}`); s.text("reason") != "unknown_signal" ||
				s.text("outcome") != "rejected_unknown_signal" {
				t.Errorf("an unknown signal: %s", s.brief())
			}
		})
		send(202, "go", `{"request_id":"r1"}`)
		listens(c, "w2", `["stop"]`) // one process knows more than the other: either may get the run
		send(202, "go", `{}`)
		send(202, "stop", `{}`)
		send(404, "gone", `{}`)
		listens(c, "w1", `["halt"]`)
		if s := send(202, "go", `{"request_id":"r1"}`); s.body["retained"] != true {
			// the signal was received, whatever workers declare now
			t.Errorf("the same request again: %s", s.brief())
		}
		listens(c, "w3", `[]`)
		send(202, "gone", `{}`)
		c.want(200, "POST", "/api/workflows/flow-1/terminate", `{}`)
		listens(c, "w3", `["go"]`)
		if s := send(409, "gone", `{}`); s.text("reason") != "run_not_active" {
			t.Errorf("a closed run: %s", s.brief())
		}
	})
}

// The signals that a worker declared at one app are known at every app.
func TestAnotherAppKnowsTheSignalsOfAType(t *testing.T) {
	database := apptest.Postgres(t)
	first, second := apptest.Start(t, apptest.Options{Database: database}),
		apptest.Start(t, apptest.Options{Database: database})
	here, there := caller{t, first, ""}, caller{t, second, ""}
	listens(here, "w1", `["go"]`)
	there.start("flow-1")
	there.want(404, "POST", "/api/workflows/flow-1/signal/gone", `{}`)
	there.want(202, "POST", "/api/workflows/flow-1/signal/go", `{}`)
}
