package connlimit_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/connlimit"
)

// serveScarce starts a listener with few descriptors: the reserve begins at the given number.
type scarceServer struct {
	t     *testing.T
	limit connlimit.Limit
	addr  string
	held  chan struct{}
}

func serveScarce(t *testing.T, descriptors int) *scarceServer {
	t.Helper()
	return serveOn(t, descriptors, func(l net.Listener) net.Listener { return l })
}

func serveOn(t *testing.T, descriptors int, around func(net.Listener) net.Listener) *scarceServer {
	t.Helper()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scarceServer{t: t, addr: inner.Addr().String(), held: make(chan struct{})}
	s.limit.Descriptors = descriptors
	server := http.Server{
		ReadHeaderTimeout: time.Minute, ConnContext: connlimit.Context, ConnState: s.limit.State,
		Handler: connlimit.Requests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/authenticated":
				connlimit.From(r.Context()).Leave()
			case "/held":
				connlimit.From(r.Context()).Leave()
				s.held <- struct{}{}
				<-s.held
			}
			_, _ = fmt.Fprint(w, connlimit.Reserved(r.Context()))
		}), func(r *http.Request) string { return r.RemoteAddr }),
	}
	go func() { _ = server.Serve(s.limit.Listen(around(inner))) }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

func (s *scarceServer) dial() net.Conn {
	s.t.Helper()
	c, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask returns a whole response.
func (s *scarceServer) ask(c net.Conn, path string) string {
	s.t.Helper()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		s.t.Fatal(err)
	}
	raw := make([]byte, 4096)
	n, err := c.Read(raw)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(raw[:n])
}

// closed waits for the end of a connection.
func (s *scarceServer) closed(what string, c net.Conn) {
	s.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || strings.Contains(err.Error(), "timeout") {
		s.t.Errorf("%s: read %d, %v; want its end", what, n, err)
	}
}

// A connection whose descriptor is in the reserve is recognized, ends with its first response, and causes an idle
// connection to be closed: an unauthenticated one before others, and the longest idle of them.
func TestAConnectionInTheReserveClosesIdleOnes(t *testing.T) {
	s := serveScarce(t, 1<<20)
	known, first, second := s.dial(), s.dial(), s.dial()
	s.ask(known, "/authenticated")
	s.ask(first, "/")
	s.ask(second, "/")
	if got := s.ask(first, "/"); !strings.HasSuffix(got, "false") || strings.Contains(got, "Connection: close") {
		t.Errorf("below the reserve: %q", got)
	}
	busy := s.dial()
	s.ask(busy, "/")
	connlimit.Scarce(&s.limit, 16, time.Hour) // all that follow are in the reserve
	s.ask(s.dial(), "/")
	if got := s.limit.DescriptorStats(); got.Reserved != 1 || got.Closed != 0 {
		t.Errorf("connections that may be about to send a request: %+v", got)
	}
	connlimit.Scarce(&s.limit, 16, 0)
	if _, err := io.WriteString(busy, "GET /held HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-s.held
	for _, victim := range []struct {
		what string
		conn net.Conn
	}{{"the longest idle", second}, {"the next", first}, {"the authenticated one", known}} {
		probe := s.dial()
		if got := s.ask(probe, "/"); !strings.HasSuffix(got, "true") || !strings.Contains(got, "Connection: close") {
			t.Errorf("in the reserve: %q", got)
		}
		s.closed(victim.what, victim.conn)
	}
	s.held <- struct{}{}
	if _, err := busy.Read(make([]byte, 4096)); err != nil {
		t.Errorf("a connection with a request was closed: %v", err)
	}
	if got := s.limit.DescriptorStats(); got.Reserved != 4 || got.Closed != 3 {
		t.Errorf("stats: %+v", got)
	}
}

// Connections that send nothing have half of the reserve at most: the oldest of them is closed for the next.
func TestConnectionsHaveHalfOfTheReserve(t *testing.T) {
	// four are reserved, and two of them for connections; this process has more descriptors open than that
	s := serveScarce(t, 8)
	first, second, third := s.dial(), s.dial(), s.dial()
	s.closed("the oldest", first)
	for _, c := range []net.Conn{second, third} {
		if got := s.ask(c, "/"); !strings.HasSuffix(got, "true") {
			t.Errorf("in the reserve: %q", got)
		}
	}
}

// lacking is a listener for which the process has no descriptor for a while.
type lacking struct {
	net.Listener
	failures atomic.Int64
	failed   chan struct{}
}

func (l *lacking) Accept() (net.Conn, error) {
	if l.failures.Add(-1) >= 0 {
		l.failed <- struct{}{}
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// If no descriptor is left for a connection, an idle one is closed at once, and the server accepts again.
func TestServerWithoutFileDescriptorsClosesIdleConnections(t *testing.T) {
	l := &lacking{failed: make(chan struct{}, 10)}
	s := serveOn(t, 1<<20, func(inner net.Listener) net.Listener { l.Listener = inner; return l })
	idle := s.dial()
	s.ask(idle, "/")
	l.failures.Store(2)
	s.ask(s.dial(), "/") // the accept that was waiting already
	<-l.failed
	s.closed("the longest idle", idle)
	<-l.failed
	s.ask(s.dial(), "/")
	if n := l.failures.Load(); n < -3 {
		t.Errorf("accepted %d times", -n)
	}
}
