package sessiontest

import (
	"context"
	"errors"
	"sync"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/link/linktest"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// proc is a worker process.
type proc struct {
	*worker.Worker
	h    *harness
	name string
	end  func()
	done chan struct{} // closed when Run has returned
	err  error         // error of Run; set before done is closed

	mu    sync.Mutex      // guards the fields below
	way   context.Context // connection to the app: ends when it is cut
	snap  context.CancelFunc
	hole  chan struct{}  // the connection drops all data until this is closed; nil: it drops none
	conn  link.Conn      // current connection
	calls map[string]int // number of calls by verb
}

// start starts a worker and waits until it is registered.
func (h *harness) start(name string, change ...func(*worker.Options)) *proc {
	h.t.Helper()
	p, err := h.make(name, change...)
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	if err := p.WaitReady(ctx); err != nil {
		h.t.Fatal(err)
	}
	return p
}

func (h *harness) make(name string, change ...func(*worker.Options)) (*proc, error) {
	p := &proc{h: h, name: name, done: make(chan struct{}), calls: map[string]int{}}
	p.rejoin()
	r := worker.NewRegistry()
	for _, f := range h.setup {
		f(r, p)
	}
	join := func(
		hello protocol.ChannelAuth, notices protocol.WorkerNotices,
	) (protocol.WorkerConnection, func(), error) {
		return h.testServer.server.Connections().Join(hello, notices) // the current app: a case may restart it
	}
	o := workeropt.Over(carrier{link.Local{Join: join}, p}, worker.Options{
		Registry: r, Release: release,
		WorkerID: name, Concurrency: 4,
		AttemptLease: 5 * sec, DrainTimeout: 10 * sec, Logger: slogbridge.Slog(apptest.Log(h.t)),
		Sessions:  worker.SessionOptions{Max: worker.AutoSessions},
		Executors: worker.ExecutorOptions{Disabled: true},
	})
	for _, f := range change {
		f(&o)
	}
	var err error
	if p.Worker, err = worker.New(o); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	p.end = cancel
	go func() {
		defer close(p.done)
		p.err = p.Run(ctx)
	}()
	h.t.Cleanup(func() {
		if p.cut() {
			p.kill()
		}
		p.stop()
	})
	return p, nil
}

// stop drains the worker, as in a clean shutdown; further calls have no effect.
func (p *proc) stop() {
	p.h.t.Helper()
	p.end()
	<-p.done
	if p.err != nil && !errors.Is(p.err, worker.ErrAborted) && !errors.Is(p.err, link.ErrSuperseded) {
		p.h.t.Errorf("worker %s: %v", p.name, p.err)
	}
}

// kill ends the worker like SIGKILL: the app receives nothing from it afterwards.
func (p *proc) kill() {
	p.sever()
	p.Abort()
	<-p.done
}

// sever breaks the connection to the app and returns when the app has noticed: otherwise a poll of this worker could
// still lease a task that becomes ready at the same moment. The worker continues; rejoin restores the connection.
func (p *proc) sever() {
	p.mu.Lock()
	p.snap()
	p.mu.Unlock()
	synctest.Wait()
}

func (p *proc) rejoin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.way, p.snap = context.WithCancel(context.WithoutCancel(p.h.t.Context()))
}

// drop closes the connection and prevents new ones until rejoin.
func (p *proc) drop() {
	p.sever()
	p.mu.Lock()
	conn := p.conn
	p.mu.Unlock()
	conn.Close()
	synctest.Wait()
}

// swallow drops all packets without an error, until mend is called.
func (p *proc) swallow() (mend func()) {
	hole := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = hole
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hole = nil
		close(hole)
	}
}

// out waits until the connection no longer drops data, or the caller's context ends.
func (p *proc) out(ctx context.Context) error {
	p.mu.Lock()
	hole := p.hole
	p.mu.Unlock()
	if hole == nil {
		return nil
	}
	select {
	case <-hole:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// called returns the number of calls of a verb.
func (p *proc) called(verb string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[verb]
}

func (p *proc) cut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.way.Err() != nil
}

// carrier is a worker's connection to the app. A test can cut it.
type carrier struct {
	link.Local
	p *proc
}

var errCut = errors.New("the way to the app is cut")

// Dial connects the worker to the app in this process. It fails while the connection is cut; later calls go through
// proc.pass, which can lose them.
func (c carrier) Dial(
	ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices,
) (link.Conn, error) {
	if c.p.cut() {
		return nil, errCut
	}
	conn, err := c.Local.Dial(ctx, hello, notices)
	if err != nil {
		return nil, err
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.conn = conn
	return linktest.Between(conn, c.p.pass), nil
}

// pass forwards a call, unless the connection is broken before it or before its response.
func (p *proc) pass(ctx context.Context, verb string, in any, call linktest.Call) (any, error) {
	p.mu.Lock()
	way := p.way
	p.calls[verb]++
	p.mu.Unlock()
	if err := p.out(ctx); err != nil {
		return nil, err
	}
	if way.Err() != nil {
		return nil, errCut
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(way, func() { cancel(errCut) })()
	out, err := call(ctx, in)
	if err := p.out(ctx); err != nil {
		return nil, err
	}
	if way.Err() != nil {
		return nil, errCut
	}
	return out, err
}
