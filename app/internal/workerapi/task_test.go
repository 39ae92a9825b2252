package workerapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func handler(f *fake) http.Handler {
	a := auth.New(auth.Options{Store: tokens{}, Bootstrap: secret})
	return workerapi.New(workerapi.Options{Verbs: f, Claims: f, Workers: f, Auth: a})
}

// item returns the single outcome that the broker received.
func item(t *testing.T, f *fake) protocol.CompleteItem {
	t.Helper()
	in := last[protocol.CompleteRequest](t, f)
	if len(in.Items) != 1 {
		t.Fatalf("got %d items", len(in.Items))
	}
	return in.Items[0]
}

func plain(t *testing.T, p payload.Payload) string {
	t.Helper()
	if p.IsZero() {
		return "none"
	}
	raw, err := payload.ToJSON(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestAnActivityResultMayBeAnEnvelopeOrPlainJSON(t *testing.T) {
	p, err := payload.FromJSON([]byte(`{"n":1}`))
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{complete: protocol.CompleteResponse{Outcome: "completed", Recorded: true}}
	s := server(t, f, nil)
	for result, want := range map[string]string{
		`"result":{"codec":"avro","blob":"` + p.Blob + `"}`:     `{"n":1}`,
		`"payload_codec":"avro","result":"` + p.Blob + `"`:      `{"n":1}`,
		`"result":"` + p.Blob + `"`:                             `"` + p.Blob + `"`,
		`"result":{"codec":"h264"}`:                             `{"codec":"h264"}`,
		`"result":[1,2.5,null,true]`:                            `[1,2.5,null,true]`,
		`"result":7`:                                            `7`,
		`"result":null`:                                         `none`,
		`"unknown":1`:                                           `none`,
		`"result":{"deep":{"blob":"x","codec":"y"}},"extra":""`: `{"deep":{"blob":"x","codec":"y"}}`,
	} {
		got := ask(
			t, s, "POST", "/api/worker/activity-tasks/r-3/complete",
			`{"activity_attempt_id":"r-3-1","lease_owner":"w",`+result+`}`, nil,
		)
		if got.status != 200 || got.text("outcome") != "completed" || got.body["recorded"] != true ||
			got.body["reason"] != nil {
			t.Errorf("%s: got %d %v", result, got.status, got.body)
			continue
		}
		i := item(t, f)
		if i.Kind != protocol.KindActivity || i.TaskID != "r-3" || i.AttemptID != "r-3-1" || i.Owner != "w" ||
			i.Namespace != "default" {
			t.Errorf("%s: item %+v", result, i)
		}
		if got := plain(t, i.Result); got != want {
			t.Errorf("%s: got %s, want %s", result, got, want)
		}
	}
	before := f.called()
	for result, want := range map[string]protocol.Reason{
		`{"codec":"json","blob":"e30="}`:                    protocol.ReasonUnsupportedCodec,
		`{"codec":"avro","blob":7}`:                         protocol.ReasonValidation,
		`99999999999999999999`:                              protocol.ReasonValidation,
		strings.Repeat("[", 600) + strings.Repeat("]", 600): protocol.ReasonValidation,
	} {
		got := ask(
			t, s, "POST", "/api/worker/activity-tasks/r-3/complete",
			`{"activity_attempt_id":"r-3-1","lease_owner":"w","result":`+result+`}`, nil,
		)
		if got.status != 422 || got.text("reason") != string(want) {
			t.Errorf("%.60s: got %d %v", result, got.status, got.body["reason"])
		}
	}
	if f.called() != before {
		t.Error("a wrong result reached the broker")
	}
}

func TestAFailureIsReadInEveryFormClientsSend(t *testing.T) {
	f := &fake{complete: protocol.CompleteResponse{Outcome: "failed", Recorded: true}}
	s := server(t, f, nil)
	for body, want := range map[string]protocol.Failure{
		`"failure":{"message":"m","type":"T","class":"p.T","non_retryable":true,"code":7}`: {
			Message: "m", Type: "T", Class: "p.T", NonRetryable: true, Code: json.RawMessage(`7`),
		},
		`"failure":{"error":"m","exception_type":"T","exception_class":"p.T"}`: {Message: "m", Type: "T", Class: "p.T"},
		`"failure":"m"`:                        {Message: "m"},
		`"message":"m","type":"T"`:             {Message: "m", Type: "T"},
		`"error":"m"`:                          {Message: "m"},
		`"failure":{"type":"OnlyAType"}`:       {Message: "OnlyAType", Type: "OnlyAType"},
		`"failure":{"message":"m","x":[1,{}]}`: {Message: "m"},
	} {
		got := ask(
			t, s, "POST", "/api/worker/activity-tasks/r-3/fail", `{"attempt_id":"r-3-1","lease_owner":"w",`+body+`}`, nil,
		)
		if got.status != 200 || got.text("outcome") != "failed" {
			t.Errorf("%s: got %d %v", body, got.status, got.body)
			continue
		}
		i := item(t, f)
		have, _ := json.Marshal(i.Failure)
		wantJSON, _ := json.Marshal(want)
		if string(have) != string(wantJSON) || i.AttemptID != "r-3-1" {
			t.Errorf("%s: got %s of %s, want %s", body, have, i.AttemptID, wantJSON)
		}
	}
	for body, field := range map[string]string{
		`{"failure":{}}`: "failure.message", `{}`: "failure", `{"failure":{"message":7}}`: "failure.message",
		`{"failure":[]}`:                     "failure",
		`{"failure":{"non_retryable":"no"}}`: "failure.non_retryable",
	} {
		got := ask(t, s, "POST", "/api/worker/workflow-tasks/r-1-workflow/fail",
			strings.TrimSuffix(
				`{"lease_owner":"w","workflow_task_attempt":1,`+body[1:], ",}",
			)+map[bool]string{true: "}"}[body == "{}"], nil)
		errors, _ := got.body["errors"].(map[string]any)
		if got.status != 422 || errors[field] == nil {
			t.Errorf("%s: got %d %v, want field %s", body, got.status, got.body, field)
		}
	}
}

func TestPlainFailureDetailsBecomeAnEnvelopeAndEnvelopesStay(t *testing.T) {
	f := &fake{complete: protocol.CompleteResponse{Outcome: "failed"}}
	s := server(t, f, nil)
	ask(
		t, s, "POST", "/api/worker/activity-tasks/r-3/fail",
		`{"activity_attempt_id":"r-3-1","lease_owner":"w","failure":{"message":"m","details":{"a":1}}}`, nil,
	)
	var p payload.Payload
	if err := json.Unmarshal(item(t, f).Failure.Details, &p); err != nil || plain(t, p) != `{"a":1}` {
		t.Errorf("got %s, %v", item(t, f).Failure.Details, err)
	}
	ask(
		t, s, "POST", "/api/worker/activity-tasks/r-3/fail",
		`{"activity_attempt_id":"r-3-1","lease_owner":"w","failure":{"message":"m","details":{"codec":"x","blob":"y"}}}`, nil,
	)
	if got := string(item(t, f).Failure.Details); got != `{"codec":"x","blob":"y"}` {
		t.Errorf("got %s", got)
	}
}

func TestAWorkflowCompletionCarriesItsCommands(t *testing.T) {
	next := "r-2-workflow"
	f := &fake{
		complete: protocol.CompleteResponse{
			Outcome: "completed", Recorded: true, RunID: "r", RunStatus: "waiting", NextTaskID: &next,
		},
	}
	s := server(t, f, nil)
	got := ask(t, s, "POST", "/api/worker/workflow-tasks/r-1-workflow/complete",
		`{"lease_owner":"w","workflow_task_attempt":3,"commands":[
		{"type":"schedule_activity","activity_type":"a","future":{}},{"type":"start_timer","delay_seconds":5}],"sticky_cache":null}`, nil)
	if got.status != 200 || got.text("run_status") != "waiting" || got.body["created_task_ids"] == nil ||
		got.body["workflow_task_attempt"] != 3.0 {
		t.Errorf("got %d %v", got.status, got.body)
	}
	i := item(t, f)
	if i.Kind != protocol.KindWorkflow || i.Attempt != 3 || len(i.Commands) != 2 || i.Commands[0].ActivityType != "a" ||
		*i.Commands[1].Delay != 5 {
		t.Errorf("item %+v", i)
	}
	got = ask(
		t, s, "POST", "/api/worker/workflow-tasks/r-1-workflow/complete",
		`{"commands":[{},{"type":"start_timer","delay_seconds":"5"}]}`, nil,
	)
	if fields, _ := got.body["errors"].(map[string]any); got.status != 422 || fields["commands.1.delay_seconds"] == nil {
		t.Errorf("got %d %v", got.status, got.body)
	}
}

func TestHeartbeatsContainTheProgressOfTheAttempt(t *testing.T) {
	f := &fake{beat: protocol.HeartbeatResponse{TaskID: "r-3", Renewed: true, CanContinue: true, RunStatus: "running"}}
	s := server(t, f, nil)
	got := ask(t, s, "POST", "/api/worker/activity-tasks/r-3/heartbeat",
		`{"activity_attempt_id":"r-3-1","lease_owner":"w","message":"half","current":5,"total":10,"unit":null,"session_epoch":4}`, nil)
	if got.status != 200 || got.body["can_continue"] != true || got.body["heartbeat_recorded"] != true ||
		got.body["cancel_requested"] != false {
		t.Errorf("got %d %v", got.status, got.body)
	}
	in := last[protocol.HeartbeatRequest](t, f)
	var progress map[string]any
	if err := json.Unmarshal(in.Progress, &progress); err != nil || len(progress) != 3 || progress["message"] != "half" ||
		progress["current"] != 5.0 {
		t.Errorf("progress %s", in.Progress)
	}
	if !in.Beat || in.Kind != protocol.KindActivity || in.Epoch != 4 {
		t.Errorf("request %+v", in)
	}
	got = ask(
		t, s, "POST", "/api/worker/workflow-tasks/r-1-workflow/heartbeat", `{"lease_owner":"w","workflow_task_attempt":2}`,
		nil,
	)
	if got.body["renewed"] != true || got.text("task_status") != "leased" || got.text("run_status") != "running" ||
		got.text("lease_owner") != "w" {
		t.Errorf("got %v", got.body)
	}
}

func TestAnUnknownWorkersHeartbeatIsNotFound(t *testing.T) {
	s := server(t, &fake{err: protocol.Refuse(protocol.ReasonWorkerNotRegistered, "who")}, nil)
	if got := ask(t, s, "POST", "/api/worker/heartbeat", `{"worker_id":"w"}`, nil); got.status != 404 ||
		got.text("worker_id") != "w" {
		t.Errorf("heartbeat: got %d %v", got.status, got.body)
	}
	if got := ask(t, s, "POST", "/api/worker/activity-tasks/poll", `{"worker_id":"w"}`, nil); got.status != 412 {
		t.Errorf("poll: got %d", got.status)
	}
}

func TestItemsOfABatchAreHandledSeparately(t *testing.T) {
	f := &fake{complete: protocol.CompleteResponse{Err: protocol.Refuse(protocol.ReasonStaleAttempt, "old")}}
	s := server(t, f, nil)
	got := ask(t, s, "POST", "/api/worker/tasks/complete",
		`{"items":[{"task_id":"r-3","activity_attempt_id":"r-3-1"},{"task_id":"r-1-workflow",
		"workflow_task_attempt":1}],"next":{"worker_id":"w","max":4}}`, map[string]string{workerapi.VersionHeader: "", workerapi.ReleaseHeader: "1.0"})
	if got.status != 200 {
		t.Fatalf("got %d %v", got.status, got.body)
	}
	// Both are longer than most tasks, and a client of the batch form has read them before.
	if got.body["protocol_version"] != nil || got.body["server_capabilities"] != nil {
		t.Errorf("a batch is answered with what the protocol is: %v", got.body)
	}
	for i, v := range got.body["items"].([]any) {
		e, _ := v.(map[string]any)["error"].(map[string]any)
		if e["reason"] != string(protocol.ReasonStaleAttempt) || e["message"] != "old" {
			t.Errorf("item %d: %v", i, v)
		}
	}
	in := last[protocol.CompleteRequest](t, f)
	if in.Items[0].Kind != protocol.KindActivity || in.Items[1].Kind != protocol.KindWorkflow ||
		in.Items[0].Namespace != "default" {
		t.Errorf("items %+v", in.Items)
	}
	if in.Next == nil || in.Next.Release != "1.0" || !in.Next.Gated || in.Next.Namespace != "default" {
		t.Errorf("next %+v", in.Next)
	}
}

func TestSessionVerbsAnswerWithTheirReceipt(t *testing.T) {
	f := &fake{
		session: protocol.SessionResponse{
			Admitted: true, Outcome: "created", Status: 201, Session: &protocol.SessionView{SessionID: "s"},
		},
	}
	s := server(t, f, nil)
	got := ask(
		t, s, "POST", "/api/worker/sessions",
		`{"worker_id":"w","session_id":"s","requirements":["gpu"],"create_if_missing":false}`, nil,
	)
	if got.status != 201 || got.body["admitted"] != true || got.body["status"] != 201.0 {
		t.Errorf("create: got %d %v", got.status, got.body)
	}
	if in := last[protocol.SessionCreate](t, f); in.SessionID != "s" || in.Create == nil || *in.Create ||
		in.Reacquire != nil || in.Requirements[0] != "gpu" {
		t.Errorf("create: %+v", in)
	}
	f.session.Status, f.session.Outcome = 200, "closed"
	got = ask(t, s, "DELETE", "/api/worker/sessions/a%2Fb?worker_id=w", "", map[string]string{"Content-Type": ""})
	if in := last[protocol.SessionVerb](t, f); got.status != 200 || in.WorkerID != "w" || in.SessionID != "a/b" {
		t.Errorf("close: got %d, %+v", got.status, in)
	}
	got = ask(t, s, "DELETE", "/api/worker/sessions/s", `{"worker_id":"w","reason":"worker_shutdown"}`, nil)
	if in := last[protocol.SessionVerb](t, f); got.status != 200 || in.Reason != "worker_shutdown" {
		t.Errorf("close with a body: got %d, %+v", got.status, in)
	}
	if got := ask(t, s, "POST", "/api/worker/sessions/s/heartbeat", `{}`, nil); got.status != 422 ||
		got.body["admitted"] != false {
		t.Errorf("no worker: got %d %v", got.status, got.body)
	}
	f.err = protocol.Refuse(protocol.ReasonSessionOwned, "taken").With("session", protocol.SessionView{SessionID: "s"})
	got = ask(t, s, "POST", "/api/worker/sessions", `{"worker_id":"w","session_id":"s"}`, nil)
	if got.status != 409 || got.body["admitted"] != false || got.body["status"] != 409.0 || got.body["session"] == nil ||
		got.text("error") != "taken" {
		t.Errorf("refused: got %d %v", got.status, got.body)
	}
}

// The Rust SDK ends its whole worker at any other status than 2xx; see settle.
func TestALateReportOfARustWorkerIsRefusedWithoutAnError(t *testing.T) {
	for _, verb := range []string{
		`complete {"lease_owner":"w","workflow_task_attempt":1,"commands":[]}`,
		`fail {"lease_owner":"w","workflow_task_attempt":1,"failure":"it does not work"}`,
	} {
		verb, body, _ := strings.Cut(verb, " ")
		for _, c := range []struct {
			sdk    string
			reason protocol.Reason
			status int
		}{
			{"durable-workflow-rust/4.10.2", protocol.ReasonRunClosed, 200},
			{"durable-workflow-rust/4.10.2", protocol.ReasonTaskNotLeased, 200},
			{"durable-workflow-rust/4.10.2", protocol.ReasonTaskNotFound, 200},
			{"durable-workflow-rust/4.10.2", protocol.ReasonValidation, 422},
			{"durable-workflow-python/2.12.0", protocol.ReasonRunClosed, 409},
			{"", protocol.ReasonTaskNotFound, 404},
		} {
			f := &fake{err: protocol.Refuse(c.reason, "no"), sdk: c.sdk}
			got := ask(t, server(t, f, nil), "POST", "/api/worker/workflow-tasks/r-1-workflow/"+verb, body, nil)
			if got.status != c.status || got.text("reason") != string(c.reason) || got.body["recorded"] != false ||
				got.text("outcome") != "rejected" {
				t.Errorf("%s, %s by %q: %d %v", verb, c.reason, c.sdk, got.status, got.body)
			}
		}
	}
}

func TestSettingsAreServedToWorkersOnly(t *testing.T) {
	f := &fake{}
	s := server(t, f, nil)
	if got := ask(t, s, "GET", "/api/worker/settings", "", nil); got.status != 404 || got.text("reason") != "not_found" {
		t.Errorf("without settings: %d %v", got.status, got.body)
	}
	with := workerapi.New(workerapi.Options{
		Verbs: f, Claims: f, Workers: f, Auth: auth.New(auth.Options{Store: tokens{}, Bootstrap: secret}),
		Settings: func(string) protocol.WorkerSettings {
			return protocol.WorkerSettings{Release: "1.2.3", PollSeconds: 50}
		},
	})
	served := httptest.NewServer(with)
	t.Cleanup(served.Close)
	if got := ask(t, served, "GET", "/api/worker/settings", "", nil); got.status != 200 ||
		got.text("APP_VERSION") != "1.2.3" {
		t.Errorf("got %d %v", got.status, got.body)
	}
	if got := ask(t, served, "GET", "/api/worker/settings", "", map[string]string{
		"Authorization": "",
	}); got.status != 401 {
		t.Errorf("without a token: %d %v", got.status, got.body)
	}
}
