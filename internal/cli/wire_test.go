package cli_test

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// wire is a TCP proxy between a worker and its apps. A cut wire swallows packets in both directions without a notice;
// a mended one delivers them, as TCP does by retransmission. A reset wire breaks its connections and refuses new ones.
type wire struct {
	addr     string
	refusing atomic.Bool
	dropped  chan []byte  // not nil: receives what the apps send, and nothing is forwarded to the other side
	gate     sync.RWMutex // held for writing while the wire is cut
	mu       sync.Mutex   // guards ends
	ends     []net.Conn
}

// newWire starts a proxy that forwards each connection to the first address that accepts it.
func newWire(t *testing.T, to ...string) *wire {
	t.Helper()
	return openWire(t, &wire{}, to)
}

func openWire(t *testing.T, w *wire, to []string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	t.Cleanup(func() {
		_ = l.Close()
		w.each(func(c net.Conn) { _ = c.Close() })
	})
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(from, to)
		}
	}()
	return w
}

// each calls do with every connection and removes all connections.
func (w *wire) each(do func(net.Conn)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.ends {
		do(c)
	}
	w.ends = nil
}

func (w *wire) carry(from net.Conn, to []string) {
	w.gate.RLock()
	var far net.Conn
	err := net.ErrClosed
	for _, addr := range to {
		if w.refusing.Load() || far != nil {
			break
		}
		far, err = net.Dial("tcp", addr)
	}
	w.gate.RUnlock()
	if err != nil {
		reset(from)
		return
	}
	w.mu.Lock()
	w.ends = append(w.ends, from, far)
	w.mu.Unlock()
	if w.refusing.Load() { // reset was called during the dial
		w.each(reset)
	}
	for _, way := range [][2]net.Conn{{from, far}, {far, from}} {
		go func() {
			buf := make([]byte, 32<<10)
			for {
				n, err := way[0].Read(buf)
				w.gate.RLock()
				if err == nil && w.dropped != nil && way[0] == far {
					w.dropped <- bytes.Clone(buf[:n])
				} else if err == nil {
					_, err = way[1].Write(buf[:n])
				}
				if err != nil {
					_ = way[1].Close()
				}
				w.gate.RUnlock()
				if err != nil {
					return
				}
			}
		}()
	}
}

func (w *wire) cut()  { w.gate.Lock() }
func (w *wire) mend() { w.gate.Unlock() }

// reset breaks all connections and refuses new ones until accept is called.
func (w *wire) reset() {
	w.refusing.Store(true)
	w.each(reset)
}

func (w *wire) accept() { w.refusing.Store(false) }

// reset closes a connection with a TCP reset, which discards data in flight.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
