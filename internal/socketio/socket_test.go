package socketio_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sojourn-run/sojourn/internal/socketio"
)

func TestEventsAndAcksBothWays(t *testing.T) {
	opened := make(chan *socketio.Socket, 1)
	_, url := serve(t, socketio.Options{}, func(s *socketio.Server) {
		s.Of("/").OnSocket(func(s *socketio.Socket) {
			s.On("echo", echo)
			opened <- s
		})
	})
	got := make(chan string, 1)
	client := dial(t, url, "/", nil, socketio.DialOptions{OnSocket: func(s *socketio.Socket) {
		s.On("note", func(_ context.Context, args []json.RawMessage) ([]any, error) { got <- text(args); return nil, nil })
		s.On("ask", func(_ context.Context, args []json.RawMessage) ([]any, error) { return []any{"answer", args[0]}, nil })
	}})
	ack, err := client.EmitWithAck(t.Context(), "echo", 1, "two <&>", map[string]any{"three": nil})
	if err != nil || text(ack) != `[1,"two \u003c\u0026\u003e",{"three":null}]` {
		t.Fatalf("got %s, %v", text(ack), err)
	}
	server := await(t, opened, "the socket")
	if server.ID() != client.ID() {
		t.Errorf("ids differ: %s and %s", server.ID(), client.ID())
	}
	if err := server.Emit("note", "hi"); err != nil {
		t.Fatal(err)
	}
	if event := await(t, got, "the note"); event != `["hi"]` {
		t.Errorf("got %s", event)
	}
	ack, err = server.EmitWithAck(t.Context(), "ask", 7)
	if err != nil || text(ack) != `["answer",7]` {
		t.Errorf("got %s, %v", text(ack), err)
	}
}

func TestEveryEventIsAcked(t *testing.T) {
	failures := make(chan error, 2)
	_, url := serve(t, socketio.Options{Failed: func(_ *socketio.Socket, err error) {
		failures <- err
	}}, func(s *socketio.Server) {
		s.Of("/").OnSocket(func(s *socketio.Socket) {
			s.On("panic", func(context.Context, []json.RawMessage) ([]any, error) { panic("boom") })
			s.On("fail", func(context.Context, []json.RawMessage) ([]any, error) { return nil, errors.New("no luck") })
			s.On("own", func(context.Context, []json.RawMessage) ([]any, error) { return nil, fmt.Errorf("x: %w", ownError{}) })
			s.On("unwritable", func(context.Context, []json.RawMessage) ([]any, error) { return []any{make(chan int)}, nil })
			s.On("huge", func(context.Context, []json.RawMessage) ([]any, error) {
				return []any{strings.Repeat("x", socketio.DefaultMaxPayload)}, nil
			})
			s.On("echo", echo)
		})
	})
	client := dial(t, url, "/", nil, socketio.DialOptions{})
	for event, want := range map[string]string{
		"panic":      `[{"__rpcError":"internal error","__rpcApError":{"code":"internal","status":500}}]`,
		"nobody":     `[{"__rpcError":"no handler for this event","__rpcApError":{"code":"unknown_event","status":404}}]`,
		"fail":       `[{"__rpcError":"no luck","__rpcApError":{"code":"internal"}}]`,
		"own":        `["own ack"]`,
		"unwritable": `[{"__rpcError":"the response cannot be encoded as JSON","__rpcApError":{"code":"internal","status":500}}]`,
		"huge":       `[{"__rpcError":"the response is larger than the maximum payload of the connection","__rpcApError":{"code":"payload_too_large","status":413}}]`,
		"echo":       `[]`,
	} {
		ack, err := client.EmitWithAck(t.Context(), event)
		if err != nil || text(ack) != want {
			t.Errorf("%s: got %s, %v, want %s", event, text(ack), err, want)
		}
	}
	first, second := await(t, failures, "a report").Error(), await(t, failures, "a report").Error()
	if all := first + second; !strings.Contains(all, "boom") || !strings.Contains(all, "chan int") {
		t.Errorf("reported %s", all)
	}
}

type ownError struct{}

func (ownError) Error() string { return "own" }
func (ownError) ErrorAck() any { return "own ack" }

func TestBlockedHandlersDoNotBlockOthers(t *testing.T) {
	const events = 200
	release := make(chan struct{})
	entered := make(chan struct{}, events)
	_, url := serve(t, socketio.Options{}, func(s *socketio.Server) {
		s.Of("/").OnSocket(func(s *socketio.Socket) {
			s.On("n", func(context.Context, []json.RawMessage) ([]any, error) {
				entered <- struct{}{}
				<-release
				return nil, nil
			})
			s.On("echo", echo)
		})
	})
	client := dial(t, url, "/", nil, socketio.DialOptions{})
	for n := range events {
		if err := client.Emit("n", n); err != nil {
			t.Fatal(err)
		}
	}
	for range events {
		await(t, entered, "the start of a handler while the others wait")
	}
	if _, err := client.EmitWithAck(t.Context(), "echo"); err != nil {
		t.Error(err)
	}
	close(release)
}

// A handler is late if the handler of a later event executed its first statement before it. This happens only if the
// scheduler preempts the goroutine between its start and that statement, so it must be rare. If handlers were started
// without order, dozens of them would be late.
func TestHandlersStartInOrder(t *testing.T) {
	const events = 1000
	var place, done atomic.Int64
	var order [events]int
	all := make(chan struct{})
	_, url := serve(t, socketio.Options{MaxHandlers: events}, func(s *socketio.Server) {
		s.Of("/").OnSocket(func(s *socketio.Socket) {
			s.On("n", func(_ context.Context, args []json.RawMessage) ([]any, error) {
				at := place.Add(1) - 1 // not a mutex, whose waiters may overtake each other
				err := json.Unmarshal(args[0], &order[at])
				if done.Add(1) == events {
					close(all)
				}
				return nil, err
			})
		})
	})
	client := dial(t, url, "/", nil, socketio.DialOptions{})
	for n := range events {
		if err := client.Emit("n", n); err != nil {
			t.Fatal(err)
		}
	}
	await(t, all, "the last handler")
	late, latest := 0, 0
	for _, n := range order {
		if n < latest {
			late++
		}
		latest = max(latest, n)
	}
	t.Logf("%d of %d late", late, events)
	if late > events/20 {
		t.Errorf("%d of %d handlers started late", late, events)
	}
}

func TestHandlersInOrderRunOneByOne(t *testing.T) {
	const events = 1000
	var next, running int
	_, url := serve(t, socketio.Options{}, func(s *socketio.Server) {
		s.Of("/").OnSocket(func(s *socketio.Socket) {
			s.OnInOrder("n", func(_ context.Context, args []json.RawMessage) ([]any, error) {
				var n int
				err := json.Unmarshal(args[0], &n)
				if running++; running != 1 || n != next {
					err = fmt.Errorf("event %d at place %d beside %d others", n, next, running-1)
				}
				next++
				running--
				return []any{n}, err
			})
		})
	})
	client := dial(t, url, "/", nil, socketio.DialOptions{})
	for n := range events - 1 {
		if err := client.Emit("n", n); err != nil {
			t.Fatal(err)
		}
	}
	if ack, err := client.EmitWithAck(t.Context(), "n", events-1); err != nil || text(ack) != "[999]" {
		t.Errorf("got %s, %v", text(ack), err)
	}
}

func TestHandlersInFlightAreBounded(t *testing.T) {
	entered, release := make(chan struct{}, 3), make(chan struct{})
	server, url := serve(t, socketio.Options{MaxHandlers: 2}, func(s *socketio.Server) {
		s.Of("/").OnSocket(func(s *socketio.Socket) {
			s.On("wait", func(context.Context, []json.RawMessage) ([]any, error) {
				entered <- struct{}{}
				<-release
				return []any{"done"}, nil
			})
		})
	})
	client := dial(t, url, "/", nil, socketio.DialOptions{})
	acks := make(chan string, 2)
	for range 2 {
		go func() {
			ack, err := client.EmitWithAck(context.Background(), "wait")
			acks <- fmt.Sprintf("%s %v", text(ack), err)
		}()
		await(t, entered, "the handler")
	}
	ack, err := client.EmitWithAck(t.Context(), "wait")
	if err != nil || !strings.Contains(text(ack), `"code":"busy"`) {
		t.Errorf("the third at once: got %s, %v", text(ack), err)
	}
	close(release)
	for range 2 {
		if got := await(t, acks, "the ack"); got != `["done"] <nil>` {
			t.Errorf("got %s", got)
		}
	}
	if n := server.Stats().RefusedBusy; n != 1 {
		t.Errorf("counted %d refused events, want 1", n)
	}
}

func TestAcksEndWithContextAndSocket(t *testing.T) {
	opened := make(chan *socketio.Socket, 1)
	entered, left := make(chan struct{}, 2), make(chan error, 2)
	_, url := serve(t, socketio.Options{}, func(s *socketio.Server) {
		s.Of("/").OnSocket(func(s *socketio.Socket) {
			s.On("hang", func(ctx context.Context, _ []json.RawMessage) ([]any, error) {
				entered <- struct{}{}
				<-ctx.Done()
				left <- context.Cause(ctx)
				return nil, nil
			})
			opened <- s
		})
	})
	client := dial(t, url, "/", nil, socketio.DialOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { _, err := client.EmitWithAck(ctx, "hang"); result <- err }()
	await(t, entered, "the handler")
	cancel()
	if err := await(t, result, "the end of the ack"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { _, err := client.EmitWithAck(context.Background(), "hang"); result <- err }()
	await(t, entered, "the handler")
	reason := errors.New("token revoked")
	server := await(t, opened, "the socket")
	server.Close(reason)
	server.Close(errors.New("second close must not count"))
	if err := await(t, result, "the end of the ack"); !errors.Is(err, socketio.ErrPeerClosed) {
		t.Errorf("got %v", err)
	}
	for range 2 {
		if cause := await(t, left, "the end of the handler"); !errors.Is(cause, reason) {
			t.Errorf("the handler's context ended with %v, want %v", cause, reason)
		}
	}
	wantCause(t, client.Socket, socketio.ErrPeerClosed)
	if err := client.Emit("late"); !errors.Is(err, socketio.ErrPeerClosed) {
		t.Errorf("emit after the end: %v", err)
	}
	if err := server.Emit("late"); !errors.Is(err, reason) {
		t.Errorf("emit after the end: %v", err)
	}
}

// tracked counts the results of an ack.
type tracked struct {
	value any
	fate  chan bool
}

func (a tracked) Value() any   { return a.value }
func (a tracked) Sent(ok bool) { a.fate <- ok }

func TestTrackedAckIsNotifiedWhetherItWasQueued(t *testing.T) {
	fate := make(chan bool, 1)
	entered, release := make(chan struct{}), make(chan struct{})
	opened := make(chan *socketio.Socket, 1)
	_, url := serve(t, socketio.Options{}, func(s *socketio.Server) {
		s.Of("/").OnSocket(func(s *socketio.Socket) {
			s.On("job", func(context.Context, []json.RawMessage) ([]any, error) { return []any{tracked{"job", fate}}, nil })
			s.On("held", func(context.Context, []json.RawMessage) ([]any, error) {
				close(entered)
				<-release
				return []any{tracked{"job", fate}}, nil
			})
			s.On("both", func(context.Context, []json.RawMessage) ([]any, error) {
				return []any{tracked{"job", fate}}, errors.New("and yet it failed")
			})
			opened <- s
		})
	})
	client := dial(t, url, "/", nil, socketio.DialOptions{})
	if ack, err := client.EmitWithAck(t.Context(), "job"); err != nil || text(ack) != `["job"]` {
		t.Fatalf("got %s, %v", text(ack), err)
	}
	if !await(t, fate, "the fate") {
		t.Error("an ack that arrived counts as lost")
	}
	if err := client.Emit("job"); err != nil {
		t.Fatal(err)
	}
	if await(t, fate, "the fate") {
		t.Error("an ack nobody asked for counts as sent")
	}
	if _, err := client.EmitWithAck(t.Context(), "both"); err != nil {
		t.Fatal(err)
	}
	if await(t, fate, "the fate") {
		t.Error("a value acked as an error counts as sent")
	}
	go func() { _, _ = client.EmitWithAck(context.Background(), "held") }()
	await(t, entered, "the handler")
	client.Close(nil)
	await(t, await(t, opened, "the socket").Done(), "the end of the socket")
	close(release)
	if await(t, fate, "the fate") {
		t.Error("an ack to a socket that has ended counts as sent")
	}
}

func TestBinaryBothWays(t *testing.T) {
	_, url := serve(t, socketio.Options{MaxAttachments: 2}, func(s *socketio.Server) {
		s.Of("/").OnSocket(func(s *socketio.Socket) {
			s.On("blobs", func(_ context.Context, args []json.RawMessage) ([]any, error) {
				var a []byte
				if err := json.Unmarshal(args[0], &a); err != nil {
					return nil, err
				}
				return []any{"was", socketio.Binary(a), args[1]}, nil
			})
		})
	})
	client := dial(t, url, "/", nil, socketio.DialOptions{})
	ack, err := client.EmitWithAck(t.Context(), "blobs", socketio.Binary{0, 1, 255}, 9)
	if err != nil || text(ack) != `["was","AAH/",9]` {
		t.Errorf("got %s, %v", text(ack), err)
	}
	b := socketio.Binary("x")
	_, err = client.EmitWithAck(t.Context(), "blobs", b, b, b)
	if err == nil {
		t.Error("three attachments passed a limit of two")
	}
	await(t, client.Done(), "the cut")
}

func TestOnConnectAcceptsOrRejects(t *testing.T) {
	failures := make(chan error, 2)
	secret := "sjn_1_secret"
	server, url := serve(t, socketio.Options{
		Failed:           func(_ *socketio.Socket, err error) { failures <- err },
		MaxSocketsPerKey: 1, PrincipalKey: func(p any) string { return p.(string) },
	}, func(s *socketio.Server) {
		s.Of("/").OnConnect(func(_ context.Context, r *socketio.ConnectRequest) (any, error) {
			var auth struct{ Token string }
			if err := json.Unmarshal(r.Auth, &auth); err != nil {
				return nil, &socketio.ConnectError{Message: "no token", Reason: "unauthenticated"}
			}
			if shown := fmt.Sprintf("%v %+v %#v", r, r, r); strings.Contains(shown, secret) {
				t.Errorf("the secret shows: %s", shown)
			}
			switch {
			case r.HTTP.Header.Get("X-Test") != "yes":
				return nil, errors.New("database is down")
			case auth.Token == "panic":
				panic("boom")
			}
			return auth.Token, nil
		})
		s.Of("/").OnSocket(func(s *socketio.Socket) {
			s.On("who", func(context.Context, []json.RawMessage) ([]any, error) { return []any{s.Principal()}, nil })
		})
	})
	header := socketio.DialOptions{Header: http.Header{"X-Test": {"yes"}}}
	refused := func(auth any, options socketio.DialOptions, reason string) {
		t.Helper()
		_, err := socketio.Dial(t.Context(), url, "/", auth, options)
		var refusal *socketio.ConnectError
		if !errors.As(err, &refusal) || refusal.Reason != reason {
			t.Errorf("got %v, want a refusal with the reason %s", err, reason)
		}
	}
	refused(nil, header, "unauthenticated")
	refused(map[string]string{"token": secret}, socketio.DialOptions{}, "internal")
	refused(map[string]string{"token": "panic"}, header, "internal")
	for range 2 {
		if err := await(t, failures, "the report"); strings.Contains(err.Error(), secret) {
			t.Errorf("the secret was reported: %v", err)
		}
	}
	client := dial(t, url, "/", map[string]string{"token": secret}, header)
	if ack, err := client.EmitWithAck(t.Context(), "who"); err != nil || text(ack) != `["`+secret+`"]` {
		t.Errorf("got %s, %v", text(ack), err)
	}
	refused(map[string]string{"token": secret}, header, "too_many_connections")
	sockets := server.Of("/").Sockets()
	client.Close(nil)
	await(t, sockets[0].Done(), "the end of the socket")
	dial(t, url, "/", map[string]string{"token": secret}, header)
	if _, err := socketio.Dial(t.Context(), url, "/nowhere", nil, header); err == nil ||
		!strings.Contains(err.Error(), "Invalid namespace") {
		t.Errorf("unknown namespace: %v", err)
	}
	if stats := server.Stats(); stats.RefusedConnects != 4 || stats.UnknownNamespaces != 1 {
		t.Errorf("got %+v", stats)
	}
}

func TestRooms(t *testing.T) {
	server, url := serve(t, socketio.Options{}, func(s *socketio.Server) {
		s.Of("/dashboard").OnSocket(func(s *socketio.Socket) {
			s.On("join", func(_ context.Context, args []json.RawMessage) ([]any, error) {
				var room string
				err := json.Unmarshal(args[0], &room)
				s.Join(room)
				return nil, err
			})
			s.On("leave", func(context.Context, []json.RawMessage) ([]any, error) { s.Leave("a"); return nil, nil })
		})
	})
	var received [3]atomic.Int64
	var clients [3]*socketio.Client
	for i := range clients {
		clients[i] = dial(t, url, "/dashboard", nil, socketio.DialOptions{OnSocket: func(s *socketio.Socket) {
			s.On("hint", func(context.Context, []json.RawMessage) ([]any, error) { received[i].Add(1); return nil, nil })
		}})
	}
	call := func(i int, event string, args ...any) {
		t.Helper()
		if _, err := clients[i].EmitWithAck(t.Context(), event, args...); err != nil {
			t.Fatal(err)
		}
	}
	call(0, "join", "a")
	call(1, "join", "a")
	call(1, "join", "b")
	ns := server.Of("/dashboard")
	emit := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	emit(ns.To("a").Emit("hint", 1))
	emit(ns.To("a", "b").Emit("hint", 2))
	emit(ns.To("nobody").Emit("hint", 3))
	emit(ns.Emit("hint", 4))
	call(0, "leave")
	emit(ns.To("a").Emit("hint", 5))
	for i := range clients {
		call(i, "leave") // a round trip: every hint before it has been read
	}
	for i, want := range []int64{3, 4, 1} {
		for deadline := 0; received[i].Load() != want && deadline < 1000; deadline++ {
			call(i, "leave")
		}
		if got := received[i].Load(); got != want {
			t.Errorf("client %d heard %d hints, want %d", i, got, want)
		}
	}
	if n := len(ns.Sockets("a")); n != 0 {
		t.Errorf("%d sockets left in the room", n)
	}
	if n := server.Stats().Sockets["/dashboard"]; n != 3 {
		t.Errorf("%d sockets, want 3", n)
	}
}

func TestServerCloseEndsEverything(t *testing.T) {
	entered := make(chan struct{})
	server, url := serve(t, socketio.Options{}, func(s *socketio.Server) {
		s.Of("/").OnSocket(func(s *socketio.Socket) {
			s.On("hang", func(ctx context.Context, _ []json.RawMessage) ([]any, error) {
				close(entered)
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
		})
	})
	client := dial(t, url, "/", nil, socketio.DialOptions{})
	if err := client.Emit("hang"); err != nil {
		t.Fatal(err)
	}
	await(t, entered, "the handler")
	side := server.Of("/").Sockets()[0]
	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCause(t, side, socketio.ErrServerClosed)
	await(t, client.Done(), "the end of the client")
	if _, err := socketio.Dial(t.Context(), url, "/", nil, socketio.DialOptions{}); err == nil {
		t.Error("a closed server takes connections")
	}
}
