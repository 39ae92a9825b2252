// Package workflowtest runs workflows in tests with a complete app and worker in one process, in virtual time. A
// workflow that sleeps for a day finishes immediately; retries, timeouts, children, sessions, updates and queries
// behave as in production.
package workflowtest

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/worker"
)

// queue is the task queue of all workflows and activities in a test.
const queue = "default"

// Env is the app and the worker of one test.
type Env struct {
	t        testing.TB
	registry *worker.Registry
	server   *server.Server
	ctx      context.Context // context of all waits of the test; it ends when the test has failed
	fail     context.CancelFunc
	late     *atomic.Bool // set shortly before the timeout of the test binary
	watch    *watch

	options  Options
	settings *config.Config
	log      zerolog.Logger // of the app and the workers

	mu       sync.Mutex // guards the fields below
	patience time.Duration
	workers  []*Worker
	served   map[string]bool // queues for which a worker was started, even if it has ended
	ids      map[string]bool // IDs of all workers so far
	ended    bool            // no further worker is started

	starts sync.WaitGroup // starts of workers for queues
}

// standstill is the default of SetPatience.
const standstill = 24 * time.Hour

// SetPatience sets for how long, in virtual time, all runs may wait for signals or updates before Result and Update
// fail the test. The default is a day. Increase it only if other goroutines of the test sleep for longer.
func (e *Env) SetPatience(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.patience = d
}

func (e *Env) id() string { return ulid.Make().String() }

// Run runs a test in virtual time, with a worker that has the registry's workflows and activities. Replace code that
// the test is not about with ReplaceActivity and ReplaceWorkflow of the registry. In test, time passes only while all
// goroutines wait: time.Sleep advances it, and time.Now returns it. A goroutine that blocks outside the process, such
// as on a network, stops it.
//
// A workflow task that fails by a panic, by a call that is not in its history, or by code that blocks outside of
// package workflow, fails the test at once with the stack. Waiting for a run that no event can resume fails the test
// with the run's waits. Code that runs for 30 seconds of real time without a call into package workflow is assumed to
// loop and fails the test with its stack, see SetBusyLimit: Go cannot end it, so it continues next to the tests that
// follow.
//
// When test returns, the history of each run, children too, is replayed at another date, with the arguments of its
// calls: code that is not deterministic fails the test.
//
// Virtual time is for a *testing.T only. Any other testing.TB, such as a benchmark's, runs in the time of its caller; a
// testing.TB that wraps a *testing.T has virtual time if its caller calls Run inside synctest.Test.
func Run[T testing.TB](t T, r *worker.Registry, test func(t T, env *Env)) {
	t.Helper()
	runWith(t, Options{}, r, test)
}

func runWith[T testing.TB](t T, o Options, r *worker.Registry, test func(t T, env *Env)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	if err := sqlite.WriteMigrated(path); err != nil {
		t.Fatal(err)
	}
	late := &atomic.Bool{}
	defer warn(t, late)()
	plain, ok := any(t).(*testing.T)
	if !ok {
		run(t, o, r, path, late, nil, test)
		return
	}
	blocked, ended, busy := &atomic.Bool{}, make(chan any, 1), newWatch()
	// If code in a synctest bubble loops, the bubble cannot be stopped. Therefore it runs on a separate goroutine,
	// which may leak.
	go func() {
		defer func() { ended <- recover() }()
		synctest.Test(plain, func(t *testing.T) {
			t.Helper()
			defer func() { blocked.Store(t.Failed()) }()
			run(any(t).(T), o, r, path, late, busy, test)
		})
	}()
	report, stop := busy.checkLoops()
	defer stop()
	select {
	case broke := <-ended:
		// synctest panics if code in the bubble is blocked forever. If the test has already failed, ignore this panic.
		if broke != nil && !blocked.Load() {
			panic(broke)
		}
		if plain.Failed() {
			plain.FailNow()
		}
	case found := <-report:
		t.Fatal(found)
	}
}

func run[T testing.TB](
	t T, o Options, r *worker.Registry, path string, late *atomic.Bool, busy *watch, test func(t T, env *Env),
) {
	t.Helper()
	env := &Env{t: t, registry: r, late: late, watch: busy, patience: standstill, options: o}
	env.served, env.ids = map[string]bool{}, map[string]bool{}
	env.ctx, env.fail = context.WithCancel(t.Context())
	defer env.fail()
	end := sync.OnceFunc(env.begin(path))
	defer end()
	test(t, env)
	if env.ctx.Err() != nil {
		return
	}
	histories := env.histories()
	end() // first, so that what the app does from now on does not count for the test
	if virtual() {
		time.Sleep(later)
	}
	env.replay(histories)
}

// later is the time between a run and its replay. It changes the second, hour and day that code sees if it calls
// time.Now.
const later = 25*time.Hour + time.Minute + time.Second + time.Nanosecond

// loaded is the start time of the test binary. Virtual time begins at an earlier date.
var loaded = time.Now()

// virtual reports whether the caller runs in virtual time.
func virtual() bool { return time.Now().Before(loaded) }

// warn sets late ten seconds before the timeout of the test binary, measured by a real clock outside of virtual time.
func warn(t testing.TB, late *atomic.Bool) (stop func()) {
	timed, ok := t.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return func() {}
	}
	at, ok := timed.Deadline()
	if !ok {
		return func() {}
	}
	timer := time.AfterFunc(time.Until(at)-10*time.Second, func() { late.Store(true) })
	return func() { timer.Stop() }
}

// begin starts the app and the workers. It returns a function that stops them.
func (e *Env) begin(path string) (end func()) {
	e.t.Helper()
	console := process.Console(zerolog.NewTestWriter(e.t))
	console.PartsExclude = []string{zerolog.TimestampFieldName}
	console.FormatExtra = nil // do not log stacks: the test fails with the stack
	log := zerolog.New(console).Level(zerolog.WarnLevel)
	var err error
	if e.settings, err = loadSettings(e.options.Settings); err != nil {
		e.t.Fatal(err)
	}
	o := e.appOptions()
	o.Log = log
	o.Open = func(ctx context.Context, _ string, d store.Dispatcher) (store.Store, error) {
		return sqlite.Open(ctx, path, sqldb.Options{App: "test", Dispatch: e.watchQueues(d)})
	}
	e.server, err = server.Open(e.t.Context(), o)
	if err != nil {
		e.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.server.Run(context.Background()) }()
	e.log = log
	specs := e.options.Workers
	if len(specs) == 0 {
		specs = []WorkerSpec{{}}
	}
	for _, spec := range specs {
		e.AddWorker(spec)
	}
	return func() {
		if err := errors.Join(e.endWorkers(), e.server.Close(context.Background()), <-ended); err != nil {
			e.t.Error(err)
		}
	}
}
