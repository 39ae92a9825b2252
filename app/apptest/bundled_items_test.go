package apptest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// badOutcomes are items of a completion that must be refused, by the reason. %s is replaced by the members that
// identify a leased attempt.
var badOutcomes = map[string]struct{ item, reason string }{
	"a number":                  {`7`, "validation_failed"},
	"null":                      {`null`, "validation_failed"},
	"a list":                    {`[]`, "validation_failed"},
	"an empty object":           {`{}`, "validation_failed"},
	"a task ID of another type": {`{"kind":"activity","task_id":7,"lease_owner":"w","result":1}`, "validation_failed"},
	"an unknown task":           {`{"kind":"activity","task_id":"none-1","lease_owner":"w","activity_attempt_id":"none-1-1"}`, "task_not_found"},
	"a task ID with NUL":        {`{"kind":"workflow","task_id":"a\u0000","lease_owner":"w","workflow_task_attempt":1}`, "validation_failed"},
	"a failure of another type": {`{%s,"failure":"it broke"}`, "validation_failed"},
	"a message of another type": {`{%s,"failure":{"message":7}}`, "validation_failed"},
	"an unknown codec":          {`{%s,"result":{"codec":"xml","blob":"eA=="}}`, "unsupported_payload_codec"},
	"an epoch that is text":     {`{%s,"session_epoch":"one"}`, "validation_failed"},
	"NUL in code_version":       {`{%s,"code_version":"a\u0000"}`, "validation_failed"},
	"another namespace":         {`{%s,"namespace":"other"}`, "validation_failed"},
	"lines of another type":     {`{%s,"lines":[{"part":"one"}]}`, "validation_failed"},
	"another worker's lease":    {`{%s,"lease_owner":"v"}`, "lease_owner_mismatch"},
	"a result above the limit":  {`{%s,"result":{"codec":"avro","blob":"` + strings.Repeat("AAAA", 1<<20) + `"}}`, "payload_too_large"},
}

// activityRun starts an activity run and leases its task. It also returns the members of an item of a completion that
// identify the attempt.
func (h hand) activityRun(id string) (task handTask, of string) {
	h.t.Helper()
	h.want(201, "POST", "/api/sojourn/activities", fmt.Sprintf(
		`{"activity_type":"step","workflow_id":%q,"task_queue":%q}`, id, handQueue))
	task = h.poll("activity")
	return task, fmt.Sprintf(`"kind":"activity","task_id":%q,"lease_owner":"w","activity_attempt_id":%q`,
		task.text("task_id"), task.text("activity_attempt_id"))
}

// completeItems sends a completion with several items and returns the response to each item.
func (c caller) completeItems(items []string) (r response, answers []handTask) {
	c.t.Helper()
	r = c.want(200, "POST", "/api/worker/tasks/complete", `{"items":[`+strings.Join(items, ",")+`]}`)
	all, _ := r.body["items"].([]any)
	for _, one := range all {
		answers = append(answers, one.(map[string]any))
	}
	if len(answers) != len(items) {
		c.t.Fatalf("%d responses to %d items: %s", len(answers), len(items), r.raw)
	}
	return r, answers
}

// wantCompleted checks that the latest run of a workflow has completed.
func (c caller) wantCompleted(id string) {
	c.t.Helper()
	if run := c.want(200, "GET", "/api/workflows/"+id, ""); run.text("status") != "completed" {
		c.t.Errorf("%s: %s", id, run.raw)
	}
}

// A refused item of a bundle is reported at its position, whatever its error and position. The outcomes of other runs
// are recorded at once, once, and with their own results.
func TestARefusedOutcomeAffectsNoOther(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, other := apptest.Two(t, apptest.Options{Database: database})
		w := register(caller{t, a, ""}, "w", "")
		through := caller{t, other, ""}
		n := 0
		for _, name := range slices.Sorted(maps.Keys(badOutcomes)) {
			bad := badOutcomes[name]
			for place := range 3 {
				var items []string
				var tasks []handTask
				for range 3 {
					n++
					task, of := w.activityRun(fmt.Sprint("run-", n))
					tasks = append(tasks, task)
					item := fmt.Sprintf(`{%s,"result":%s}`, of, envelope(t, fmt.Sprint(n)))
					if len(items) == place {
						item = bad.item
						if strings.Contains(item, "%s") {
							item = fmt.Sprintf(item, of)
						}
					}
					items = append(items, item)
				}
				got, answers := through.completeItems(items)
				for i, answer := range answers {
					refusal, _ := answer["error"].(map[string]any)
					switch {
					case i == place && (answer["recorded"] != false || answer["reason"] != bad.reason ||
						refusal["reason"] != bad.reason):
						t.Errorf("%s at %d: want %s: %s", name, place, bad.reason, got.raw)
					case i != place && (answer["recorded"] != true || refusal != nil):
						t.Errorf("%s at %d affects the outcome at %d: %s", name, place, i, got.raw)
					}
				}
				// The refused attempt is still leased: its next outcome counts.
				if task := tasks[place]; true {
					w.want(200, "POST", stepPath(task, "complete"), w.stepBody(task, `,"result":`+envelope(t, `"own"`)))
				}
				for i := range tasks {
					through.wantCompleted(fmt.Sprint("run-", n-2+i))
				}
			}
		}
	})
}

// If the next poll is malformed or refused, only the member next reports it; the outcomes are recorded.
func TestARefusedNextPollAffectsNoOutcome(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		w := register(caller{t, a, ""}, "w", "")
		for i, c := range []struct{ next, reason string }{
			{`7`, "validation_failed"},
			{`{"worker_id":7}`, "validation_failed"},
			{`{"worker_id":"w\u0000"}`, "validation_failed"},
			{`{"worker_id":"w","kinds":["tea"]}`, "validation_failed"},
			{`{"worker_id":"w","timeout_seconds":-1}`, "validation_failed"},
			{`{"worker_id":"w","namespace":"other"}`, "validation_failed"},
			{`{"worker_id":"w","queues":["other"]}`, "task_queue_mismatch"},
			{`{"worker_id":"w","build_id":"other"}`, "build_id_mismatch"},
			{`{"worker_id":"nobody"}`, "worker_not_registered"},
		} {
			w.want(201, "POST", "/api/sojourn/activities", fmt.Sprintf(
				`{"activity_type":"step","workflow_id":"run-%d","task_queue":%q}`, i, handQueue))
			task := w.poll("activity")
			got := w.want(200, "POST", "/api/worker/tasks/complete", fmt.Sprintf(
				`{"items":[{"kind":"activity","task_id":%q,"lease_owner":"w","activity_attempt_id":%q}],"next":%s}`,
				task.text("task_id"), task.text("activity_attempt_id"), c.next))
			items, _ := got.body["items"].([]any)
			next, _ := got.body["next"].(map[string]any)
			refusal, _ := next["error"].(map[string]any)
			if len(items) != 1 || items[0].(map[string]any)["recorded"] != true {
				t.Errorf("%s: the outcome: %s", c.next, got.raw)
			}
			if next["poll_status"] != "refused" || refusal["reason"] != c.reason {
				t.Errorf("%s: want next refused with %s: %s", c.next, c.reason, got.raw)
			}
		}
		// A request of a process that another one superseded is refused as a whole.
		register(w.caller, "s", `,"incarnation":"one"`)
		register(w.caller, "s", `,"incarnation":"two"`)
		w.want(201, "POST", "/api/sojourn/activities", `{"activity_type":"step","workflow_id":"last","task_queue":"`+handQueue+`"}`)
		task := w.poll("activity")
		unchanged(t, a, "a superseded process", func() {
			got := w.ask("POST", "/api/worker/tasks/complete", fmt.Sprintf(
				`{"items":[{"kind":"activity","task_id":%q,"lease_owner":"w","activity_attempt_id":%q}],
				"next":{"worker_id":"s","incarnation":"one"}}`, task.text("task_id"), task.text("activity_attempt_id")))
			if got.text("reason") != "stale_worker_registration" {
				t.Errorf("a superseded process: %s", got.raw)
			}
		})
	})
}

// Lines, leases and sessions that cannot be decoded get an error in their place; the others of their request are
// processed.
func TestAMalformedRenewalOrChunkAffectsNoOther(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		w := register(caller{t, a, ""}, "w", "")
		var tasks []handTask
		for i := range 2 {
			w.want(201, "POST", "/api/sojourn/activities", fmt.Sprintf(
				`{"activity_type":"step","workflow_id":"run-%d","task_queue":%q,"session_id":"s-%d"}`, i, handQueue, i))
			tasks = append(tasks, w.poll("activity"))
		}
		for _, bad := range []string{
			`7`, `{"task_id":7}`, `{"task_id":"x","lease_owner":"w","activity_attempt_id":"x","lines":"text"}`, `{"task_id":"\u0000"}`,
		} {
			if got := w.logs(logItem(tasks[0], "w", 0, "one"), bad, logItem(tasks[1], "w", 0, "two")); got !=
				"recorded validation_failed recorded" {
				t.Errorf("lines beside %s: %s", bad, got)
			}
		}
		lease := func(t handTask) string {
			return fmt.Sprintf(`{"task_id":%q,"activity_attempt_id":%q}`, t.text("task_id"), t.text("activity_attempt_id"))
		}
		session := func(i int) string {
			affinity, _ := tasks[i]["worker_session"].(map[string]any)
			return fmt.Sprintf(`{"session_id":"s-%d","epoch":%d}`, i, handTask(affinity).number("epoch"))
		}
		for _, bad := range []string{
			`7`, `"x"`, `{"task_id":7,"session_id":7}`, `{"task_id":"\u0000","session_id":"\u0000"}`,
			`{"workflow_task_attempt":"one","epoch":"one"}`,
		} {
			got := w.want(200, "POST", "/api/worker/heartbeat", fmt.Sprintf(
				`{"worker_id":"w","leases":[%s,%s,%s],"sessions":[%s,%s,%s]}`,
				lease(tasks[0]), bad, lease(tasks[1]), session(0), bad, session(1)))
			leases, _ := got.body["leases"].([]any)
			sessions, _ := got.body["sessions"].([]any)
			if len(leases) != 3 || len(sessions) != 3 {
				t.Fatalf("%s: %s", bad, got.raw)
			}
			for i := range 3 {
				l, s := leases[i].(map[string]any), sessions[i].(map[string]any)
				if (l["heartbeat_recorded"] == true) != (i != 1) || (s["held"] == true) != (i != 1) ||
					i == 1 && l["reason"] != "validation_failed" {
					t.Errorf("beside %s, %d: %s", bad, i, got.raw)
				}
			}
		}
	})
}
