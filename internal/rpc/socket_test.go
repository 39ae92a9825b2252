package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
)

const ceiling = 2 * time.Minute

// link serves handlers on a real socket and returns both ends.
func link(t testing.TB, handlers rpc.Handlers, how rpc.Serving) (server *socketio.Socket, client *socketio.Client) {
	t.Helper()
	endpoint := socketio.NewServer(socketio.Options{})
	opened := make(chan *socketio.Socket, 1)
	ns := endpoint.Of("/")
	ns.OnConnect(func(context.Context, *socketio.ConnectRequest) (any, error) { return "w7", nil })
	ns.OnSocket(func(s *socketio.Socket) {
		rpc.Serve(s, handlers, how)
		rpc.Serve(s, handlers, how) // a second time must not make a second handler
		opened <- s
	})
	front := httptest.NewServer(endpoint)
	client, err := socketio.Dial(context.Background(), front.URL, "/", nil, socketio.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), ceiling)
		defer cancel()
		client.Close(nil)
		if err := errors.Join(client.Wait(ctx), endpoint.Close(ctx)); err != nil {
			t.Error(err)
		}
		front.Close()
	})
	return await(t, opened, "the socket"), client
}

func await[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(ceiling):
		t.Fatalf("%s did not happen", what)
		panic("unreachable")
	}
}

func TestSocketCalls(t *testing.T) {
	_, client := link(t, table(), rpc.Serving{})
	caller := rpc.SocketCaller{Socket: client}
	var out answer
	if err := caller.Call(t.Context(), "echo", question{
		Text: "hi", More: map[string]any{"__rpcError": "a word like any other"},
	}, &out); err != nil {
		t.Fatal(err)
	}
	if want := (answer{Text: "hi", Big: 1<<63 + 1}); out != want {
		t.Errorf("got %+v, want %+v", out, want)
	}
	before := &answer{Text: "before"}
	if err := caller.Call(t.Context(), "maybe", nil, &before); err != nil || before == nil || before.Text != "before" {
		t.Errorf("null: got %+v, %v", before, err)
	}
	if err := caller.Call(t.Context(), "void", question{}, &out); err != nil || out.Text != "hi" {
		t.Errorf("no answer: got %+v, %v", out, err)
	}
	var name string
	if err := caller.Call(t.Context(), "who", nil, &name); err != nil || name != "w7" {
		t.Errorf("got %q, %v", name, err)
	}
}

func TestSocketRefusals(t *testing.T) {
	type report struct {
		method string
		err    *rpc.Error
	}
	reports := make(chan report, 8)
	_, client := link(t, table(), rpc.Serving{Failed: func(_ context.Context, method string, err *rpc.Error) {
		reports <- report{method, err}
	}})
	caller := rpc.SocketCaller{Socket: client}
	for _, c := range []struct {
		method string
		in     any
		code   string
		status int
	}{
		{"nobody", nil, rpc.CodeUnknownMethod, 404},
		{"echo", "no object", rpc.CodeMalformedPayload, 400},
		{"break", nil, rpc.CodeInternal, 500},
		{"panic", nil, rpc.CodeInternal, 500},
		{"refuse", nil, "lease_lost", 409},
	} {
		err := caller.Call(t.Context(), c.method, c.in, nil)
		var e *rpc.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Status != c.status {
			t.Errorf("%s: got %#v, want %s %d", c.method, err, c.code, c.status)
			continue
		}
		if c.method == "refuse" &&
			(e.Details["holder"] != "w2" || len(e.Details) != 1 || e.Message != "task t1 is held by another") {
			t.Errorf("got %#v", e)
		}
		if got := await(t, reports, "the report"); got.method != c.method || got.err.Code != c.code {
			t.Errorf("reported %s of %s", got.err, got.method)
		}
	}
	var wrong int
	wantCode(t, caller.Call(t.Context(), "echo", question{}, &wrong), rpc.CodeMalformedResponse)
	// The envelope, for clients in other languages.
	ack, err := client.EmitWithAck(t.Context(), "rpc", json.RawMessage(`{"method":"refuse","payload":{}}`))
	want := `{"__rpcError":"task t1 is held by another","__rpcApError":{"code":"lease_lost","holder":"w2","status":409}}`
	if err != nil || string(ack[0]) != want {
		t.Errorf("got %s, %v, want %s", ack, err, want)
	}
	for _, arg := range []string{`[]`, `"x"`, `{"method":7}`} {
		ack, err := client.EmitWithAck(t.Context(), "rpc", json.RawMessage(arg))
		if err != nil || !json.Valid(ack[0]) || !errorHas(ack[0], rpc.CodeMalformedPayload) {
			t.Errorf("envelope %s: got %s, %v", arg, ack, err)
		}
	}
}

func errorHas(ack json.RawMessage, code string) bool {
	var f struct {
		Error struct{ Code string } `json:"__rpcApError"`
	}
	return json.Unmarshal(ack, &f) == nil && f.Error.Code == code
}

func TestSocketDeadlines(t *testing.T) {
	server, client := link(t, table(), rpc.Serving{})
	caller := rpc.SocketCaller{Socket: client, Timeout: 20 * time.Millisecond}
	wantCode(t, caller.Call(t.Context(), "wait", nil, nil), rpc.CodeDeadlineExceeded)
	// The caller's deadline cancels the handler's context, although the test does not cancel it.
	ack, err := client.EmitWithAck(t.Context(), "rpc", json.RawMessage(`{"method":"wait","deadlineMs":1}`))
	if err != nil || !errorHas(ack[0], rpc.CodeDeadlineExceeded) {
		t.Errorf("got %s, %v", ack, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, caller.Call(ctx, "wait", nil, nil), rpc.CodeCancelled)
	// A connection that ends is not a refusal.
	result := make(chan error, 1)
	entered := make(chan struct{})
	client.On("rpc", func(ctx context.Context, _ []json.RawMessage) ([]any, error) {
		close(entered)
		<-ctx.Done()
		return nil, nil
	})
	go func() { result <- rpc.SocketCaller{Socket: server}.Call(context.Background(), "wait", nil, nil) }()
	await(t, entered, "the call")
	client.Close(nil)
	err = await(t, result, "the end of the call")
	var e *rpc.Error
	if !errors.Is(err, socketio.ErrPeerClosed) || errors.As(err, &e) {
		t.Errorf("got %v", err)
	}
}

func TestSocketNotify(t *testing.T) {
	server, client := link(t, rpc.Handlers{}, rpc.Serving{})
	got := make(chan string, 1)
	hints := rpc.Handlers{}
	rpc.Handle(hints, "cancel", func(_ context.Context, id string) (rpc.None, error) { got <- id; return rpc.None{}, nil })
	rpc.Serve(client, hints, rpc.Serving{})
	if err := (rpc.SocketCaller{Socket: server}).Notify(t.Context(), "cancel", "t1"); err != nil {
		t.Fatal(err)
	}
	if id := await(t, got, "the hint"); id != "t1" {
		t.Errorf("got %q", id)
	}
}

func TestSocketSettlesDelivery(t *testing.T) {
	h := rpc.Handlers{}
	fates := make(chan bool, 1)
	entered, release := make(chan struct{}, 1), make(chan struct{}, 1)
	rpc.Handle(h, "give", func(ctx context.Context, held bool) (string, error) {
		rpc.OnDelivered(ctx, func(ok bool) { fates <- ok })
		if held {
			entered <- struct{}{}
			<-release
			<-ctx.Done() // on this side, the time of the call starts when it arrives
		}
		return "job", nil
	})
	server, client := link(t, h, rpc.Serving{})
	caller := rpc.SocketCaller{Socket: client}
	var job string
	if err := caller.Call(t.Context(), "give", false, &job); err != nil || job != "job" || !await(t, fates, "the fate") {
		t.Errorf("a job that arrived: %q, %v", job, err)
	}
	// The caller no longer waits: the response must not count as delivered although the socket is open.
	caller.Timeout = 5 * time.Millisecond
	wantCode(t, caller.Call(t.Context(), "give", true, &job), rpc.CodeDeadlineExceeded)
	await(t, entered, "the handler")
	release <- struct{}{}
	if await(t, fates, "the fate") {
		t.Error("a job nobody waited for counts as handed over")
	}
	caller.Timeout = 0
	go func() { _ = caller.Call(context.Background(), "give", true, &job) }()
	await(t, entered, "the handler")
	client.Close(nil)
	await(t, server.Done(), "the end of the socket")
	release <- struct{}{}
	if await(t, fates, "the fate") {
		t.Error("a job for a dead socket counts as handed over")
	}
}

func BenchmarkCall(b *testing.B) {
	h := rpc.Handlers{}
	type message struct {
		Items []string `json:"items"`
	}
	rpc.Handle(h, "echo", func(_ context.Context, in message) (message, error) { return in, nil })
	_, client := link(b, h, rpc.Serving{})
	for name, items := range map[string]int{"200B": 3, "10KB": 160} {
		in := message{}
		for range items {
			in.Items = append(in.Items, "sixty bytes of a payload that looks like what users send here")
		}
		caller := rpc.SocketCaller{Socket: client}
		b.Run("socket/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var out message
				if err := caller.Call(context.Background(), "echo", in, &out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
