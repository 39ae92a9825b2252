package zishang

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	engine "github.com/zishang520/socket.io/clients/engine/v3"
	transport "github.com/zishang520/socket.io/clients/engine/v3/transports"
	client "github.com/zishang520/socket.io/clients/socket/v3"
	"github.com/zishang520/socket.io/v3/pkg/types"

	"github.com/sojourn-run/sojourn/internal/socketio"
)

// ours is our server, with two namespaces that want a token. It pings often, because over polling alone the library's
// client sends nothing until the poll it has open is answered.
func ours(t *testing.T) string {
	t.Helper()
	server := socketio.NewServer(socketio.Options{PingInterval: 100 * time.Millisecond, Failed: func(
		_ *socketio.Socket, err error,
	) {
		t.Errorf("unexpected failure: %v", err)
	}})
	for _, name := range []string{"/", "/custom"} {
		ns := server.Of(name)
		ns.OnConnect(func(_ context.Context, r *socketio.ConnectRequest) (any, error) {
			var auth struct {
				Token string `json:"token"`
			}
			if json.Unmarshal(r.Auth, &auth) != nil || auth.Token != "right" {
				return nil, &socketio.ConnectError{Message: "not authorised", Reason: "unauthenticated"}
			}
			return "worker", nil
		})
		ns.OnSocket(func(s *socketio.Socket) {
			s.On("echo", func(_ context.Context, args []json.RawMessage) ([]any, error) {
				return []any{args[0]}, nil
			})
			s.On("where", func(context.Context, []json.RawMessage) ([]any, error) { return []any{s.Namespace()}, nil })
			s.On("blob", func(_ context.Context, args []json.RawMessage) ([]any, error) {
				var blob []byte
				err := json.Unmarshal(args[0], &blob)
				slices.Reverse(blob)
				return []any{socketio.Binary(blob)}, err
			})
			s.On("ask me", func(ctx context.Context, args []json.RawMessage) ([]any, error) {
				answer, err := s.EmitWithAck(ctx, "ask", args[0])
				if err != nil {
					return nil, err
				}
				return []any{answer[0]}, nil
			})
			s.On("disconnect me", func(context.Context, []json.RawMessage) ([]any, error) { s.Close(nil); return nil, nil })
		})
	}
	mux := http.NewServeMux()
	mux.Handle(socketio.DefaultPath, server)
	front := httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), ceiling)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Errorf("server did not close: %v", err)
		}
		front.Close()
	})
	return front.URL
}

// connect joins a namespace of Sojourn's server with the library's client, and returns the socket or the refusal.
func connect(t *testing.T, url, namespace, token string, transports ...engine.TransportCtor) (*client.Socket, any) {
	t.Helper()
	options := client.DefaultOptions()
	options.SetPath(socketio.DefaultPath)
	options.SetForceNew(true)
	options.SetAutoConnect(false) // it would connect before anybody can listen
	// Where the server is quick, its Connect races with the opening: now and then the client misses it, or joins twice,
	// which ends the connection. Either way it tries again.
	options.SetTimeout(2 * time.Second)
	options.SetAuth(map[string]any{"token": token})
	options.SetTransports(types.NewSet(transports...))
	c, err := client.Connect(url+namespace, options)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan any, 8)
	_ = c.On("connect", func(...any) { end <- nil })
	_ = c.On("connect_error", func(args ...any) {
		if err, ok := args[0].(error); !ok || err.Error() != "timeout" {
			end <- args[0]
		}
	})
	c.Connect()
	t.Cleanup(func() { c.Disconnect() })
	for {
		select {
		case refused := <-end:
			if refused == nil && call(t, c, "where") != namespace {
				continue // joined twice
			}
			return c, refused
		case <-time.After(ceiling):
			t.Fatal("neither joined nor refused")
		}
	}
}

// call emits with an acknowledgement and returns its first value.
func call(t *testing.T, c *client.Socket, event string, args ...any) any {
	t.Helper()
	answer := make(chan any, 1)
	c.Timeout(ceiling).EmitWithAck(event, args...)(func(values []any, err error) {
		switch {
		case err != nil:
			answer <- err
		case len(values) == 0:
			answer <- nil
		default:
			answer <- values[0]
		}
	})
	select {
	case v := <-answer:
		return v
	case <-time.After(ceiling):
		t.Fatalf("%s was not acknowledged", event)
		return nil
	}
}

func TestItsClientWithOurServer(t *testing.T) {
	url := ours(t)
	for name, transports := range map[string][]engine.TransportCtor{
		"websocket": {transport.WebSocket}, "polling": {transport.Polling},
		"upgrade": {transport.Polling, transport.WebSocket},
	} {
		t.Run(name, func(t *testing.T) {
			for _, namespace := range []string{"/", "/custom"} {
				c, refused := connect(t, url, namespace, "right", transports...)
				if refused != nil {
					t.Fatalf("%s: %v", namespace, refused)
				}
				if where := call(t, c, "where"); where != namespace {
					t.Errorf("joined %s and is in %v", namespace, where)
				}
				const text = "a task, Aufträge, 仕事 \U0001f40b"
				if echo := call(t, c, "echo", text); echo != text {
					t.Errorf("echo = %v", echo)
				}
				blob, _ := call(t, c, "blob", []byte{1, 2, 3}).(interface{ Bytes() []byte })
				if blob == nil || !slices.Equal(blob.Bytes(), []byte{3, 2, 1}) {
					t.Errorf("an attachment came back as %v", blob)
				}
				_ = c.On("ask", func(args ...any) {
					ack := args[len(args)-1].(func([]any, error))
					ack([]any{args[0].(string) + " indeed"}, nil)
				})
				if asked := call(t, c, "ask me", "why"); asked != "why indeed" {
					t.Errorf("our server asked and got %v", asked)
				}
				gone := make(chan any, 1)
				_ = c.On("disconnect", func(args ...any) { gone <- args[0] })
				if err := c.Emit("disconnect me"); err != nil {
					t.Fatal(err)
				}
				select {
				case why := <-gone:
					if why != "io server disconnect" {
						t.Errorf("disconnected for %v", why)
					}
				case <-time.After(ceiling):
					t.Error("the client was not told that our server ended it")
				}
			}
		})
	}
}

func TestClientReceivesTheReasonOfARefusal(t *testing.T) {
	url := ours(t)
	for _, namespace := range []string{"/", "/custom"} {
		_, refused := connect(t, url, namespace, "wrong", transport.WebSocket)
		if err, ok := refused.(error); !ok || err.Error() != "not authorised" {
			t.Errorf("%s: refused with %v", namespace, refused)
		}
	}
	// An unknown namespace is refused without data, like by the official server; the client reports the missing data.
	if _, refused := connect(t, url, "/nowhere", "right", transport.WebSocket); refused == nil {
		t.Error("joined a namespace that is not there")
	}
}
