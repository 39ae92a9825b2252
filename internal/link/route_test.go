package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// fakeApps are three apps that share one database, in the memory of a bubble.
type fakeApps struct {
	mu    sync.Mutex // guards the fields below
	down  bool       // the first app refuses connections
	ready bool       // the first app reports that it is ready
	other bool       // the first app is of another release
	conns map[*fakeConn]bool
	beats map[string]time.Time // time of the last heartbeat, by worker
	gap   time.Duration        // the longest between two heartbeats of a worker
	lives map[string]bool      // worker IDs with their incarnations
	moves []time.Time          // connections to the first app
}

var fakeURLs = []string{"http://app-0:7700", "http://app-1:7700", "http://app-2:7700"}

// fakeCarrier is the carrier of one worker.
type fakeCarrier struct {
	apps  *fakeApps
	route route
}

func (c *fakeCarrier) Apps() int { return len(fakeURLs) }

func (c *fakeCarrier) Dial(_ context.Context, hello protocol.ChannelAuth, _ protocol.WorkerNotices) (Conn, error) {
	url := c.route.next(fakeURLs, hello.WorkerID)
	a := c.apps
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down && url == fakeURLs[0] {
		c.route.failed(url)
		return nil, errors.New("connection refused")
	}
	conn := &fakeConn{apps: a, worker: hello.WorkerID}
	conn.place = place{route: &c.route, url: url, check: a.check}
	conn.ctx, conn.cancel = context.WithCancelCause(context.Background())
	context.AfterFunc(conn.ctx, func() { c.route.failed(url) })
	a.conns[conn] = true
	if url == fakeURLs[0] {
		a.moves = append(a.moves, time.Now())
	}
	return conn, nil
}

func (a *fakeApps) check(_ context.Context, url string) (protocol.WorkerSettings, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if url == fakeURLs[0] && !a.ready {
		return protocol.WorkerSettings{}, errors.New("not ready")
	}
	return a.settings(url), nil
}

func (a *fakeApps) settings(url string) protocol.WorkerSettings {
	if url == fakeURLs[0] && a.other {
		return protocol.WorkerSettings{Release: "other"}
	}
	return protocol.WorkerSettings{Release: "test"}
}

// set changes the first app. An app that goes down closes its connections.
func (a *fakeApps) set(down, ready, other bool) {
	a.mu.Lock()
	a.down, a.ready, a.other = down, ready, other
	var ends []*fakeConn
	for conn := range a.conns {
		if down && conn.url == fakeURLs[0] {
			ends = append(ends, conn)
		}
	}
	a.mu.Unlock()
	for _, conn := range ends {
		conn.cancel(errors.New("the app ended"))
	}
}

// counts returns the number of connections of each app.
func (a *fakeApps) counts() (n [3]int) {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for conn := range a.conns {
		for i, url := range fakeURLs {
			if conn.url == url {
				n[i]++
			}
		}
	}
	return n
}

// fakeConn is a connection with the verbs that a link calls without a request of the runner.
type fakeConn struct {
	protocol.WorkerConnection
	place
	apps   *fakeApps
	worker string
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (c *fakeConn) Done() <-chan struct{} { return c.ctx.Done() }
func (c *fakeConn) Err() error            { return context.Cause(c.ctx) }
func (c *fakeConn) String() string        { return c.url }

func (c *fakeConn) Close() {
	c.cancel(errors.New("closed"))
	c.apps.mu.Lock()
	defer c.apps.mu.Unlock()
	delete(c.apps.conns, c)
}

func (c *fakeConn) Settings(context.Context, protocol.MachineInformation) (protocol.WorkerSettings, error) {
	c.apps.mu.Lock()
	defer c.apps.mu.Unlock()
	return c.apps.settings(c.url), nil
}

func (c *fakeConn) Register(_ context.Context, in protocol.RegisterRequest) (protocol.RegisterResponse, error) {
	c.apps.mu.Lock()
	defer c.apps.mu.Unlock()
	c.apps.lives[in.WorkerID+in.Incarnation] = true
	return protocol.RegisterResponse{}, nil
}

func (c *fakeConn) WorkerHeartbeat(
	context.Context, protocol.WorkerHeartbeat,
) (protocol.WorkerHeartbeatResponse, error) {
	c.apps.mu.Lock()
	defer c.apps.mu.Unlock()
	if last, second := c.apps.beats[c.worker]; second {
		c.apps.gap = max(c.apps.gap, time.Since(last))
	}
	c.apps.beats[c.worker] = time.Now()
	return protocol.WorkerHeartbeatResponse{}, nil
}

// Sixty workers spread over three apps, at default settings. When one app is down, the others share its workers. The
// workers return gradually when it is ready and of their release, and not before. No worker misses a heartbeat.
func TestWorkersSpreadOverTheAppsAndReturnGradually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeApps{ready: true, conns: map[*fakeConn]bool{}, beats: map[string]time.Time{}, lives: map[string]bool{}}
		ctx, stop := context.WithCancel(t.Context())
		var links sync.WaitGroup
		const workers = 60
		for i := range workers {
			l, err := New(Options{
				Carrier: &fakeCarrier{apps: a}, WorkerID: fmt.Sprint("worker-", i), Release: "test", Log: zerolog.Nop(),
				Incarnation: "first", Register: func() protocol.RegisterRequest { return protocol.RegisterRequest{} },
			})
			if err != nil {
				t.Fatal(err)
			}
			links.Go(func() {
				if err := l.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		defer links.Wait()
		defer stop()
		time.Sleep(time.Minute)
		first := a.counts()
		for i, n := range first {
			if n < workers/6 || n > workers/2 {
				t.Errorf("app %d has %d of %d workers", i, n, workers)
			}
		}
		a.set(true, false, false)
		time.Sleep(time.Minute)
		outage := a.counts()
		for i, n := range outage {
			switch share := first[0] / 4; {
			case i == 0 && n != 0:
				t.Errorf("the app that is down has %d workers", n)
			case i > 0 && n < first[i]+share:
				t.Errorf("app %d has %d workers more, of %d", i, n-first[i], first[0])
			}
		}
		for what, set := range map[string]func(){
			"is not ready":        func() { a.set(false, false, false) },
			"is of other release": func() { a.set(false, true, true) },
		} {
			set()
			time.Sleep(2 * returnWithin)
			if n := a.counts(); n != outage {
				t.Errorf("an app that %s gets workers: %v, before %v", what, n, outage)
			}
		}
		a.mu.Lock()
		a.moves = nil
		a.mu.Unlock()
		a.set(false, true, false)
		time.Sleep(returnWithin + time.Second)
		if n := a.counts(); n != first {
			t.Errorf("after the outage the apps have %v workers, before it %v", n, first)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, from := range a.moves {
			n := 0
			for _, at := range a.moves {
				if d := at.Sub(from); d >= 0 && d < 30*time.Second {
					n++
				}
			}
			if n > first[0]/2 {
				t.Errorf("%d of %d workers returned within 30 s", n, first[0])
			}
		}
		if len(a.moves) != first[0] {
			t.Errorf("%d connections for the return of %d workers", len(a.moves), first[0])
		}
		if a.gap > 10*time.Second {
			t.Errorf("a worker sent no heartbeat for %v", a.gap)
		}
		if len(a.lives) != workers {
			t.Errorf("%d processes registered", len(a.lives))
		}
	})
}

// When a worker has returned to its preferred app, a late failure of the previous connection does not change its route.
func TestALateEndOfAConnectionChangesNoRoute(t *testing.T) {
	var r route
	home := r.next(fakeURLs, "w")
	r.failed(home)
	p := place{route: &r, url: r.next(fakeURLs, "w")}
	if !p.Away() {
		t.Fatal("the next dial goes to the app that failed")
	}
	p.Return()
	r.failed(p.url)
	if got := r.next(fakeURLs, "w"); got != home {
		t.Errorf("the next dial goes to %s, want %s", got, home)
	}
}
