package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/internal/socketio"
)

func start(t *testing.T) string {
	t.Helper()
	engine, socket := servers(socketio.Options{PingInterval: time.Minute, PingTimeout: time.Minute})
	mux := http.NewServeMux()
	mux.Handle("/engine.io/", engine)
	mux.Handle("/socket.io/", socket)
	front := httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if engine.Close(ctx) != nil || socket.Close(ctx) != nil {
			t.Error("the servers did not close")
		}
		front.Close()
	})
	return front.URL
}

func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(text)
}

func TestMessagesOfABareSessionComeBackInOrder(t *testing.T) {
	base := start(t) + "/engine.io/?EIO=4&transport=polling"
	_, hello := ask(t, "GET", base, "")
	_, rest, _ := strings.Cut(hello, `"sid":"`)
	sid, _, _ := strings.Cut(rest, `"`)
	url := base + "&sid=" + sid
	for _, packets := range []string{"4hello", "4one\x1e4two\x1e4three", "4text\x1ebAQIDBA=="} {
		if status, got := ask(t, "POST", url, packets); status != 200 || got != "ok" {
			t.Fatalf("%q: got %d %q", packets, status, got)
		}
		if status, got := ask(t, "GET", url, ""); status != 200 || got != packets {
			t.Errorf("got %d %q, want %q", status, got, packets)
		}
	}
	if status, _ := ask(t, "POST", url, "abc"); status != 400 {
		t.Errorf("a packet of no type: got %d", status)
	}
	if status, _ := ask(t, "GET", url, ""); status != 400 {
		t.Errorf("after it: got %d", status)
	}
}

func dial(t *testing.T, url string) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.DefaultDialer.DialContext(
		t.Context(), strings.Replace(url, "http", "ws", 1)+"?EIO=4&transport=websocket", nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.Close() })
	return ws
}

func want(t *testing.T, ws *websocket.Conn, kind int, prefix string) {
	t.Helper()
	if err := ws.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got, data, err := ws.ReadMessage(); err != nil || got != kind || !strings.HasPrefix(string(data), prefix) {
		t.Fatalf("got %q of kind %d, %v; want %q", data, got, err, prefix)
	}
}

func send(t *testing.T, ws *websocket.Conn, kind int, data string) {
	t.Helper()
	if err := ws.WriteMessage(kind, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func TestTextAndBinaryOverAWebsocket(t *testing.T) {
	base := start(t)
	ws := dial(t, base+"/engine.io/")
	want(t, ws, websocket.TextMessage, "0{")
	send(t, ws, websocket.TextMessage, "4hello")
	want(t, ws, websocket.TextMessage, "4hello")
	send(t, ws, websocket.BinaryMessage, "\x01\x02")
	want(t, ws, websocket.BinaryMessage, "\x01\x02")
}

func TestSocketsAreGreetedInBothNamespaces(t *testing.T) {
	ws := dial(t, start(t)+"/socket.io/")
	want(t, ws, websocket.TextMessage, "0{")
	send(t, ws, websocket.TextMessage, `40/custom,{"token":"abc"}`)
	want(t, ws, websocket.TextMessage, `40/custom,{"sid":"`)
	want(t, ws, websocket.TextMessage, `42/custom,["auth",{"token":"abc"}]`)
	send(t, ws, websocket.TextMessage, "40")
	want(t, ws, websocket.TextMessage, `40{"sid":"`)
	want(t, ws, websocket.TextMessage, `42["auth",{}]`)
	blobs := `{"_placeholder":true,"num":0},[{"_placeholder":true,"num":1}]`
	for _, m := range []struct{ out, in string }{
		{`42["message",1,"2",{"3":[true]}]`, `42["message-back",1,"2",{"3":[true]}]`},
		{`42456["message-with-ack",1]`, `43456[1]`},
		{`452-["message",` + blobs + `]`, `452-["message-back",` + blobs + `]`},
		{`452-789["message-with-ack",` + blobs + `]`, `462-789[` + blobs + `]`},
	} {
		send(t, ws, websocket.TextMessage, m.out)
		if m.out[1] == '5' {
			send(t, ws, websocket.BinaryMessage, "\x01")
			send(t, ws, websocket.BinaryMessage, "\x02")
		}
		want(t, ws, websocket.TextMessage, m.in)
		if m.out[1] == '5' {
			want(t, ws, websocket.BinaryMessage, "\x01")
			want(t, ws, websocket.BinaryMessage, "\x02")
		}
	}
}
