package worker_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// cable forwards TCP connections that a test can cut.
type cable struct {
	mu    sync.Mutex
	conns []net.Conn // guarded by mu
	dials int        // guarded by mu
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.dials++
		c.mu.Unlock()
	}
	return conn, err
}

func (c *cable) dialed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dials
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

type remoteTo func(dial func(context.Context, string, string) (net.Conn, error), url string) link.Carrier

// remote runs a test over each carrier that uses the network.
func remote(t *testing.T, test func(t *testing.T, to remoteTo)) {
	t.Run("socket", func(t *testing.T) {
		test(t, func(dial func(context.Context, string, string) (net.Conn, error), url string) link.Carrier {
			return &link.Socket{URLs: []string{url}, NetDial: dial}
		})
	})
	t.Run("http", func(t *testing.T) {
		test(t, func(dial func(context.Context, string, string) (net.Conn, error), url string) link.Carrier {
			return &link.HTTP{URLs: []string{url}, NetDial: dial}
		})
	})
}

// A worker that reconnects keeps its running tasks: they are not dispatched to a second worker.
func TestReconnectKeepsLiveWorkWithItsWorker(t *testing.T) {
	remote(t, func(t *testing.T, to remoteTo) {
		a := apptest.Start(t, apptest.Options{})
		var runs atomic.Int32
		entered, leave := make(chan struct{}, 10), make(chan struct{})
		define := func(o *worker.Options) {
			o.Registry.Workflow("hold", func(ctx workflow.Context) (string, error) {
				return workflow.Await[string](ctx, workflow.ExecuteActivity(ctx, "hold"))
			})
			o.Registry.Activity("hold", func(ctx context.Context) (string, error) {
				runs.Add(1)
				entered <- struct{}{}
				<-leave
				return activity.Info(ctx).WorkerID, ctx.Err()
			})
		}
		wires := &cable{}
		first := start(t, a, to(wires.dial, a.URL()), func(o *worker.Options) { define(o); o.WorkerID = "first" })
		answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "hold"})
		if err != nil {
			t.Fatal(err)
		}
		receive(t, entered, "the activity begins")
		start(t, a, to(nil, a.URL()), func(o *worker.Options) { define(o); o.WorkerID = "second" })
		for range 3 {
			before := wires.dialed()
			wires.cut()
			eventually(t, "the link notices", func() bool { return wires.dialed() > before })
			eventually(t, "and comes back", func() bool { return first.Ready() == nil })
		}
		close(leave)
		if got := result[string](t, end(t, a, answer.RunID)); got != "first" || runs.Load() != 1 {
			t.Errorf("completed by %q after %d runs", got, runs.Load())
		}
	})
}

// A worker keeps its tasks when its app stops, and completes them at the next app.
func TestWorkOutlivesARestartOfTheApp(t *testing.T) {
	remote(t, func(t *testing.T, to remoteTo) {
		db := apptest.SQLite(t)
		a := apptest.Start(t, apptest.Options{Database: db})
		entered, leave := make(chan struct{}, 10), make(chan struct{})
		var runs atomic.Int32
		start(t, a, to(nil, a.URL()), func(o *worker.Options) {
			o.Registry.Workflow("hold", func(ctx workflow.Context) error {
				return workflow.ExecuteActivity(ctx, "hold").Get(ctx, nil)
			})
			o.Registry.Activity("hold", func(context.Context) error { runs.Add(1); entered <- struct{}{}; <-leave; return nil })
		})
		answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "hold"})
		if err != nil {
			t.Fatal(err)
		}
		receive(t, entered, "the activity begins")
		b := restart(t, a, db)
		close(leave)
		if _, ok := end(t, b, answer.RunID).Data.(*history.WorkflowCompleted); !ok || runs.Load() != 1 {
			t.Errorf("ran %d times", runs.Load())
		}
	})
}
