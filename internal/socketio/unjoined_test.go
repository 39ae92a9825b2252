package socketio_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/internal/connlimit"
	"github.com/sojourn-run/sojourn/internal/socketio"
)

const small, large = 16 << 10, 8 << 20 // bytes that a connection may send before and after it joined a namespace

// echoes accepts every CONNECT and acks every event.
func echoes(s *socketio.Server) {
	for _, name := range []string{"/", "/other"} {
		s.Of(name).OnSocket(func(s *socketio.Socket) {
			s.OnOther(func(context.Context, string, []json.RawMessage) ([]any, error) { return []any{"ok"}, nil })
		})
	}
}

// filled is a packet of n bytes.
func filled(begin string, n int, end string) string {
	return begin + strings.Repeat("x", n-len(begin)-len(end)) + end
}

// Clients can connect without authentication, so a frame before CONNECT is read to at most 16 KiB, whatever its
// announced length and the number of its fragments. The limit applies again when a connection has left its last
// namespace.
func TestAFrameBeforeConnectHasAtMost16KiB(t *testing.T) {
	server, base := serve(t, socketio.Options{}, echoes)
	t.Run("CONNECT at the limit", func(t *testing.T) {
		r := opened(t, base)
		r.send(filled(`40{"token":"`, small, `"}`))
		r.wantPrefix(`40{"sid":"`)
	})
	t.Run("whole", func(t *testing.T) {
		r := opened(t, base)
		r.send(filled(`40{"token":"`, small+1, `"}`))
		if code := r.wantClosed(); code != websocket.CloseMessageTooBig {
			t.Errorf("closed with %d", code)
		}
	})
	t.Run("unfinished", func(t *testing.T) {
		r := opened(t, base)
		w, err := r.NextWriter(websocket.TextMessage) // writes a fragment whenever its buffer is full
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, err := w.Write([]byte(strings.Repeat("x", 4096))); err != nil {
				break // it is closed already
			}
		}
		if code := r.wantClosed(); code != websocket.CloseMessageTooBig {
			t.Errorf("closed with %d", code)
		}
	})
	t.Run("attachments", func(t *testing.T) {
		r := opened(t, base)
		r.send(`453-["event",{"_placeholder":true,"num":0}]`)
		for range 2 {
			if r.WriteMessage(websocket.BinaryMessage, make([]byte, small-1)) != nil {
				break // it is closed already
			}
		}
		if code := r.wantClosed(); code != websocket.CloseMessageTooBig {
			t.Errorf("closed with %d", code)
		}
	})
	t.Run("joined, then left", func(t *testing.T) {
		r := opened(t, base)
		r.send("40", "40/other,")
		r.wantPrefix(`40`)
		r.wantPrefix(`40`)
		r.send(filled(`421["event","`, large, `"]`))
		r.want(`431["ok"]`)
		r.send("41", filled(`42/other,2["event","`, large, `"]`))
		r.want(`43/other,2["ok"]`)
		r.send("41/other,")
		r.send(filled(`40{"token":"`, small+1, `"}`))
		if code := r.wantClosed(); code != websocket.CloseMessageTooBig {
			t.Errorf("closed with %d", code)
		}
	})
	t.Run("polling", func(t *testing.T) {
		url, _ := polling(t, base)
		post(t, url, filled(`40{"token":"`, small+1, `"}`), http.StatusRequestEntityTooLarge)
		url, _ = polling(t, base)
		post(t, url, filled(`40{"token":"`, small, `"}`), 200)
		get(t, url, 200, "")
		post(t, url, filled(`421["event","`, large, `"]`), 200)
		get(t, url, 200, `431["ok"]`)
		post(t, url, "41", 200)
		post(t, url, filled(`40{"token":"`, small+1, `"}`), http.StatusRequestEntityTooLarge)
	})
	t.Run("a body of unknown length", func(t *testing.T) {
		url, _ := polling(t, base)
		body := struct{ *strings.Reader }{strings.NewReader(strings.Repeat("x", large))} // hides the length
		r, err := http.NewRequestWithContext(t.Context(), "POST", url, body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("got %d", response.StatusCode)
		}
	})
	t.Run("headers", func(t *testing.T) {
		header := http.Header{"X-Large": []string{strings.Repeat("x", small)}}
		_, response, err := websocket.DefaultDialer.DialContext(
			t.Context(), strings.Replace(base, "http", "ws", 1)+"/api/socket.io/?EIO=4&transport=websocket", header,
		)
		if err == nil || response == nil || response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("got %v, %v", response, err)
		}
		if response != nil {
			_ = response.Body.Close()
		}
	})
	_ = server
}

// from connects as a client with an address.
func from(t *testing.T, base, address string) raw {
	t.Helper()
	ws, response, err := websocket.DefaultDialer.DialContext(
		t.Context(), strings.Replace(base, "http", "ws", 1)+"/api/socket.io/?EIO=4&transport=websocket",
		http.Header{"X-Address": []string{address}},
	)
	if err != nil {
		t.Fatalf("%v %v", err, response)
	}
	t.Cleanup(func() { _ = ws.Close() })
	r := raw{t, ws}
	r.wantPrefix("0{")
	return r
}

// A new connection replaces one of the address with the most connections that have joined no namespace. Connections in
// a namespace are not counted.
func TestNewConnectionReplacesOneOfTheAddressWithTheMostUnjoined(t *testing.T) {
	server, base := serve(t, socketio.Options{
		MaxUnjoined: 10, Address: func(r *http.Request) string { return r.Header.Get("X-Address") },
	}, echoes)
	join := func(r raw) {
		t.Helper()
		r.send("40")
		r.wantPrefix(`40{"sid":"`)
	}
	working := make([]raw, 20)
	for i := range working {
		working[i] = from(t, base, "many")
		join(working[i])
	}
	few := []raw{from(t, base, "few"), from(t, base, "few")}
	many := make([]raw, 30)
	for i := range many {
		many[i] = from(t, base, "many")
	}
	for _, r := range many[:22] {
		if code := r.wantClosed(); code == -1 {
			t.Error("one of the oldest connections of the address with the most was not closed as a websocket is")
		}
	}
	for _, r := range append(append(few, many[22:]...), working...) {
		r.send("40/other,")
		r.wantPrefix(`40/other,{"sid":"`)
	}
	if stats := server.Stats(); stats.CutUnjoined != 22 || stats.Unjoined != 0 {
		t.Errorf("%d closed, %d left in no namespace; want 22 and 0", stats.CutUnjoined, stats.Unjoined)
	}
}

// At default settings, 1,000 workers of one address can reconnect at the same time.
func TestAThousandWorkersOfOneAddressReconnectAtOnce(t *testing.T) {
	server, base := serve(t, socketio.Options{}, echoes)
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() {
			ws, response, err := websocket.DefaultDialer.DialContext(
				t.Context(), strings.Replace(base, "http", "ws", 1)+"/api/socket.io/?EIO=4&transport=websocket", nil,
			)
			if err != nil {
				t.Errorf("%v %v", err, response)
				return
			}
			defer func() { _ = ws.Close() }()
			_ = ws.SetReadDeadline(time.Now().Add(ceiling))
			if _, _, err := ws.ReadMessage(); err != nil { // the handshake
				t.Error(err)
				return
			}
			if err := ws.WriteMessage(websocket.TextMessage, []byte("40")); err != nil {
				t.Error(err)
				return
			}
			if _, data, err := ws.ReadMessage(); err != nil || !strings.HasPrefix(string(data), "40{") {
				t.Errorf("%s, %v", data, err)
			}
		})
	}
	all.Wait()
	if stats := server.Stats(); stats.CutUnjoined != 0 {
		t.Errorf("%d connections were closed for others", stats.CutUnjoined)
	}
}

// pipes is a listener with in-memory connections, which use the virtual time of a synctest bubble.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.ended) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.conns <- far
	return near, nil
}

// A connection must join a namespace within ten seconds after it was accepted, even if its request arrives late.
func TestConnectionJoinsWithinTenSecondsOfBeingAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := socketio.NewServer(socketio.Options{})
		echoes(server)
		var limit connlimit.Limit
		listener := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
		front := http.Server{
			Handler: connlimit.Requests(server, func(*http.Request) string { return "x" }), ConnContext: connlimit.Context,
			ReadHeaderTimeout: 10 * time.Second,
		}
		served := make(chan error)
		go func() { served <- front.Serve(limit.Listen(listener)) }()
		began := time.Now()
		near, err := listener.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		dial := func(context.Context, string, string) (net.Conn, error) { return near, nil }
		dialer := websocket.Dialer{NetDialContext: dial}
		ws, response, err := dialer.DialContext(t.Context(), "ws://x/?EIO=4&transport=websocket", nil)
		if err != nil {
			t.Fatalf("%v %v", err, response)
		}
		raw{t, ws}.wantPrefix("0{")
		if used, _ := limit.Count(); used != 1 {
			t.Errorf("%d unauthenticated connections, want 1", used)
		}
		if code := (raw{t, ws}).wantClosed(); code == -1 {
			t.Error("the connection was not closed as a websocket is")
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("closed after %s", took)
		}
		_ = ws.Close()
		if err := server.Close(t.Context()); err != nil {
			t.Error(err)
		}
		_ = front.Close()
		<-served
		synctest.Wait()
		if used, _ := limit.Count(); used != 0 {
			t.Errorf("%d unauthenticated connections after the end", used)
		}
	})
}
