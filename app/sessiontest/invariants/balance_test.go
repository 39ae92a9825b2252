package invariants

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// onShifted starts apps on a database whose clock the test moves. wrap, if not nil, wraps the store of each app.
func onShifted(t testing.TB, database string, apps int, wrap func(store.Store) store.Store) *harness {
	w := &harness{t: t, shift: &atomic.Int64{}}
	for i := range apps {
		w.apps = append(w.apps, apptest.Start(t, apptest.Options{Change: func(o *app.Options) {
			o.Cleanup, o.Release = -1, releaseOf(1)
			o.Open = func(ctx context.Context, _ string, d store.Dispatcher) (s store.Store, err error) {
				so := sqldb.Options{App: fmt.Sprint("app-", i), Dispatch: d, Shift: func() time.Duration {
					return time.Duration(w.shift.Load())
				}}
				if database == "" {
					s, err = sqlite.Open(ctx, filepath.Join(t.TempDir(), "balance.db"), so)
				} else {
					s, err = postgres.Open(ctx, database, so)
				}
				if err == nil && wrap != nil {
					s = wrap(s)
				}
				return s, err
			}
		}}))
	}
	return w
}

// rebalanced returns how often a session was chosen to move for balance.
func (w *harness) rebalanced(ns string, sessions int) (n int) {
	w.t.Helper()
	err := w.apps[0].Store().View(w.t.Context(), func(r store.Reader) error {
		for i := range sessions {
			list, err := r.Timeline(w.t.Context(), engine.SessionKey{Namespace: ns, ID: fmt.Sprint("s", i)}, 0, 1000)
			if err != nil {
				return err
			}
			for _, e := range list {
				if e.What == protocol.SessionPreparing && e.Why == protocol.EndedRebalanced {
					n++
				}
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// Every app that receives heartbeats of a new worker compares the numbers of sessions. Together they choose one session
// per minute.
func TestSeveralAppsMoveOneSessionPerMinute(t *testing.T) {
	for name, open := range map[string]func() *harness{
		"sqlite":   func() *harness { return onShifted(t, "", 1, nil) },
		"postgres": func() *harness { return onShifted(t, apptest.Postgres(t), 2, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			const sessions = 6
			w := open()
			w.t = t
			ns, b, ctx := w.namespace("balance"), w.apps[0].Broker(), t.Context()
			var commands []protocol.Command
			for i := range sessions {
				commands = append(commands, inHandOverSession(fmt.Sprint("s", i)))
			}
			register := func(name string) {
				must[protocol.RegisterResponse](t)(b.Register(ctx, handOverWorker(ns, name, name+"1", sessions, 10*time.Hour)))
			}
			// beat sends heartbeats of both workers to all apps.
			beat := func() {
				for _, a := range w.apps {
					must[time.Time](t)(a.Store().Now(ctx)) // the app notices that the clock was moved
					for _, name := range []string{"a", "b"} {
						must[protocol.WorkerHeartbeatResponse](t)(a.Broker().WorkerHeartbeat(ctx, protocol.WorkerHeartbeat{
							Namespace: ns, WorkerID: name, Incarnation: name + "1",
						}))
					}
				}
			}
			register("a")
			w.decide(ns, "wf", commands...)
			for range sessions {
				task := must[*protocol.ActivityTask](t)(poll(ctx, b, ns, "a", "a1", 30))
				finish(ctx, b, ns, task, func(item *protocol.CompleteItem) {
					item.Recovered = handOverRebuilt()
				})
			}
			register("b")
			beat()
			for minute := range 2 {
				w.shift.Add(int64(61 * time.Second))
				for i := range 4 { // each app compares several times within this minute
					if i > 0 {
						w.shift.Add(int64(11 * time.Second))
					}
					beat()
					time.Sleep(1200 * time.Millisecond)
				}
				if n := w.rebalanced(ns, sessions); n != minute+1 {
					t.Fatalf("in minute %d, %d sessions have been chosen, want %d", minute+1, n, minute+1)
				}
			}
		})
	}
}

// ownerReads counts how often the sessions of a worker are read.
type ownerReads struct {
	store.Store
	n *atomic.Int64
}

type ownerReader struct {
	store.Reader
	n *atomic.Int64
}

func (s ownerReads) View(ctx context.Context, fn func(store.Reader) error) error {
	return s.Store.View(ctx, func(r store.Reader) error { return fn(ownerReader{r, s.n}) })
}

func (r ownerReader) Sessions(ctx context.Context, q store.SessionQuery) ([]engine.Session, error) {
	if q.Owner != "" {
		r.n.Add(1)
	}
	return r.Reader.Sessions(ctx, q)
}

// The app reads the sessions of a busy worker once for all new workers: drains wait for the comparison.
func TestBalanceReadsTheSessionsOfAWorkerOnceForAllNewWorkers(t *testing.T) {
	const sessions, fresh = 6, 5
	var reads atomic.Int64
	w := onShifted(t, "", 1, func(s store.Store) store.Store { return ownerReads{s, &reads} })
	ns, b, ctx := w.namespace("busy"), w.apps[0].Broker(), t.Context()
	names := []string{"a"}
	register := func(name string) {
		must[protocol.RegisterResponse](t)(b.Register(ctx, handOverWorker(ns, name, name+"1", sessions, 10*time.Hour)))
	}
	register("a")
	var commands []protocol.Command
	for i := range sessions {
		commands = append(commands, inHandOverSession(fmt.Sprint("s", i)))
	}
	w.decide(ns, "wf", commands...)
	for range sessions { // they stay busy
		must[*protocol.ActivityTask](t)(poll(ctx, b, ns, "a", "a1", 30))
	}
	for i := range fresh {
		names = append(names, fmt.Sprint("b", i))
		register(names[i+1])
	}
	w.shift.Add(int64(35 * time.Second))
	must[time.Time](t)(w.apps[0].Store().Now(ctx))
	reads.Store(0)
	for _, name := range names {
		must[protocol.WorkerHeartbeatResponse](t)(b.WorkerHeartbeat(ctx, protocol.WorkerHeartbeat{
			Namespace: ns, WorkerID: name, Incarnation: name + "1",
		}))
	}
	time.Sleep(2500 * time.Millisecond)
	if n := reads.Load(); n < 1 || n > 2 { // two, if a tick came between the heartbeats
		t.Errorf("the sessions of the busy worker were read %d times for %d new workers", n, fresh)
	}
}
