package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestInvalidInputIsRejectedWithItsType(t *testing.T) {
	t.Parallel()
	addr := address(t)
	p := launch(t, t.TempDir(), env{"SOJOURN_AUTH": "none", "SOJOURN_ADDR": addr, "SOJOURN_ISOLATION": "none"})
	c := client{t: t, base: "http://" + addr}
	c.up()
	c.start("here", "ledger", 0, 1)
	huge := `{"workflow_type":"one","input":["` + strings.Repeat("x", 3<<20) + `"]}`
	for _, x := range []struct {
		name, method, path string
		body               any
		status             int
		reason             protocol.Reason
	}{
		{"a number for a name", "POST", "/api/workflows", `{"workflow_type":7}`, 422, protocol.ReasonValidation},
		{"no type", "POST", "/api/workflows", `{}`, 422, protocol.ReasonValidation},
		{
			"input that is no list", "POST", "/api/workflows", `{"workflow_type":"one","input":"x"}`, 422,
			protocol.ReasonValidation,
		},
		{"a list", "POST", "/api/workflows", `[1]`, 422, protocol.ReasonValidation},
		{"half a body", "POST", "/api/workflows", `{"workflow_type":`, 400, protocol.ReasonMalformedJSON},
		{"no UTF-8", "POST", "/api/workflows", []byte("{\"workflow_type\":\"\xff\xfe\"}"), 400, protocol.ReasonMalformedJSON},
		{
			"a NUL in an id", "POST", "/api/workflows", `{"workflow_type":"one","workflow_id":"a\u0000b"}`, 422,
			protocol.ReasonValidation,
		},
		{"deep nesting", "POST", "/api/workflows", strings.Repeat(`{"memo":`, 50_000), 400, protocol.ReasonMalformedJSON},
		{
			"a negative timeout", "POST", "/api/workflows", `{"workflow_type":"one","run_timeout_seconds":-1}`, 422,
			protocol.ReasonValidation,
		},
		{
			"a timeout of ages", "POST", "/api/workflows", `{"workflow_type":"one","run_timeout_seconds":9223372036854775807}`,
			422, protocol.ReasonValidation,
		},
		{"a body too large", "POST", "/api/workflows", huge, 413, protocol.ReasonPayloadTooLarge},
		{"a signal of no type", "POST", "/api/workflows/here/signal/go", `{"input":"x"}`, 422, protocol.ReasonValidation},
		{"a signal to nobody", "POST", "/api/workflows/nobody/signal/go", `{}`, 404, protocol.ReasonInstanceNotFound},
		{"an unknown method", "PATCH", "/api/workflows", `{}`, 405, protocol.ReasonMethodNotAllowed},
		{"an unknown route", "GET", "/api/nothing/here", nil, 404, protocol.ReasonNotFound},
		{"a page of none", "GET", "/api/workflows?page_size=-1", nil, 422, protocol.ReasonValidation},
		{"a token of none", "GET", "/api/workflows?next_page_token=%F0%28", nil, 422, protocol.ReasonValidation},
	} {
		status, raw, err := c.call(t.Context(), x.method, x.path, x.body)
		var refusal protocol.ErrorBody
		if err == nil {
			err = json.Unmarshal(raw, &refusal)
		}
		if err != nil || status != x.status || refusal.Reason != x.reason || refusal.Message == "" {
			t.Errorf("%s: %d %.300s %v, want %d %s", x.name, status, raw, err, x.status, x.reason)
		}
	}
	run := c.start("after", "one", "x").RunID // and unknown fields are ignored
	c.must(
		http.MethodPost, "/api/workflows", `{"workflow_type":"one","workflow_id":"odd","input":["x"],"colour":"red"}`, nil,
	)
	c.completed("after", run)
	if code := p.terminate(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestBadFramesEndTheirSocketAndNothingElse(t *testing.T) {
	t.Parallel()
	addr := address(t)
	launch(t, t.TempDir(), env{"SOJOURN_AUTH": "none", "SOJOURN_ADDR": addr}, "app")
	c := client{t: t, base: "http://" + addr}
	c.up()
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	hello := protocol.ChannelAuth{WorkerID: "w", Protocol: protocol.ChannelVersion}
	peer, err := socketio.Dial(ctx, c.base, protocol.NamespaceWorkers, hello, socketio.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close(nil)
	// settings is a call that the well-behaved peer makes after each of the others' frames.
	settings := func(what string) {
		t.Helper()
		if ack, err := peer.EmitWithAck(ctx, protocol.EventFetchSettings, protocol.MachineInformation{
			WorkerID: "w",
		}); err != nil || len(ack) != 1 {
			t.Fatalf("after %s the peer beside it gets %v, %v", what, ack, err)
		}
	}
	settings("nothing")
	for _, call := range []any{
		map[string]any{"method": "makeCoffee", "payload": nil},
		map[string]any{"method": 7},
		"rpc", 1,
		[]any{},
		nil,
		map[string]any{"method": "poll", "payload": "soon"},
		map[string]any{"method": "completeJob", "payload": map[string]any{"jobId": 1}},
	} {
		ack, err := peer.EmitWithAck(ctx, "rpc", call)
		var refused struct {
			Message string `json:"__rpcError"`
			Error   struct {
				Code string `json:"code"`
			} `json:"__rpcApError"`
		}
		if err == nil && len(ack) == 1 {
			err = json.Unmarshal(ack[0], &refused)
		}
		if err != nil || refused.Message == "" || refused.Error.Code == "" {
			t.Errorf("rpc %v: got %s, %v", call, ack, err)
		}
	}
	for name, frame := range map[string]struct {
		kind int
		data []byte
	}{
		"an event before it connected": {websocket.TextMessage, []byte(`42["rpc",{}]`)},
		"the frame 42 alone":           {websocket.TextMessage, []byte("42")},
		"an unknown packet":            {websocket.TextMessage, []byte("9")},
		"attachments without end":      {websocket.TextMessage, []byte(`4599999999-["x",{"_placeholder":true,"num":0}]`)},
		"no UTF-8":                     {websocket.TextMessage, []byte("42[\"\xff\"]")},
		"bytes that nobody announced":  {websocket.BinaryMessage, []byte{1, 2, 3}},
		"a huge frame":                 {websocket.TextMessage, append([]byte(`42["`), bytes.Repeat([]byte("x"), 9<<20)...)},
	} {
		ws, answer, err := websocket.DefaultDialer.DialContext(
			ctx, "ws://"+addr+protocol.ChannelPath+"/?EIO=4&transport=websocket", nil,
		)
		if err != nil {
			t.Fatalf("%s: %v %v", name, answer, err)
		}
		_ = ws.WriteMessage(frame.kind, frame.data) // the server may close the connection meanwhile
		_ = ws.SetReadDeadline(time.Now().Add(ceiling))
		for err == nil { // read what the server sends before it closes the connection
			_, _, err = ws.ReadMessage()
		}
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			t.Errorf("%s: the server keeps the socket", name)
		}
		if name == "a huge frame" && late == nil && !websocket.IsCloseError(err, websocket.CloseMessageTooBig) {
			// a broken pipe is also a correct end: the server does not read data that it rejects
			t.Errorf("%s: ended by %v", name, err)
		}
		_ = ws.Close()
		settings(name)
	}
}
