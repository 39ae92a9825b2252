package zishang

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/internal/socketio"
)

// ceiling is the maximum wait of a test for an expected event.
const ceiling = time.Minute

// servers are the programs that serve the library, by version, built once.
var servers map[string]string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "zishang")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		servers = map[string]string{}
		for _, version := range []string{"v2", "v3"} {
			servers[version] = filepath.Join(dir, version)
			build := exec.Command("go", "build", "-o", servers[version], ".")
			build.Dir = version
			if out, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "build %s: %v\n%s", version, err, out)
				return 1
			}
		}
		return m.Run()
	}())
}

// peer is a process of the library's server.
type peer struct {
	url  string
	pid  int
	died <-chan struct{} // closed when the process has ended, by itself or not
	log  func() string   // standard error of the process
	kill func()
}

func start(t *testing.T, version string) peer {
	t.Helper()
	cmd := exec.Command(servers[version])
	var mu sync.Mutex
	var log bytes.Buffer
	cmd.Stderr = writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	})
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	died := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(died)
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		<-died
	})
	return peer{url: strings.TrimSpace(line), pid: cmd.Process.Pid, died: died, kill: func() {
		_ = cmd.Process.Kill()
	}, log: func() string {
		mu.Lock()
		defer mu.Unlock()
		return log.String()
	}}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// dies waits for the end of the process and returns its output.
func (p peer) dies(t *testing.T) string {
	t.Helper()
	select {
	case <-p.died:
		return p.log()
	case <-time.After(ceiling):
		t.Fatal("the process lives on")
		return ""
	}
}

// lives fails the test if the process has ended or accepts no connections.
func (p peer) lives(t *testing.T) {
	t.Helper()
	select {
	case <-p.died:
		t.Fatalf("the process ended:\n%s", p.log())
	default:
		p.raw(t)
	}
}

// dial joins a namespace of the process with our client.
func (p peer) dial(t *testing.T, namespace string, auth any) *socketio.Client {
	t.Helper()
	return p.dialWith(t, namespace, auth, socketio.DialOptions{})
}

// dialWith retries a connection without a response: a server of version 2 listens only after it printed its address,
// and drops a CONNECT that arrives before its handlers are registered, like events.
func (p peer) dialWith(t *testing.T, namespace string, auth any, options socketio.DialOptions) *socketio.Client {
	t.Helper()
	options.Path, options.MaxQueue, options.ConnectTimeout = "/socket.io/", 10_000, 3*time.Second
	for end := time.Now().Add(ceiling); ; {
		c, err := socketio.Dial(t.Context(), p.url, namespace, auth, options)
		switch {
		case err == nil:
			t.Cleanup(func() { c.Close(nil) })
			ready, cancel := context.WithTimeout(t.Context(), options.ConnectTimeout)
			_, err := c.EmitWithAck(ready, "auth")
			cancel()
			if err == nil {
				return c
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		case !errors.Is(err, context.DeadlineExceeded) || time.Now().After(end):
			t.Fatal(err)
		}
	}
}

// raw joins "/" with plain frames, which can be invalid. A server of version 2 drops a CONNECT and events that arrive
// before its handlers are registered, so raw sends a request first, and tries another connection without a response.
func (p peer) raw(t *testing.T) *websocket.Conn {
	t.Helper()
	url := "ws" + strings.TrimPrefix(p.url, "http") + "/socket.io/?EIO=4&transport=websocket"
	for end := time.Now().Add(ceiling); time.Now().Before(end); {
		c, _, err := websocket.DefaultDialer.Dial(url, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if !read(c, ceiling, "0") { // Engine.IO has opened
			continue
		}
		if c.WriteMessage(websocket.TextMessage, []byte("40")) != nil || !read(c, 3*time.Second, "40") {
			continue
		}
		if c.WriteMessage(websocket.TextMessage, []byte(`4299["auth"]`)) == nil && read(c, 3*time.Second, "4399") {
			_ = c.SetReadDeadline(time.Time{})
			return c
		}
	}
	t.Fatal("the server answers nothing")
	return nil
}

// read reads frames until one begins with prefix; false when none came in time.
func read(c *websocket.Conn, patience time.Duration, prefix string) bool {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	for {
		_, data, err := c.ReadMessage()
		if err != nil {
			return false
		}
		if strings.HasPrefix(string(data), prefix) {
			return true
		}
	}
}

// each runs a test with each version of the library's server.
func each(t *testing.T, test func(t *testing.T, version string)) {
	t.Helper()
	for _, version := range []string{"v2", "v3"} {
		t.Run(version, func(t *testing.T) { test(t, version) })
	}
}
