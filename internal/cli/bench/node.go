package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/worker"
)

// nodeOptions configure the app and workers of a scenario.
type nodeOptions struct {
	store    string
	postgres string
	worker   string // "", in-process, socket
	workers  int    // 1 when 0
	apps     int    // number of apps on one database, each with a worker on a separate queue; 0: 1
	database string // database of apps after the first
	// file that contains the location of the node's filled database; empty: the database is removed with the node
	kept     string
	queue    string // queue of the worker; empty: the default
	sessions int    // maximum number of sessions of a worker; 0: 10
	quick    bool   // quick check with smaller sizes
	program  []string
	more     func(*worker.Registry) // further registrations besides the workflows of the scenarios
	log      zerolog.Logger
}

// node is an app on a separate database, with a worker if the scenario needs one.
type node struct {
	app      *app.App
	dir      string
	path     string                      // path of its database, if that is a file
	kept     string                      // as in the options
	server   string                      // URL of its database; empty: the database is at path
	drop     func(context.Context) error // removes the database
	stop     context.CancelFunc          // ends the app
	ended    chan error
	rest     context.CancelFunc // ends its workers
	workers  errgroup.Group
	queue    string         // queue of its worker
	quick    bool           // as in the options
	long     string         // workflow ID of the run whose history is replayed
	program  []string       // as in the options
	prepared bool           // the measured data exists
	there    atomic.Int64   // number of workflows that wait in their state
	atEnd    []func() error // ends additional processes before the app
	others   []*node        // other apps on its database
	caller   *callerProcess // starts workflows and waits for their results; nil: not started
	trips    atomic.Int64   // number of round trips of the scenario

	arrivals arrivals
	passages passages
	entered  chan struct{} // receives a value for every activity that blocks a session
}

func openNode(ctx context.Context, o nodeOptions) (*node, error) {
	dir, err := os.MkdirTemp("", "sojourn-bench-*")
	if err != nil {
		return nil, err
	}
	n := &node{
		dir: dir, path: filepath.Join(dir, "bench.db"), kept: o.kept, drop: nothing,
		queue: o.queue, quick: o.quick, program: o.program, entered: make(chan struct{}, 2),
	}
	open := func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
		if err := n.place(); err != nil {
			return nil, err
		}
		return sqlite.Open(ctx, n.path, sqldb.Options{App: id, Dispatch: d})
	}
	if o.store == "postgres" {
		database := o.database
		if database == "" {
			database, err = n.database(ctx, o.postgres)
		}
		o.database, n.server = database, database
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		open = func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
			return postgres.Open(ctx, database, sqldb.Options{App: id, Dispatch: d})
		}
	}
	n.app, err = app.New(ctx, app.Options{
		Options: server.Options{
			Open: open, Shared: o.store == "postgres", Release: "bench", NoAuth: true, Log: o.log.Level(zerolog.WarnLevel),
		},
		Addr: "127.0.0.1:0",
	})
	if err != nil {
		return nil, errors.Join(err, n.drop(ctx), os.RemoveAll(dir))
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop, n.ended = stop, make(chan error, 1)
	go func() { n.ended <- n.app.Run(serving) }()
	working, rest := context.WithCancel(context.WithoutCancel(ctx))
	n.rest = rest
	if o.worker != "" {
		for i := range max(1, o.workers) {
			if err := n.work(working, o, fmt.Sprintf("bench-%s%d", o.queue, i+1)); err != nil {
				return nil, errors.Join(err, n.close())
			}
		}
	}
	for i := 1; i < o.apps; i++ {
		more := o
		more.apps, more.queue = 1, fmt.Sprint("app-", i+1)
		other, err := openNode(ctx, more)
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		n.others = append(n.others, other)
	}
	return n, nil
}

// work starts a Go worker with this ID and the workflows of the scenarios.
func (n *node) work(ctx context.Context, o nodeOptions, id string) error {
	registry := worker.NewRegistry()
	register(registry)
	registerLatency(registry, &n.arrivals, n.entered)
	registerWide(registry, &n.arrivals)
	registerLong(registry, &n.passages)
	registerGrowth(registry)
	registerInheriting(registry)
	registerReplay(registry)
	registerIdle(registry, func() { n.there.Add(1) })
	if o.more != nil {
		o.more(registry)
	}
	var carrier link.Carrier = &link.Socket{URLs: []string{n.app.URL()}}
	if o.worker == "in-process" {
		carrier = link.Local{Join: n.app.Connections().Join}
	}
	var queues []string
	if o.queue != "" {
		queues = []string{o.queue}
	}
	w, err := worker.New(workeropt.Over(carrier, worker.Options{
		Queues:   queues,
		Registry: registry, Release: "bench", WorkerID: id,
		DrainTimeout: 5 * time.Second,
		Logger:       slogbridge.Slog(o.log.Level(zerolog.WarnLevel)),
		Sessions:     worker.SessionOptions{Max: max(10, o.sessions)},
		Executors:    worker.ExecutorOptions{Disabled: true},
	}))
	if err != nil {
		return err
	}
	n.workers.Go(func() error { return w.Run(ctx) })
	return w.WaitReady(ctx)
}

// database creates an empty database on the server, which is dropped later.
func (n *node) database(ctx context.Context, server string) (string, error) {
	if server == "" {
		return "", errors.New("postgres requires the URL of a server; set --postgres or SOJOURN_TEST_POSTGRES")
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("postgres URL: %w", err)
	}
	name, there := n.filled()
	if there {
		u.Path = "/" + name
		return u.String(), nil
	}
	name = "bench_" + strings.ToLower(ulid.Make().String())
	do := func(ctx context.Context, statement string) error {
		c, err := pgx.Connect(ctx, server)
		if err != nil {
			return err
		}
		_, err = c.Exec(ctx, statement)
		return errors.Join(err, c.Close(ctx))
	}
	if err := do(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	n.drop = func(ctx context.Context) error { return do(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") }
	u.Path = "/" + name
	return u.String(), nil
}

func (n *node) close() error {
	var all []error
	for _, end := range n.atEnd {
		all = append(all, end())
	}
	for _, other := range n.others { // before the database is dropped
		all = append(all, other.close())
	}
	// Stop the workers first: without an app, a worker retries to deregister until its drain times out.
	n.rest()
	all = append(all, n.workers.Wait())
	n.stop()
	all = append(all, <-n.ended)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(append(all, n.drop(ctx), os.RemoveAll(n.dir))...)
}

// limits measures the limits of this machine and store: syncs of a file, sequential commits of tiny transactions, and
// round trips of tiny requests over as many connections as the HTTP scenario has.
func (n *node) limits(ctx context.Context) (l Limit, err error) {
	const long = 300 * time.Millisecond
	f, err := os.CreateTemp(n.dir, "sync-*")
	if err != nil {
		return l, err
	}
	defer f.Close()
	l.Fsyncs, err = opsPerSecond(long, func() error {
		if _, err := f.WriteAt(make([]byte, 4096), 0); err != nil {
			return err
		}
		return f.Sync()
	})
	if err != nil {
		return l, err
	}
	l.Commits, err = opsPerSecond(long, func() error { return n.app.Broker().Audit(ctx, store.Audit{Action: "bench"}) })
	return l, err
}

// opsPerSecond returns how often fn can run sequentially per second.
func opsPerSecond(long time.Duration, fn func() error) (float64, error) {
	start, times := time.Now(), 0
	for time.Since(start) < long {
		if err := fn(); err != nil {
			return 0, err
		}
		times++
	}
	return float64(times) / time.Since(start).Seconds(), nil
}

// httpClient returns an HTTP client that keeps this number of idle connections.
func httpClient(connections int) *http.Client {
	return &http.Client{
		Timeout:   90 * time.Second,
		Transport: &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections, DisableCompression: true},
	}
}
