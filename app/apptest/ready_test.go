package apptest_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// gate is a proxy between an app and its database. While it is shut, connections stay open and new ones are accepted,
// but no data passes, as with a frozen server or a network that drops all packets.
type gate struct {
	net.Listener
	to string

	mu    sync.Mutex // guards the fields below
	open  chan struct{}
	conns []net.Conn
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: l, to: to, open: make(chan struct{})}
	close(g.open)
	var done sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		g.mu.Lock()
		for _, c := range g.conns {
			_ = c.Close()
		}
		g.mu.Unlock()
		done.Wait()
	})
	done.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, near, far)
			g.mu.Unlock()
			done.Go(func() { g.pass(near, far) })
			done.Go(func() { g.pass(far, near) })
		}
	})
	return g
}

// pass forwards bytes from one connection to the other while the gate is open.
func (g *gate) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		<-open
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (g *gate) shut() (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := make(chan struct{})
	g.open = open
	return sync.OnceFunc(func() { close(open) })
}

// An app reports that it cannot write while its database does not respond, and reports ready when the database
// responds.
func TestAppWithAFrozenDatabaseIsNotReady(t *testing.T) {
	u, err := url.Parse(apptest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	g := newGate(t, u.Host)
	u.Host = g.Addr().String()
	a := apptest.Start(t, apptest.Options{Database: u.String()})
	ready := func(path string) int {
		t.Helper()
		began := time.Now()
		resp, err := http.Get(a.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		t.Logf("%s: %d after %s", path, resp.StatusCode, time.Since(began).Round(time.Millisecond))
		return resp.StatusCode
	}
	if got := ready("/readyz"); got != http.StatusOK {
		t.Fatalf("with a database: %d", got)
	}
	release := g.shut()
	defer release()
	for _, path := range []string{"/readyz", "/api/ready", "/readyz"} {
		// the database does not respond; only the app can
		if got := ready(path); got != http.StatusServiceUnavailable {
			t.Errorf("%s before a database that stands still: %d", path, got)
		}
	}
	if got := ready("/healthz"); got != http.StatusOK {
		t.Errorf("that the process lives: %d", got)
	}
	release()
	until(t, "it is ready again", func() bool { return ready("/readyz") == http.StatusOK })
}
