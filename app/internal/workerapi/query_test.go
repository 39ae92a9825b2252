package workerapi_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestAQueryIsAnsweredByItsEnvelopeBeforeItsPlainResult(t *testing.T) {
	p, err := payload.FromJSON([]byte(`2.5`))
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{complete: protocol.CompleteResponse{Outcome: "completed"}}
	s := server(t, f, nil)
	for body, want := range map[string]string{
		`"result":2,"result_envelope":{"codec":"avro","blob":"` + p.Blob + `"}`: `2.5`,
		`"result":{"a":[1]},"result_envelope":null`:                             `{"a":[1]}`,
		`"result":null`: `none`,
	} {
		got := ask(
			t, s, "POST", "/api/worker/query-tasks/q-1/complete", `{"lease_owner":"w","query_task_attempt":3,`+body+`}`, nil,
		)
		i := item(t, f)
		if got.status != 200 || got.text("query_task_id") != "q-1" || got.body["query_task_attempt"] != 3.0 ||
			got.text("outcome") != "completed" {
			t.Errorf("%s: got %d %v", body, got.status, got.body)
		}
		if i.Kind != protocol.KindQuery || i.TaskID != "q-1" || i.Owner != "w" || i.Attempt != 3 ||
			plain(t, i.Result) != want {
			t.Errorf("%s: item %+v, result %s", body, i, plain(t, i.Result))
		}
	}
}

func TestRejectedQueryOutcomeNamesItsTask(t *testing.T) {
	f := &fake{complete: protocol.CompleteResponse{Outcome: "failed"}}
	s := server(t, f, nil)
	const body = `{"lease_owner":"w","query_task_attempt":3,"failure":{"message":"m","reason":"query_rejected","type":"T"}}`
	got := ask(t, s, "POST", "/api/worker/query-tasks/q-1/fail", body, nil)
	if i := item(t, f); got.status != 200 || got.text("outcome") != "failed" || i.Failure.Reason != "query_rejected" ||
		i.Attempt != 3 {
		t.Errorf("got %d %v, item %+v", got.status, got.body, i)
	}
	f.err = protocol.Refuse(protocol.ReasonQueryTaskNotFound, "query task q-1 not found")
	got = ask(t, s, "POST", "/api/worker/query-tasks/q-1/fail", body, nil)
	if got.status != 404 || got.text("reason") != "query_task_not_found" || got.text("query_task_id") != "q-1" ||
		got.body["query_task_attempt"] != 3.0 {
		t.Errorf("got %d %v", got.status, got.body)
	}
	got = ask(
		t, s, "POST", "/api/worker/query-tasks/q-1/complete",
		`{"lease_owner":"w","query_task_attempt":3,"result_envelope":{"codec":"json","blob":"e30="}}`, nil,
	)
	if got.status != 422 || got.text("reason") != "unsupported_payload_codec" {
		t.Errorf("got %d %v", got.status, got.body)
	}
}
