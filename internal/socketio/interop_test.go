package socketio_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
)

// peers returns the directory with the installed official implementations. The tests require Node, so its absence is a
// failure and not a reason to skip.
var peers = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "interop", "js"))
	if err != nil {
		return "", err
	}
	if _, err := exec.LookPath("node"); err != nil {
		return "", errors.New("node is not installed: the official Socket.IO client cannot be tested against")
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "socket.io-client", "package.json")); err == nil {
		return dir, nil
	}
	install := exec.Command("npm", "ci", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return "", errors.New("npm ci: " + err.Error() + "\n" + string(out))
	}
	return dir, nil
})

func peersDir(t testing.TB) string {
	t.Helper()
	dir, err := peers()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// channel registers the handlers that client.mjs expects.
func channel(s *socketio.Server) {
	for _, name := range []string{"/", "/dashboard"} {
		ns := s.Of(name)
		ns.OnConnect(func(_ context.Context, r *socketio.ConnectRequest) (any, error) {
			var auth struct {
				Token string `json:"token"`
			}
			if json.Unmarshal(r.Auth, &auth) != nil || auth.Token != "right" {
				return nil, &socketio.ConnectError{Message: "not authorised", Reason: "unauthenticated"}
			}
			return "worker", nil
		})
		ns.OnSocket(func(s *socketio.Socket) { converse(ns, s) })
	}
}

func converse(ns *socketio.Namespace, s *socketio.Socket) {
	s.Join("WORKERS")
	s.On("echo", echo)
	s.On("where", func(context.Context, []json.RawMessage) ([]any, error) { return []any{s.Namespace()}, nil })
	s.On("blob", func(_ context.Context, args []json.RawMessage) ([]any, error) {
		var blob []byte
		err := json.Unmarshal(args[0], &blob)
		slices.Reverse(blob)
		return []any{socketio.Binary(blob)}, err
	})
	s.On("ask me", func(ctx context.Context, args []json.RawMessage) ([]any, error) {
		if err := ns.To("WORKERS").Emit("hint", "to the room"); err != nil {
			return nil, err
		}
		answer, err := s.EmitWithAck(ctx, "ask", args[0])
		if err != nil {
			return nil, err
		}
		return []any{answer[0]}, nil
	})
	s.On("disconnect me", func(context.Context, []json.RawMessage) ([]any, error) { s.Close(nil); return nil, nil })

	type greeting struct {
		Text string `json:"text"`
	}
	type name struct {
		Name string `json:"name"`
	}
	calls := rpc.Handlers{}
	rpc.Handle(calls, "greet", func(_ context.Context, in name) (greeting, error) {
		return greeting{"hello " + in.Name}, nil
	})
	rpc.Handle(calls, "nothing", func(context.Context, name) (rpc.None, error) { return rpc.None{}, nil })
	rpc.Handle(calls, "crash", func(context.Context, name) (rpc.None, error) { panic("boom") })
	rpc.Serve(s, calls, rpc.Serving{})
}

func TestOfficialClient(t *testing.T) {
	dir := peersDir(t)
	run := func(scenario, transports string) {
		t.Run(scenario+" over "+transports, func(t *testing.T) {
			t.Parallel()
			server, url := serve(t, socketio.Options{}, channel)
			cmd := exec.CommandContext(t.Context(), "node", "client.mjs", url, scenario, transports)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\n%+v", err, out, server.Stats())
			}
		})
	}
	for _, transports := range []string{"websocket", "polling", "polling,websocket"} {
		for _, scenario := range []string{"exchange", "namespaces", "refused", "reconnect"} {
			run(scenario, transports)
		}
	}
}

func TestOfficialClientsReturnAfterRestart(t *testing.T) {
	dir := peersDir(t)
	const clients = 20
	first := socketio.NewServer(socketio.Options{})
	channel(first)
	front := httptest.NewUnstartedServer(nil)
	var mu sync.Mutex
	current := first
	front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		server := current
		mu.Unlock()
		server.ServeHTTP(w, r)
	})
	front.Start()
	defer front.Close()
	cmd := exec.CommandContext(t.Context(), "node", "client.mjs", front.URL, "stay", "websocket", strconv.Itoa(clients))
	lines, quit := start(t, cmd, dir)
	want := func(line string) {
		t.Helper()
		if got := await(t, lines, line); got != line {
			t.Fatalf("got %q, want %q", got, line)
		}
	}
	want("all connected")
	second := socketio.NewServer(socketio.Options{})
	channel(second)
	mu.Lock()
	current = second
	mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	defer cancel()
	if err := first.Close(ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	// The last may be disconnected only after the first is back.
	for line := await(t, lines, "return"); line != "all connected"; line = await(t, lines, "return") {
	}
	t.Logf("%d clients back after %v", clients, time.Since(began).Round(time.Millisecond))
	if n := second.Stats().Sockets["/"]; n != clients {
		t.Errorf("%d sockets at the new server, want %d", n, clients)
	}
	quit()
	if err := second.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// start runs a peer, which exits at the end of its input, and returns the lines that it prints.
func start(t testing.TB, cmd *exec.Cmd, dir string) (lines <-chan string, quit func()) {
	t.Helper()
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed := make(chan string, 64)
	var reader sync.WaitGroup
	reader.Go(func() {
		for scan := bufio.NewScanner(out); scan.Scan(); {
			printed <- strings.TrimSpace(scan.Text())
		}
	})
	var once sync.Once
	quit = func() {
		once.Do(func() {
			_ = in.Close()
			reader.Wait()
			_ = cmd.Wait()
		})
	}
	t.Cleanup(quit)
	return printed, quit
}

func TestOfficialServer(t *testing.T) {
	// A short ping interval, so that pings are answered within the test.
	cmd := exec.CommandContext(t.Context(), "node", "server.mjs", "200")
	lines, _ := start(t, cmd, peersDir(t))
	url := "http://127.0.0.1:" + await(t, lines, "the port")

	_, err := socketio.Dial(t.Context(), url, "/", map[string]string{"token": "wrong"}, socketio.DialOptions{})
	var refusal *socketio.ConnectError
	if !errors.As(err, &refusal) || refusal.Reason != "unauthenticated" || refusal.Message != "not authorised" {
		t.Errorf("got %v", err)
	}
	right := map[string]any{"token": "right"}
	welcome, ponged := make(chan string, 1), make(chan struct{}, 8)
	join := func() *socketio.Client {
		return dial(t, url, "/", right, socketio.DialOptions{OnSocket: func(s *socketio.Socket) {
			s.On("welcome", func(_ context.Context, args []json.RawMessage) ([]any, error) {
				welcome <- text(args)
				return nil, nil
			})
			s.On("ask", func(_ context.Context, args []json.RawMessage) ([]any, error) { return []any{"answer", args[0]}, nil })
			s.On("ponged", func(context.Context, []json.RawMessage) ([]any, error) {
				select {
				case ponged <- struct{}{}:
				default:
				}
				return nil, nil
			})
		}})
	}
	client := join()
	if id := await(t, welcome, "the welcome"); id != `["`+client.ID()+`"]` {
		t.Errorf("the server knows us as %s, we as %s", id, client.ID())
	}
	for _, c := range []struct{ event, arg, want string }{
		{"echo", `{"a":["grüße\u001e",2.5,null]}`, `[{"a":["grüße\u001e",2.5,null]}]`},
		{"ask me", `"42"`, `["answer"]`},
	} {
		if ack, err := client.EmitWithAck(t.Context(), c.event, json.RawMessage(c.arg)); err != nil || text(ack) != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.event, text(ack), err, c.want)
		}
	}
	if ack, err := client.EmitWithAck(t.Context(), "blob", socketio.Binary{1, 2, 255}); err != nil ||
		text(ack) != `["/wIB"]` {
		t.Errorf("blob: got %s, %v", text(ack), err)
	}
	caller := rpc.SocketCaller{Socket: client}
	var out struct{ Text string }
	if err := caller.Call(t.Context(), "greet", map[string]string{"name": "Ada"}, &out); err != nil ||
		out.Text != "hello Ada" {
		t.Errorf("got %+v, %v", out, err)
	}
	if err := caller.Call(t.Context(), "nobody", nil, &out); !errors.Is(err, &rpc.Error{Code: rpc.CodeUnknownMethod}) {
		t.Errorf("got %v", err)
	}
	for range 3 {
		await(t, ponged, "a ping that was answered")
	}
	if err := client.Emit("disconnect me"); err != nil {
		t.Fatal(err)
	}
	wantCause(t, client.Socket, socketio.ErrPeerClosed)
	client = join()
	await(t, welcome, "the welcome")
	if err := client.Emit("cut me"); err != nil {
		t.Fatal(err)
	}
	wantCause(t, client.Socket, socketio.ErrPeerClosed)
}
