package storetest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Gate is a TCP proxy between an app and its PostgreSQL server. It can stop at a statement of the app's committer: it
// forwards everything before, none or half of that statement, and nothing after it in either direction, like a network
// that drops all packets. So a test can pause an app while it holds any lock. It can also drop the response to an
// executed statement, as if the server died.
type Gate struct {
	target string
	ln     net.Listener
	all    sync.WaitGroup

	mu     sync.Mutex
	open   chan struct{} // closed while the gate is open; guarded by mu, as all below
	at     string        // close at the next statement that contains this; "": at none
	half   bool
	lose   *bool       // nil: the gate closes; else it drops a response, to the committer or to a reader
	away   bool        // all connections are refused
	shut   chan string // receives the SQL at which the gate shut or dropped the response
	conns  map[net.Conn]bool
	closed bool
}

// gatedConn is one connection through a gate.
type gatedConn struct {
	app, server net.Conn
	armed       bool                   // the response to the next COMMIT will be dropped; used by forth only
	loses       atomic.Pointer[string] // the statement whose response is being dropped
}

// NewGate opens a gate before a server's host:port. It ends with the test.
func NewGate(t testing.TB, target string) *Gate { return NewGateAt(t, "127.0.0.1:0", target) }

// NewGateAt opens a gate that listens on a given host:port.
func NewGateAt(t testing.TB, at, target string) *Gate {
	t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{target: target, ln: ln, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(g.open)
	g.all.Go(g.accept)
	t.Cleanup(g.End)
	return g
}

// Addr returns the gate's address.
func (g *Gate) Addr() string { return g.ln.Addr().String() }

// Shut closes the gate at the next statement of a committer that contains at, after sending half of it or nothing. The
// channel receives the SQL when that has happened.
func (g *Gate) Shut(at string, half bool) <-chan string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at, g.half, g.lose, g.shut = at, half, nil, make(chan string, 1)
	return g.shut
}

// LoseCommit makes the gate drop the server's response to the COMMIT of the committer's next transaction with a
// statement that contains at. The transaction is committed, then the gate closes all connections and refuses new ones
// until Open. The channel receives the SQL when that has happened.
func (g *Gate) LoseCommit(at string) <-chan string { return g.loses(at, true) }

// LoseRead drops, in the middle, the server's response to a reader's next statement that contains at, and then does the
// same as LoseCommit.
func (g *Gate) LoseRead(at string) <-chan string { return g.loses(at, false) }

func (g *Gate) loses(at string, committer bool) <-chan string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at, g.lose, g.shut = at, &committer, make(chan string, 1)
	return g.shut
}

// closeAll closes all connections through the gate and refuses new ones.
func (g *Gate) closeAll(sql string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.away = true
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
	g.shut <- sql
}

// Open resumes delayed connections and accepts new ones again.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at, g.away = "", false
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// End closes the gate and its connections.
func (g *Gate) End() {
	_ = g.ln.Close()
	g.mu.Lock()
	g.closed = true
	for c := range g.conns {
		_ = c.Close()
	}
	g.mu.Unlock()
	g.Open()
	g.all.Wait()
}

// awaitOpen waits until the gate is open.
func (g *Gate) awaitOpen() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	<-open
}

// shutsAt reports whether the gate shuts at this statement, and whether half of it passes.
func (g *Gate) shutsAt(sql string) (shut, half bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at == "" || g.lose != nil || !strings.Contains(sql, g.at) {
		return false, false
	}
	g.at, g.open = "", make(chan struct{})
	g.shut <- sql
	return true, g.half
}

// toLose reports whether to drop the response to this statement, or to the COMMIT after it.
func (g *Gate) toLose(sql string, committer bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at == "" || g.lose == nil || *g.lose != committer || !strings.Contains(sql, g.at) {
		return false
	}
	g.at = ""
	return true
}

func (g *Gate) track(c net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.away {
		_ = c.Close()
	}
	g.conns[c] = true
}

func (g *Gate) accept() {
	for {
		c, err := g.ln.Accept()
		if err != nil {
			return
		}
		g.track(c)
		g.all.Go(func() {
			g.awaitOpen()
			s, err := net.Dial("tcp", g.target)
			if err != nil {
				_ = c.Close()
				return
			}
			g.track(s)
			l := &gatedConn{app: c, server: s}
			g.all.Go(func() {
				g.forwardResponses(l)
				_, _ = c.Close(), s.Close()
			})
			g.forwardRequests(l)
			_, _ = c.Close(), s.Close()
		})
	}
}

// forwardResponses forwards the server's messages.
func (g *Gate) forwardResponses(l *gatedConn) {
	buf := make([]byte, 32<<10)
	var lost []byte
	for {
		n, err := l.server.Read(buf)
		g.awaitOpen()
		if sql := l.loses.Load(); sql != nil {
			if lost = append(lost, buf[:n]...); err != nil || *sql != "COMMIT" || bytes.Contains(lost, []byte("COMMIT\x00")) {
				if *sql != "COMMIT" {
					_, _ = l.app.Write(buf[:n/2])
				}
				g.closeAll(*sql)
				return
			}
			continue
		}
		if _, e := l.app.Write(buf[:n]); e != nil || err != nil {
			return
		}
	}
}

// forwardRequests forwards the app's messages one by one and parses the statements in them.
func (g *Gate) forwardRequests(l *gatedConn) {
	in := bufio.NewReaderSize(l.app, 64<<10)
	out := bufio.NewWriterSize(l.server, 64<<10)
	statements := map[string]string{} // by the name of the prepared statement
	var committer bool
	for first := true; ; first = false {
		var head []byte
		size := make([]byte, 4)
		if !first {
			kind, err := in.ReadByte()
			if err != nil {
				return
			}
			head = []byte{kind}
		}
		if _, err := io.ReadFull(in, size); err != nil {
			return
		}
		body := make([]byte, int(binary.BigEndian.Uint32(size))-4)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		sql := ""
		parts := bytes.SplitN(body, []byte{0}, 3)
		switch {
		case first:
			committer = bytes.Contains(body, []byte("sojourn committer"))
		case head[0] == 'P':
			statements[string(parts[0])] = string(parts[1])
		case head[0] == 'B':
			sql = statements[string(parts[1])]
		case head[0] == 'Q':
			sql = string(parts[0])
		}
		if sql != "" && g.toLose(sql, committer) {
			if l.armed = committer; !committer {
				l.loses.Store(&sql)
			}
		}
		if l.armed && sql == "COMMIT" {
			l.loses.Store(&sql)
		}
		message := append(append(head, size...), body...)
		if committer && sql != "" {
			if shut, half := g.shutsAt(sql); shut {
				if half {
					_, _ = out.Write(message[:len(message)/2])
					message = message[len(message)/2:]
				}
				_ = out.Flush()
			}
		}
		g.awaitOpen()
		if _, err := out.Write(message); err != nil {
			return
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return
			}
		}
	}
}
