package cli_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/worker"
)

// crowd runs many complete workers in the test process, each with a separate connection to an app in another process.
type crowd struct {
	t     *testing.T
	url   string
	token string
	reg   *worker.Registry

	members []*member
	joined  int
}

// member is a worker of a crowd.
type member struct {
	id  string
	w   *worker.Worker
	end context.CancelFunc
	ran chan error

	mu    sync.Mutex // guards the fields below
	conns map[net.Conn]bool
}

// join adds a worker with a new worker ID.
func (c *crowd) join() *member {
	c.t.Helper()
	c.joined++
	m := &member{id: fmt.Sprintf("member-%d", c.joined), ran: make(chan error, 1), conns: map[net.Conn]bool{}}
	var err error
	m.w, err = worker.New(workeropt.Over(&link.Socket{URLs: []string{c.url}, NetDial: m.dial}, worker.Options{
		Registry: c.reg, Release: "1.0.0", Token: c.token,
		WorkerID: m.id, Concurrency: 1, Workflows: 1, NoMachine: true,
		Logger:    slog.New(slog.DiscardHandler),
		Sessions:  worker.SessionOptions{Max: 5},
		Executors: worker.ExecutorOptions{Isolation: worker.IsolationNone},
	}))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	m.end = end
	go func() { m.ran <- m.w.Run(ctx) }()
	c.members = append(c.members, m)
	return m
}

// leaves stops a member gracefully. The member must be connected, since it cannot deregister otherwise.
func (c *crowd) leaves(i int) {
	c.t.Helper()
	m := c.members[i]
	until(c.t, m.id+" is connected", func() bool { return m.w.Ready() == nil })
	c.members = append(c.members[:i], c.members[i+1:]...)
	m.end()
	if err := <-m.ran; err != nil {
		c.t.Errorf("%s leaves: %v", m.id, err)
	}
}

func (c *crowd) disperse() {
	for _, m := range c.members {
		m.end()
	}
	for _, m := range c.members {
		<-m.ran
	}
	c.members = nil
}

// dial connects a member to the app; drop closes these connections.
func (m *member) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		m.mu.Lock()
		m.conns[conn] = true
		m.mu.Unlock()
	}
	return conn, err
}

// drop ends the member's connections like a machine that has failed: without notifying the app or the member.
func (m *member) drop() (dropped int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for conn := range m.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, not a goodbye
		}
		if conn.Close() == nil {
			dropped++
		}
	}
	clear(m.conns)
	return dropped
}
