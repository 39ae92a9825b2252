package channel_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// result completes a run of one activity with a result, and returns the result in its history.
func result(t *testing.T, a *apptest.App, s, w *peer, response map[string]any) any {
	t.Helper()
	run := schedule(t, a, s, 1)
	j := w.job(nil)
	// As any client sends it, with attachments if there are any.
	ack, err := w.EmitWithAck(within(
		t,
	), rpc.EventCall, map[string]any{"method": protocol.MethodCompleteJob, "payload": map[string]any{
		"jobId": j.ID, "token": j.Token, "status": "OK", "response": response,
	}})
	if err != nil || len(ack) > 0 && strings.Contains(string(ack[0]), "__rpcError") {
		t.Fatalf("%v: %s, %v", response, ack, err)
	}
	done := has[*history.ActivityCompleted](t, a, run)
	s.ok(s.job(nil), map[string]any{"commands": []protocol.Command{{Type: protocol.CompleteWorkflow}}})
	var got any
	if err := payload.Decode(payload.Payload{Blob: done.Result}, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAResultIsAnyJSONAsOverHTTP(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s, w := scheduler(t, a), join(t, a, "w", "test")
	p, err := payload.Encode(map[string]any{"n": 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		response map[string]any
		want     string
	}{
		{map[string]any{"result": p}, `{"n":1}`},
		{map[string]any{"result": p.Blob, "payload_codec": "avro"}, `{"n":1}`},
		{map[string]any{"result": p.Blob}, `"` + p.Blob + `"`},
		{map[string]any{"result": map[string]any{"codec": "h264"}}, `{"codec":"h264"}`},
		{map[string]any{"result": []any{1, 2.5, nil, true}}, `[1,2.5,null,true]`},
		{map[string]any{"result": 7}, `7`},
		{map[string]any{"result": nil}, `null`},
		{map[string]any{}, `null`},
		// an invalid eager workflow task next to a result is ignored
		{map[string]any{"result": 7, "then": "nonsense"}, `7`},
		{map[string]any{"result": 7, "then": map[string]any{"seen_through": "many"}}, `7`},
		{map[string]any{"result": 7, "then": map[string]any{"seen_through": 2, "commands": []any{7}}}, `7`},
	} {
		if got := text(result(t, a, s, w, c.response)); got != c.want {
			t.Errorf("%v: got %s, want %s", c.response, got, c.want)
		}
	}
	schedule(t, a, s, 1)
	j := w.job(nil)
	for code, value := range map[string]any{
		"unsupported_payload_codec": map[string]any{"codec": "json", "blob": "e30="},
		"validation_failed":         uint64(1 << 63),
		"payload_too_large":         strings.Repeat("x", payload.MaxBytes),
	} {
		w.refusal(code, protocol.MethodCompleteJob, map[string]any{
			"jobId": j.ID, "token": j.Token, "status": "OK", "response": map[string]any{"result": value},
		})
	}
	w.ok(j, map[string]any{"result": "the job is still there"})
}

func TestAttachmentsInAResultAreBytesWhereverTheyStand(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s, w := scheduler(t, a), join(t, a, "w", "test")
	blob := socketio.Binary("\x01\x02\x03")
	if got, ok := result(t, a, s, w, map[string]any{"result": blob}).([]byte); !ok || string(got) != string(blob) {
		t.Errorf("got %v", got)
	}
	got, _ := result(
		t, a, s, w, map[string]any{"result": map[string]any{"n": 1, "deep": []any{"AQID", blob}}},
	).(map[string]any)
	deep, _ := got["deep"].([]any)
	if len(deep) != 2 || deep[0] != "AQID" || got["n"] != int64(1) {
		t.Fatalf("got %v", got)
	}
	if b, ok := deep[1].([]byte); !ok || string(b) != string(blob) {
		t.Errorf("got %T %v", deep[1], deep[1])
	}
}
