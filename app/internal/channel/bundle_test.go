package channel_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// badJobs are outcomes that must be rejected, by their reason. JOB is replaced by the members that name a job.
var badJobs = []struct{ name, item, reason string }{
	{"a number", `7`, "validation_failed"},
	{"an empty object", `{}`, "validation_failed"},
	{"a job ID of another type", `{"jobId":7,"token":"t","status":"OK"}`, "validation_failed"},
	{"a token that is none", `{"jobId":"x","token":"t","status":"OK"}`, "malformed_payload"},
	{"a status that is none", `{JOB,"status":"FINE"}`, "validation_failed"},
	{"a status of another type", `{JOB,"status":1}`, "validation_failed"},
	{"a response of another type", `{JOB,"status":"OK","response":"text"}`, "validation_failed"},
	{"a failure of another type", `{JOB,"status":"USER_FAILURE","response":{"failure":7}}`, "validation_failed"},
	{"an epoch that is text", `{JOB,"status":"OK","response":{"session_epoch":"one"}}`, "validation_failed"},
	{"NUL in code_version", `{JOB,"status":"OK","response":{"code_version":"a\u0000"}}`, "validation_failed"},
	{
		"a result above the limit",
		`{JOB,"status":"OK","response":{"result":{"codec":"avro","blob":"` + strings.Repeat("AAAA", 1<<20) + `"}}}`,
		"payload_too_large",
	},
}

// As over HTTP, a rejected outcome at any position of a call does not affect the others.
func TestARefusedJobAffectsNoOther(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		w := join(t, a, "w", "test")
		call[protocol.RegisterResponse](w, protocol.MethodRegister, protocol.RegisterRequest{ActivityTypes: []string{"work"}})
		for _, c := range badJobs {
			for place := range 3 {
				var items []json.RawMessage
				var runs []string
				var bad protocol.Job
				for i := range 3 {
					started, err := a.Broker().StartActivity(within(t), protocol.ActivityRequest{ActivityType: "work"})
					if err != nil {
						t.Fatal(err)
					}
					runs = append(runs, started.RunID)
					j := w.job(nil)
					job := `"jobId":"` + j.ID + `","token":"` + j.Token + `"`
					item := `{` + job + `,"status":"OK","response":{"result":` + text(encode(t, i)) + `}}`
					if i == place {
						item, bad = strings.ReplaceAll(c.item, "JOB", job), j
					}
					items = append(items, json.RawMessage(item))
				}
				got := call[protocol.ChannelCompleteResponse](w, protocol.MethodCompleteJob, map[string]any{"items": items})
				if len(got.Items) != 3 {
					t.Fatalf("%s at %d: %s", c.name, place, text(got))
				}
				for i, r := range got.Items {
					switch {
					case i == place && (r.Recorded || r.Reason != c.reason || r.Error == nil || string(r.Error.Reason) != c.reason):
						t.Errorf("%s at %d: want %s: %s", c.name, place, c.reason, text(r))
					case i != place && (!r.Recorded || r.Error != nil):
						t.Errorf("%s at %d affects the outcome at %d: %s", c.name, place, i, text(r))
					case i != place:
						has[*history.ActivityCompleted](t, a, runs[i])
					}
				}
				w.ok(bad, map[string]any{"result": encode(t, "own")}) // it is still leased
				has[*history.ActivityCompleted](t, a, runs[place])
			}
		}
	})
}

// A malformed or rejected next poll sets next to null in the form for one job, and the outcome is stored.
func TestARefusedNextPollAffectsNoJob(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: withTokens})
	w := enter(t, a, mint(t, a, "blue", ""), "w", "blue")
	for _, c := range []struct{ next, reason string }{
		{`7`, "validation_failed"},
		{`{"max":"one"}`, "validation_failed"},
		{`{"max":1,"kinds":["tea"]}`, "validation_failed"},
		{`{"max":1,"queues":["red"]}`, "forbidden"},
		{`{"max":1,"buildId":"other"}`, "build_id_mismatch"},
	} {
		for _, many := range []bool{false, true} {
			started, err := a.Broker().StartActivity(within(t), protocol.ActivityRequest{
				ActivityType: "work", TaskQueue: "blue",
			})
			if err != nil {
				t.Fatal(err)
			}
			j := w.job(nil)
			in := map[string]any{"jobId": j.ID, "token": j.Token, "status": "OK", "response": json.RawMessage(`{}`)}
			if many {
				in = map[string]any{"items": []any{in}}
			}
			in["next"] = json.RawMessage(c.next)
			raw := call[json.RawMessage](w, protocol.MethodCompleteJob, in)
			for _, want := range []string{`"recorded":true`, `"pollStatus":"refused"`, `"reason":"` + c.reason + `"`} {
				if many && !strings.Contains(string(raw), want) {
					t.Errorf("%s: want %s: %s", c.next, want, raw)
				}
			}
			has[*history.ActivityCompleted](t, a, started.RunID)
		}
	}
}

// Over the socket too, lines and renewals that cannot be decoded get an error in their place.
func TestAMalformedRenewalOrChunkAffectsNoOtherOnTheSocket(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s, w := scheduler(t, a), join(t, a, "w", "test")
	schedule(t, a, s, 1)
	j := w.job(nil)
	line := map[string]any{"jobId": j.ID, "token": j.Token, "lines": []protocol.LogLine{{Level: "info", Text: "half way"}}}
	for _, bad := range []string{`7`, `{"jobId":7}`, `{"jobId":"x","lines":"text"}`} {
		got := call[protocol.JobLogsResponse](
			w, protocol.MethodUploadLogs, map[string]any{"items": []any{json.RawMessage(bad), line}},
		)
		if len(got.Items) != 2 || got.Items[0].Reason != protocol.ReasonValidation || !got.Items[1].Recorded {
			t.Errorf("lines beside %s: %s", bad, text(got))
		}
		lease := map[string]any{"task_id": j.ID, "activity_attempt_id": j.Task.Activity.AttemptID}
		beat := call[protocol.WorkerHeartbeatResponse](
			w, protocol.MethodHeartbeat, map[string]any{"leases": []any{json.RawMessage(bad), lease}, "draining": false},
		)
		if len(beat.Leases) != 2 || beat.Leases[0].Renewed || !beat.Leases[1].Renewed {
			t.Errorf("leases beside %s: %s", bad, text(beat))
		}
	}
}
