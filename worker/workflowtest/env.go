// Package workflowtest runs workflows in a test as they run in production, and in virtual time: a whole app and a worker in one process,
// whose clock goes on when nothing else happens. A workflow that sleeps for a day is over at once, with its retries, timeouts, children,
// sessions, updates and queries being the real ones.
package workflowtest

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/channel"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/app/sweep"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/link"
)

// queue is where everything in a test is done.
const queue = "default"

// Env is the app and the worker of one test.
type Env struct {
	t        *testing.T
	registry *worker.Registry
	broker   *broker.Broker
	dispatch *dispatch.Dispatch

	mu      sync.Mutex // guards what follows
	started []*Workflow
}

func (e *Env) id() string { return ulid.Make().String() }

// Run runs a test in virtual time, with a worker that has what the registry has. ReplaceActivity and ReplaceWorkflow of the registry put
// doubles in the place of what the test is not about. In test, time passes only while everything waits: time.Sleep passes time, and
// time.Now tells it. What blocks outside the process, such as a network, holds time up.
//
// When test returns, the history of each run that it started is replayed: code that is not deterministic fails the test.
func Run(t *testing.T, r *worker.Registry, test func(t *testing.T, env *Env)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		env := &Env{t: t, registry: r}
		end := env.begin(filepath.Join(dir, "test.db"))
		defer end()
		test(t, env)
		env.replay()
	})
}

// begin starts the app and the worker, and returns what ends them.
func (e *Env) begin(path string) (end func()) {
	e.t.Helper()
	log := zerolog.New(zerolog.NewTestWriter(e.t)).Level(zerolog.WarnLevel)
	e.dispatch = dispatch.New(dispatch.Options{Log: log})
	db, err := sqlite.Open(e.t.Context(), path, sqldb.Options{App: "test", Dispatch: e.dispatch})
	if err != nil {
		e.t.Fatal(err)
	}
	e.broker = broker.New(db, e.dispatch, broker.Options{Release: "test", App: "test", Log: log})
	sweeper := sweep.New(db, e.broker.Due, sweep.Options{Log: log})
	e.dispatch.Bind(e.broker, func(tasks []store.Leased) {
		for _, l := range tasks {
			e.broker.Return(l)
		}
	}, sweeper.Pulse)
	socket := channel.New(e.broker, channel.Options{Hub: &e.dispatch.Hub, Log: log, Settings: func() protocol.WorkerSettings {
		return protocol.WorkerSettings{BeatSeconds: 45} // a worker is taken for dead after 60 s; the fewer there are, the cheaper is time
	}})
	ctx, stop := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { sweeper.Run(ctx) })
	parts.Go(func() { _ = e.broker.Watch(ctx) }) // ends with ctx
	leave := e.work(link.Local{Join: socket.Join}, log)
	return func() {
		leave()
		e.broker.Drain()
		err := errors.Join(socket.Close(context.Background()), e.dispatch.Close(context.Background()))
		stop()
		parts.Wait()
		e.broker.Close()
		if err := errors.Join(err, db.Close()); err != nil {
			e.t.Error(err)
		}
	}
}

// work starts the worker, and returns what ends it.
func (e *Env) work(carrier link.Carrier, log zerolog.Logger) (leave func()) {
	e.t.Helper()
	w, err := worker.New(worker.Options{
		Registry: e.registry, Carrier: carrier, Release: "test", WorkerID: "test", Queues: []string{queue}, MaxSessions: 100, Concurrency: 16,
		Isolation: worker.IsolationNone, NoMachine: true, Log: log,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	if err := w.WaitReady(e.t.Context()); err != nil {
		e.t.Error(err)
	}
	return func() {
		stop()
		if err := <-done; err != nil {
			e.t.Error(err)
		}
	}
}
