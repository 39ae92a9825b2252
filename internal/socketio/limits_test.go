package socketio_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/internal/socketio"
)

func TestPeerThatDoesNotReadIsDisconnected(t *testing.T) {
	server, base := serve(t, socketio.Options{}, mirror)
	bystander := joined(t, base)
	first := server.Of("/").Sockets()[0]
	joined(t, base) // reads nothing from here on
	var lazy *socketio.Socket
	for _, s := range server.Of("/").Sockets() {
		if s != first {
			lazy = s
		}
	}
	payload := strings.Repeat("x", 64<<10)
	var err error
	sent := 0
	for ; err == nil && sent < 10_000; sent++ {
		err = lazy.Emit("flood", payload)
	}
	if !errors.Is(err, socketio.ErrSlowPeer) {
		t.Fatalf("after %d events: %v", sent, err)
	}
	wantCause(t, lazy, socketio.ErrSlowPeer)
	if n := server.Stats().CutSlow; n != 1 {
		t.Errorf("counted %d", n)
	}
	bystander.send(`42["message",1]`)
	bystander.want(`42["message-back",1]`)
}

func TestBurstDoesNotDisconnectAPeerThatReads(t *testing.T) {
	const burst = 5_000
	var received atomic.Int64
	all := make(chan struct{})
	server, url := serve(t, socketio.Options{MaxQueue: 8}, func(s *socketio.Server) { s.Of("/") })
	client := dial(t, url, "/", nil, socketio.DialOptions{OnSocket: func(s *socketio.Socket) {
		s.On("n", func(context.Context, []json.RawMessage) ([]any, error) {
			if received.Add(1) == burst {
				close(all)
			}
			return nil, nil
		})
	}})
	for len(server.Of("/").Sockets()) == 0 {
		runtime.Gosched() // the client may know of its socket a moment before the namespace does
	}
	for n := range burst {
		if err := server.Of("/").Emit("n", n); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-all:
	case <-client.Done():
		t.Fatalf("cut after %d events: %v, %+v", received.Load(), client.Err(), server.Stats())
	case <-time.After(ceiling):
		t.Fatalf("received %d of %d", received.Load(), burst)
	}
}

func TestConnectionMustJoinInTime(t *testing.T) {
	never := make(chan struct{})
	server, base := serve(t, socketio.Options{ConnectTimeout: 50 * time.Millisecond}, func(s *socketio.Server) {
		s.Of("/").OnConnect(func(ctx context.Context, _ *socketio.ConnectRequest) (any, error) {
			select {
			case <-never:
			case <-ctx.Done():
			}
			return nil, &socketio.ConnectError{Message: "too late"}
		})
	})
	silent, deciding := opened(t, base), opened(t, base)
	deciding.send("40")
	silent.wantClosed()
	deciding.wantClosed()
	url, _ := polling(t, base)
	get(t, url, 200, "1")
	if n := server.Stats().CutLate; n != 3 {
		t.Errorf("counted %d, want 3", n)
	}
}

func TestRepeatedUnknownNamespacesDisconnect(t *testing.T) {
	server, base := serve(t, socketio.Options{}, mirror)
	ws := joined(t, base)
	for range 20 {
		// The connection may be cut while this is still being sent.
		_ = ws.WriteMessage(websocket.TextMessage, []byte("40/nowhere"))
	}
	ws.wantClosed()
	if n := server.Stats().UnknownNamespaces; n != 9 {
		t.Errorf("counted %d, want 9", n)
	}
	ws = joined(t, base)
	ws.send("40/" + strings.Repeat("x", 200))
	ws.wantClosed()
}

func TestRepeatedRejectedConnectsDisconnect(t *testing.T) {
	var asked atomic.Int64
	_, base := serve(t, socketio.Options{}, func(s *socketio.Server) {
		s.Of("/").OnConnect(func(context.Context, *socketio.ConnectRequest) (any, error) {
			asked.Add(1)
			return nil, &socketio.ConnectError{Message: "no", Reason: "unauthenticated"}
		})
	})
	ws := opened(t, base)
	for range 8 {
		ws.send("40")
		ws.want(`44{"data":{"reason":"unauthenticated"},"message":"no"}`)
	}
	ws.send("40")
	ws.wantClosed()
	if n := asked.Load(); n != 9 {
		t.Errorf("asked %d times, want 9", n)
	}
}

func TestOrigins(t *testing.T) {
	_, base := serve(t, socketio.Options{Origins: []string{"https://good.example"}}, mirror)
	for origin, want := range map[string]int{
		"": 200, base: 200, "https://good.example": 200, "https://evil.example": 403, "null": 403,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/socket.io/?EIO=4&transport=polling", nil)
		if err != nil {
			t.Fatal(err)
		}
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		allowed := response.Header.Get("Access-Control-Allow-Origin")
		if response.StatusCode != want || (origin == "https://good.example") != (allowed == origin && origin != "") {
			t.Errorf("origin %q: got %d, allowed %q", origin, response.StatusCode, allowed)
		}
		ws, response, err := websocket.DefaultDialer.Dial(strings.Replace(
			base, "http", "ws", 1,
		)+"/api/socket.io/?EIO=4&transport=websocket",
			http.Header{"Origin": {origin}})
		if (err == nil) != (want == 200) {
			t.Errorf("websocket from %q: %v, %v", origin, response, err)
		}
		if err == nil {
			_ = ws.Close()
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestTransportsMayBeRestricted(t *testing.T) {
	_, base := serve(t, socketio.Options{Transports: []string{"websocket"}}, mirror)
	get(t, base+"/api/socket.io/?EIO=4&transport=polling", 400, `{"code":0,"message":"Transport unknown"}`+"\n")
	joined(t, base)
	_, base = serve(t, socketio.Options{Transports: []string{"polling"}}, mirror)
	if _, terms := polling(t, base); len(terms.Upgrades) != 0 {
		t.Errorf("offers %v", terms.Upgrades)
	}
	if _, err := socketio.Dial(t.Context(), base, "/", nil, socketio.DialOptions{}); err == nil {
		t.Error("a websocket was let in")
	}
}

func TestConnectionsAreCapped(t *testing.T) {
	_, base := serve(t, socketio.Options{MaxConnections: 1}, mirror)
	joined(t, base)
	if status, _ := request(t, "GET", base+"/api/socket.io/?EIO=4&transport=polling", ""); status != 503 {
		t.Errorf("got %d", status)
	}
	if _, err := socketio.Dial(t.Context(), base, "/", nil, socketio.DialOptions{}); err == nil {
		t.Error("a second connection was let in")
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestRateSlowsDownWithoutLosing(t *testing.T) {
	_, base := serve(t, socketio.Options{Rate: 200, Burst: 10}, mirror)
	ws := joined(t, base)
	began := time.Now()
	for range 60 {
		ws.send(`42["message",1]`)
	}
	for range 60 {
		ws.want(`42["message-back",1]`)
	}
	// 60 events and the CONNECT, 10 of them free, cannot be read in less than a quarter of a second.
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("62 packets took %v", took)
	}
}

// A write timeout of the server applies to ordinary responses; a poll is held for longer.
func TestPollOutlivesWriteTimeout(t *testing.T) {
	server := socketio.NewServer(socketio.Options{PingInterval: 300 * time.Millisecond})
	mirror(server)
	front := httptest.NewUnstartedServer(server)
	front.Config.WriteTimeout = 50 * time.Millisecond
	front.Start()
	url, _ := polling(t, front.URL)
	get(t, url, 200, "2")
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	defer cancel()
	if err := server.Close(ctx); err != nil {
		t.Error(err)
	}
	front.Close()
}

// Opens many connections with one call each concurrently. No call may be lost, and no goroutine or session may remain.
func TestManyConnectionsLeakNothing(t *testing.T) {
	clients := 500
	if testing.Short() {
		clients = 50
	}
	server, url := serve(t, socketio.Options{}, func(s *socketio.Server) {
		s.Of("/").OnSocket(func(s *socketio.Socket) { s.On("echo", echo) })
	})
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	var lost atomic.Int64
	slots := make(chan struct{}, 64)
	for range clients {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			client, err := socketio.Dial(context.Background(), url, "/", nil, socketio.DialOptions{})
			if err != nil {
				lost.Add(1)
				return
			}
			if _, err := client.EmitWithAck(context.Background(), "echo", 1); err != nil {
				lost.Add(1)
			}
			client.Close(nil)
			_ = client.Wait(context.Background())
		})
	}
	all.Wait()
	if n := lost.Load(); n != 0 {
		t.Errorf("%d of %d lost", n, clients)
	}
	for end := time.Now().Add(ceiling); server.Stats().Connections > 0 ||
		runtime.NumGoroutine() > before+2; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf(
				"%d connections and %d goroutines left, %d before", server.Stats().Connections, runtime.NumGoroutine(), before,
			)
		}
	}
}
