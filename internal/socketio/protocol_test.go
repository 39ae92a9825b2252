package socketio_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/internal/socketio"
)

// These tests write packets of both protocols literally, so that they show the bytes on the wire.

const sep = "\x1e"

// quick are options with short heartbeats.
var quick = socketio.Options{
	PingInterval: 300 * time.Millisecond, PingTimeout: 200 * time.Millisecond, MaxPayload: 1_000_000,
}

// mirror sends its auth object to every new socket and echoes every message.
func mirror(s *socketio.Server) {
	for _, name := range []string{"/", "/custom"} {
		ns := s.Of(name)
		ns.OnConnect(func(_ context.Context, r *socketio.ConnectRequest) (any, error) {
			if len(r.Auth) == 0 {
				return json.RawMessage("{}"), nil
			}
			return r.Auth, nil
		})
		ns.OnSocket(func(s *socketio.Socket) {
			// A socket whose connection ended at once returns an error here.
			_ = s.Emit("auth", s.Principal())
			s.On("message", func(ctx context.Context, args []json.RawMessage) ([]any, error) {
				return nil, s.Emit("message-back", reflected(ctx, args)...)
			})
			s.On("message-with-ack", func(ctx context.Context, args []json.RawMessage) ([]any, error) {
				return reflected(ctx, args), nil
			})
		})
	}
}

// reflected returns the arguments of an event, with attachments as attachments.
func reflected(ctx context.Context, args []json.RawMessage) []any {
	if values, ok := socketio.Attached(ctx); ok {
		return values
	}
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = a
	}
	return out
}

func request(t testing.TB, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(got)
}

func get(t testing.TB, url string, wantStatus int, want string) {
	t.Helper()
	if status, got := request(t, "GET", url, ""); status != wantStatus || want != "" && got != want {
		t.Errorf("GET: got %d %q, want %d %q", status, got, wantStatus, want)
	}
}

func post(t testing.TB, url, body string, wantStatus int) {
	t.Helper()
	if status, got := request(t, "POST", url, body); status != wantStatus || status == 200 && got != "ok" {
		t.Errorf("POST %q: got %d %q, want %d", body, status, got, wantStatus)
	}
}

type terms struct {
	SID                                   string
	Upgrades                              []string
	PingInterval, PingTimeout, MaxPayload int
}

// polling opens a session over HTTP and returns its URL.
func polling(t testing.TB, base string) (string, terms) {
	t.Helper()
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	endpoint := base + "/api/socket.io/?EIO=4&transport=polling"
	status, body := request(t, "GET", endpoint, "")
	var open terms
	if status != 200 || !strings.HasPrefix(body, "0") || json.Unmarshal([]byte(body[1:]), &open) != nil || open.SID == "" {
		t.Fatalf("handshake: %d %q", status, body)
	}
	return endpoint + "&sid=" + url.QueryEscape(open.SID), open
}

// raw is a websocket on which a test reads and writes single frames.
type raw struct {
	t testing.TB
	*websocket.Conn
}

func open(t testing.TB, base, query string) raw {
	t.Helper()
	ws, response, err := websocket.DefaultDialer.DialContext(
		t.Context(), strings.Replace(base, "http", "ws", 1)+"/api/socket.io/?"+query, nil,
	)
	if err != nil {
		t.Fatalf("%v %v", err, response)
	}
	t.Cleanup(func() { _ = ws.Close() })
	return raw{t, ws}
}

// opened returns a websocket after the Engine.IO handshake; joined returns one that has also joined "/" and read the
// greeting.
func opened(t testing.TB, base string) raw {
	t.Helper()
	r := open(t, base, "EIO=4&transport=websocket")
	if got := r.read(); !strings.HasPrefix(got, "0{") {
		t.Fatalf("got %q", got)
	}
	return r
}

func joined(t testing.TB, base string) raw {
	t.Helper()
	r := opened(t, base)
	r.send("40")
	r.wantPrefix(`40{"sid":"`)
	r.want(`42["auth",{}]`)
	return r
}

func (r raw) send(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		if err := r.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// read returns the next frame that is not a ping.
func (r raw) read() string {
	r.t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(ceiling)); err != nil {
		r.t.Fatal(err)
	}
	for {
		_, data, err := r.ReadMessage()
		if err != nil {
			r.t.Fatal(err)
		}
		if string(data) != "2" {
			return string(data)
		}
	}
}

func (r raw) want(texts ...string) {
	r.t.Helper()
	for _, want := range texts {
		if got := r.read(); got != want {
			r.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func (r raw) wantPrefix(want string) {
	r.t.Helper()
	if got := r.read(); !strings.HasPrefix(got, want) {
		r.t.Fatalf("got %q, want %q…", got, want)
	}
}

// wantClosed reads until the connection ends, and returns the close code.
func (r raw) wantClosed() int {
	r.t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(ceiling)); err != nil {
		r.t.Fatal(err)
	}
	for {
		_, _, err := r.ReadMessage()
		var closed *websocket.CloseError
		if errors.As(err, &closed) {
			return closed.Code
		}
		if err != nil {
			return -1
		}
	}
}

func TestEngineHandshake(t *testing.T) {
	_, base := serve(t, quick, mirror)
	_, got := polling(t, base)
	want := terms{
		SID: got.SID, Upgrades: []string{"websocket"}, PingInterval: 300, PingTimeout: 200, MaxPayload: 1_000_000,
	}
	if len(got.Upgrades) != 1 || got.Upgrades[0] != "websocket" || got.PingInterval != want.PingInterval ||
		got.PingTimeout != want.PingTimeout || got.MaxPayload != want.MaxPayload {
		t.Errorf("got %+v, want %+v", got, want)
	}
	ws := open(t, base, "EIO=4&transport=websocket")
	text := ws.read()
	if json.Unmarshal([]byte(text[1:]), &got) != nil || text[0] != '0' || !strings.Contains(text, `"upgrades":[]`) {
		t.Errorf("got %s", text)
	}
	for _, query := range []string{
		"transport=polling", "EIO=abc&transport=polling", "EIO=4", "EIO=4&transport=abc", "EIO=4&transport=websocket",
	} {
		get(t, base+"/api/socket.io/?"+query, 400, "")
	}
	get(
		t, base+"/api/socket.io/?EIO=4&transport=polling&sid=nobody", 400, `{"code":1,"message":"Session ID unknown"}`+"\n",
	)
	for _, method := range []string{"POST", "PUT"} {
		if status, _ := request(t, method, base+"/api/socket.io/?EIO=4&transport=polling", ""); status != 400 {
			t.Errorf("%s: got %d", method, status)
		}
	}
	for _, query := range []string{
		"transport=websocket", "EIO=3&transport=websocket", "EIO=4", "EIO=4&transport=polling",
	} {
		_, response, err := websocket.DefaultDialer.Dial(strings.Replace(base, "http", "ws", 1)+"/api/socket.io/?"+query, nil)
		if err == nil || response == nil || response.StatusCode != http.StatusBadRequest {
			t.Errorf("websocket with %s: got %v, %v", query, response, err)
		}
	}
}

func TestEngineOverPolling(t *testing.T) {
	_, base := serve(t, quick, mirror)
	session := func() string { url, _ := polling(t, base); return url }

	t.Run("several packets, text and binary", func(t *testing.T) {
		url := session()
		post(t, url, "40", 200)
		if status, got := request(t, "GET", url, ""); status != 200 || !strings.HasPrefix(got, `40{"sid":"`) {
			t.Fatalf("got %d %q", status, got)
		} else if !strings.Contains(got, sep) { // the greeting came in a poll of its own
			get(t, url, 200, `42["auth",{}]`)
		}
		post(t, url, `42["message",1]`+sep+`421["message-with-ack","ü"]`+sep+
			`451-2["message-with-ack",{"_placeholder":true,"num":0}]`+sep+"bAQID", 200)
		want := []string{`42["message-back",1]`, `431["ü"]`, `461-2[{"_placeholder":true,"num":0}]` + sep + "bAQID"}
		var all string
		for range 4 {
			if strings.Count(all, sep) == 3 {
				break
			}
			_, got := request(t, "GET", url, "")
			if all != "" {
				all += sep
			}
			all += got
		}
		for _, w := range want { // three handlers, three goroutines: any order
			if !strings.Contains(sep+all+sep, sep+w+sep) {
				t.Errorf("got %q, want it to contain %q", all, w)
			}
		}
	})
	t.Run("a broken packet ends the session", func(t *testing.T) {
		for _, body := range []string{"abc", "", "4", "b", "b?!", "4zzz", "40" + sep} {
			url := session()
			post(t, url, body, 400)
			get(t, url, 400, "")
		}
	})
	t.Run("a second poll at once ends the session", func(t *testing.T) {
		url := session()
		answers := make(chan string, 2)
		for range 2 {
			go func() {
				status, body := request(t, "GET", url, "")
				answers <- http.StatusText(status) + " " + body
			}()
		}
		both := await(t, answers, "an answer") + await(t, answers, "an answer")
		if !strings.Contains(both, "OK 1") || !strings.Contains(both, "Bad Request") {
			t.Errorf("got %q", both)
		}
		get(t, url, 400, "")
	})
	t.Run("a cancelled poll ends the session", func(t *testing.T) {
		server, base := serve(t, socketio.Options{}, mirror)
		url, _ := polling(t, base)
		post(t, url, "40", 200)
		for _, got := request(t, "GET", url, ""); !strings.Contains(got, "auth"); _, got = request(t, "GET", url, "") {
		}
		socket := server.Of("/").Sockets()[0]
		ctx, cancel := context.WithCancel(t.Context())
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
			cancel()
		}})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := http.DefaultTransport.RoundTrip(r); err == nil {
			_ = response.Body.Close()
			t.Error("the poll was answered")
		}
		wantCause(t, socket, socketio.ErrPeerClosed)
		get(t, url, 400, "")
	})
	t.Run("pings", func(t *testing.T) {
		url := session()
		post(t, url, "40", 200)
		get(t, url, 200, "")
		for pings := 0; pings < 3; {
			if _, got := request(t, "GET", url, ""); strings.Contains(got, "2") && !strings.Contains(got, "auth") {
				pings++
				post(t, url, "3", 200)
			}
		}
	})
	t.Run("no pong, no session", func(t *testing.T) {
		url := session()
		get(t, url, 200, "2")
		get(t, url, 200, "1") // held until the session ends
		get(t, url, 400, "")
	})
	t.Run("close", func(t *testing.T) {
		url := session()
		held := make(chan string, 1)
		go func() { _, body := request(t, "GET", url, ""); held <- body }()
		post(t, url, "1", 200)
		if body := await(t, held, "the poll"); body != "6" && !strings.Contains(body, "Session ID unknown") {
			t.Errorf("got %q", body)
		}
		get(t, url, 400, "")
	})
	t.Run("close before the poll that was sent beside it", func(t *testing.T) {
		url := session()
		closed := make(chan int, 1)
		go func() { status, _ := request(t, "POST", url, "1"); closed <- status }()
		// The poll may arrive a moment after the close packet, or on a slow machine too late.
		if status, body := request(t, "GET", url, ""); status != 400 && body != "6" {
			t.Errorf("got %d %q", status, body)
		}
		if status := await(t, closed, "the answer"); status != 200 && status != 400 {
			t.Errorf("got %d", status)
		}
		get(t, url, 400, "")
	})
	t.Run("a body above the limit", func(t *testing.T) {
		url := session()
		post(t, url, "4"+strings.Repeat("x", 1_000_001), 413)
		get(t, url, 400, "")
	})
}

func TestEngineOverWebsocket(t *testing.T) {
	_, base := serve(t, quick, mirror)
	t.Run("pings", func(t *testing.T) {
		ws := joined(t, base)
		for range 3 {
			_, data, err := ws.ReadMessage()
			if err != nil || string(data) != "2" {
				t.Fatalf("got %q, %v", data, err)
			}
			ws.send("3")
		}
	})
	t.Run("no pong, no session", func(t *testing.T) { joined(t, base).wantClosed() })
	t.Run("a broken packet ends the session", func(t *testing.T) {
		for _, text := range []string{"abc", "", "4", "9"} {
			ws := opened(t, base)
			ws.send(text)
			if code := ws.wantClosed(); code != websocket.CloseProtocolError {
				t.Errorf("%q: closed with %d", text, code)
			}
		}
	})
	t.Run("close", func(t *testing.T) {
		ws := opened(t, base)
		ws.send("1")
		ws.wantClosed()
	})
	t.Run("a frame above the limit is closed with 1009", func(t *testing.T) {
		server, base := serve(t, quick, mirror)
		ws := joined(t, base)
		socket := server.Of("/").Sockets()[0]
		// The close may come while this is still being written.
		_ = ws.WriteMessage(websocket.TextMessage, bytes.Repeat([]byte("4"), 5_000_000))
		if code := ws.wantClosed(); code != websocket.CloseMessageTooBig {
			t.Errorf("closed with %d", code)
		}
		_ = ws.Close()
		wantCause(t, socket, socketio.ErrPayloadTooLarge)
		if n := server.Stats().CutTooLarge; n != 1 {
			t.Errorf("counted %d", n)
		}
	})
}

func TestEngineUpgrade(t *testing.T) {
	_, base := serve(t, socketio.Options{}, mirror)
	session := func(t *testing.T) (url, query string) {
		url, terms := polling(t, base)
		return url, "EIO=4&transport=websocket&sid=" + terms.SID
	}
	t.Run("moves the session", func(t *testing.T) {
		url, query := session(t)
		ws := open(t, base, query)
		ws.send("2probe")
		ws.want("3probe")
		get(t, url, 200, "6")
		ws.send("5", "40")
		ws.wantPrefix(`40{"sid":"`)
		ws.want(`42["auth",{}]`)
		get(t, url, 400, "")
		post(t, url, `42["message",1]`, 400)
		if code := open(t, base, query).wantClosed(); code != websocket.CloseNormalClosure {
			t.Errorf("a second websocket: closed with %d", code)
		}
		ws.send(`42["message",2]`)
		ws.want(`42["message-back",2]`)
	})
	t.Run("a second websocket beside the probe is accepted and closed", func(t *testing.T) {
		_, query := session(t)
		ws := open(t, base, query)
		ws.send("2probe")
		ws.want("3probe")
		if code := open(t, base, query).wantClosed(); code != websocket.CloseNormalClosure {
			t.Errorf("closed with %d", code)
		}
		ws.send("5", "40")
		ws.wantPrefix(`40{"sid":"`)
	})
	t.Run("a poll that overtakes the client's word is refused", func(t *testing.T) {
		url, query := session(t)
		ws := open(t, base, query)
		ws.send("2probe")
		ws.want("3probe")
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
			ws.send("5")
		}})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		// On a slow machine the server may have released the poll already, like a waiting one.
		if response.StatusCode != http.StatusBadRequest && response.StatusCode != http.StatusOK {
			t.Errorf("got %d", response.StatusCode)
		}
		get(t, url, 400, "")
	})
	t.Run("releases a poll that waits", func(t *testing.T) {
		url, query := session(t)
		held := make(chan string, 1)
		go func() { _, body := request(t, "GET", url, ""); held <- body }()
		ws := open(t, base, query)
		ws.send("2probe")
		ws.want("3probe")
		if body := await(t, held, "the poll"); body != "6" {
			t.Errorf("got %q", body)
		}
		ws.send("5", "40")
		ws.wantPrefix(`40{"sid":"`)
	})
	t.Run("takes along what was queued", func(t *testing.T) {
		url, query := session(t)
		post(t, url, "40", 200)
		get(t, url, 200, "")
		ws := open(t, base, query)
		ws.send("2probe")
		ws.want("3probe")
		post(t, url, `42["message",1]`, 200)
		ws.send("5")
		for got := ws.read(); got != `42["message-back",1]`; got = ws.read() {
		}
	})
	t.Run("a probe that fails leaves the session polling", func(t *testing.T) {
		url, query := session(t)
		ws := open(t, base, query)
		ws.send("nonsense")
		ws.wantClosed()
		post(t, url, "40", 200)
		get(t, url, 200, "")
		second := open(t, base, query)
		second.send("2probe")
		second.want("3probe")
	})
}

func TestSocketConnect(t *testing.T) {
	_, base := serve(t, socketio.Options{}, mirror)
	for _, c := range []struct{ send, prefix, auth string }{
		{`40`, `40{"sid":"`, `42["auth",{}]`},
		{`40{"token":"123"}`, `40{"sid":"`, `42["auth",{"token":"123"}]`},
		{`40/custom`, `40/custom,{"sid":"`, `42/custom,["auth",{}]`},
		{`40/custom,`, `40/custom,{"sid":"`, `42/custom,["auth",{}]`},
		{`40/custom,{"token":"abc"}`, `40/custom,{"sid":"`, `42/custom,["auth",{"token":"abc"}]`},
	} {
		ws := opened(t, base)
		ws.send(c.send)
		ws.wantPrefix(c.prefix)
		ws.want(c.auth)
	}
	ws := opened(t, base)
	ws.send("40/random")
	ws.want(`44/random,{"message":"Invalid namespace"}`)
	ws.send("40")
	ws.wantPrefix("40{")
}

func TestSocketDisconnect(t *testing.T) {
	_, base := serve(t, socketio.Options{ConnectTimeout: 100 * time.Millisecond}, mirror)
	ws := joined(t, base)
	ws.send("41")
	ws.wantClosed() // in no namespace for the time one has to join

	ws = joined(t, base)
	ws.send("40/custom")
	ws.wantPrefix(`40/custom,{"sid":"`)
	ws.want(`42/custom,["auth",{}]`)
	ws.send("41/custom", `42/custom,["message","late"]`, `42["message","main"]`)
	ws.want(`42["message-back","main"]`)
}

func TestSocketMessages(t *testing.T) {
	_, base := serve(t, socketio.Options{}, mirror)
	ws := joined(t, base)
	blobs := `{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}`
	ws.send(`42["message",1,"2",{"3":[true]}]`)
	ws.want(`42["message-back",1,"2",{"3":[true]}]`)
	ws.send(`42456["message-with-ack",1,"2",{"3":[false]}]`)
	ws.want(`43456[1,"2",{"3":[false]}]`)
	for _, c := range []struct{ send, want string }{
		{`452-["message",` + blobs + `]`, `452-["message-back",` + blobs + `]`},
		{`452-789["message-with-ack",` + blobs + `]`, `462-789[` + blobs + `]`},
	} {
		ws.send(c.send)
		for _, blob := range []string{"\x01\x02\x03", "\x04\x05\x06"} {
			if err := ws.WriteMessage(websocket.BinaryMessage, []byte(blob)); err != nil {
				t.Fatal(err)
			}
		}
		ws.want(c.want, "\x01\x02\x03", "\x04\x05\x06")
	}
	ws.send(
		`452-1["message-with-ack",{"b":[{"_placeholder":true,"num":1}],"a":{"c":{"_placeholder":true,"num":0},"n":12345678901234567890}},"AQID"]`,
	)
	for _, blob := range []string{"\x01", "\x02"} {
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte(blob)); err != nil {
			t.Fatal(err)
		}
	}
	ws.want(
		`462-1[{"a":{"c":{"_placeholder":true,"num":0},"n":12345678901234567890},"b":[{"_placeholder":true,"num":1}]},"AQID"]`,
		"\x01", "\x02",
	)
	for _, broken := range []string{
		"4abc", "42", "42{}", `42"x"`, "42[]", "42[1]", `42abc["message",1]`, `42["message",1`, `43[1]`, "40", "45",
		`45-["x"]`, `451["x"]`,
		`4599-["x"]`, `42/custom,["message",1]`, "44{}", "47", `429999999999999999["message"]`,
		"4" + strings.Repeat("9", 200),
	} {
		ws := joined(t, base)
		ws.send(broken)
		if code := ws.wantClosed(); code != websocket.CloseProtocolError && code != websocket.CloseMessageTooBig {
			t.Errorf("%q: closed with %d", broken, code)
		}
	}
	for _, broken := range []string{
		`451-["message",{"_placeholder":true,"num":1}]`, `451-["message",{"_placeholder":true}]`,
		`451-["message",{"_placeholder":true,"num":-1}]`,
		`451-["message",{"_placeholder":true,"num":0},{"_placeholder":true,"num":0}]`, `451-["message",`, "",
	} {
		ws := joined(t, base)
		if broken != "" { // empty: an unexpected attachment
			ws.send(broken)
		}
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if code := ws.wantClosed(); code != websocket.CloseProtocolError {
			t.Errorf("%q and an attachment: closed with %d", broken, code)
		}
	}
	late := joined(t, base)
	late.send(`451-["message",{"_placeholder":true,"num":0}]`, `42["message",1]`)
	late.wantClosed()
	// An unexpected ack is not an error, and the other client is not affected by any of this.
	ws.send(`4399[1]`, `42["message","still here"]`)
	ws.want(`42["message-back","still here"]`)
}
