package apptest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// An end_session command for a session that the workflow never started writes no event, whether the session does not
// exist or has another origin or workflow. The response has a warning with its ID. The other commands of the completion
// keep their command sequences, and a session that the workflow started ends.
func TestTheEndOfASessionThatWasNeverStartedIsAWarning(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		w := register(c, "w", "")
		other := c.start("other") + "-1"
		w.decide(w.poll("workflow"), `{"type":"start_session"}`, `{"type":"start_timer","delay_seconds":3600}`)
		run := c.start("flow")
		end := func(id string) string { return fmt.Sprintf(`{"type":"end_session","session_id":%q}`, id) }
		history := func() (list []string) {
			page := c.want(200, "GET", "/api/workflows/flow/runs/"+run+"/history", "")
			events, _ := page.body["events"].([]any)
			for _, e := range events {
				event := e.(map[string]any)
				payload, _ := event["payload"].(map[string]any)
				number := payload["sequence"]
				if number == nil {
					number = payload["command_sequence"]
				}
				list = append(list, strings.TrimSpace(fmt.Sprint(event["event_type"], " ", number, " ", payload["effect"])))
			}
			return list
		}
		warned := func(r response, want ...string) {
			t.Helper()
			list, _ := r.body["warnings"].([]any)
			var got []string
			for _, w := range list {
				w := w.(map[string]any)
				got = append(got, fmt.Sprint(w["code"], " ", w["subject"]))
				if w["message"] == "" {
					t.Errorf("a warning without a message: %s", r.raw)
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
		}

		first := w.poll("workflow")
		body := w.flowBody(first, `,"commands":[`+strings.Join([]string{
			end("never"), `{"type":"start_session"}`, inSession("implicit"), end("implicit"), end(other), end(run + "-2"),
			end(run + "-2"), `{"type":"start_timer","delay_seconds":1}`, end("never"),
		}, ",")+`]`)
		r := c.want(200, "POST", flowPath(first, "complete"), body)
		warned(r, "session_missing never", "session_missing implicit", "session_missing "+other, "session_missing never")
		if r.body["recorded"] != true || r.text("outcome") != "completed" {
			t.Errorf("got %s", r.raw)
		}
		want := []string{
			"WorkflowStarted <nil> <nil>", "SessionStarted 2 <nil>", "ActivityScheduled 3 <nil>", "SessionEnded 6 ended",
			"SessionEnded 7 already_ended", "TimerScheduled 8 <nil>",
		}
		if d := cmp.Diff(want, history()); d != "" {
			t.Fatalf("history (-want +got):\n%s", d)
		}
		// The same report again returns the same outcome, and changes nothing.
		if out := c.want(200, "POST", flowPath(first, "complete"), body); out.text("reason") != "already_completed" {
			t.Errorf("again: %s", out.raw)
		}
		for _, id := range []string{other, "implicit"} {
			s := c.want(200, "GET", "/api/worker-sessions/"+id, "")
			if session, _ := s.body["session"].(map[string]any); session["status"] != "active" {
				t.Errorf("session %s is no longer active: %s", id, s.raw)
			}
		}

		// The pending end_session is sent again with the next completion. Alone it changes nothing.
		second := w.poll("workflow")
		warned(w.decide(second, end("never")), "session_missing never")
		if got := history(); len(got) != len(want)+1 {
			t.Errorf("a completion without effect wrote %v", got[len(want)+1:])
		}
		act := w.poll("activity")
		c.want(200, "POST", stepPath(act, "complete"), w.stepBody(act, `,"result":1`))
		third := w.poll("workflow")
		r = w.decide(third, end("never"), finish)
		warned(r, "session_missing never")
		got := history()
		if last := got[len(got)-1]; last != "WorkflowCompleted <nil> <nil>" {
			t.Errorf("the run ended with %s", last)
		}
		if strings.Count(strings.Join(got, " "), "SessionEnded") != 2 {
			t.Errorf("history: %v", got)
		}

		// A batch of completions has the warnings in its items.
		c.start("many")
		task := w.poll("workflow")
		r = c.want(200, "POST", "/api/worker/tasks/complete", fmt.Sprintf(
			`{"items":[{"kind":"workflow","task_id":%q,"lease_owner":"w","workflow_task_attempt":1,"commands":[%s,%s]}]}`,
			task.text("task_id"), end("never"), finish,
		))
		items, _ := r.body["items"].([]any)
		if len(items) != 1 {
			t.Fatalf("got %s", r.raw)
		}
		item, _ := items[0].(map[string]any)
		r.body = item
		warned(r, "session_missing never")
	})
}
