package worker

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/internal/filelock"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/session"
)

// IsolationNone runs isolated activities in the worker's own process, and no handlers in other languages.
const IsolationNone = "none"

// AutoSessions is a cap of 1,000 sessions. If all activities of the worker run in executors, the cap is at most the
// number of executors that fit into the executors' memory when each uses its memory limit.
const AutoSessions = -1

// autoSessions is the cap of a worker with AutoSessions whose activities run in the worker's process.
const autoSessions = 1000

// Options of a worker. Registry and URLs are required; zero values mean the defaults named next to them.
type Options struct {
	Registry *Registry // workflows and activities of the worker
	// URLs of the apps, for example https://sojourn.example.com. The worker chooses the first one by a hash of its ID and
	// fails over to the others.
	URLs []string
	// Link is the protocol to the app: "socket" (Socket.IO), "http" (long polls), or "auto", which tries a socket first;
	// empty: auto.
	Link string
	// TLS returns the TLS configuration for https URLs. It is called at every connect, so that certificates can be
	// rotated; nil: the defaults of package crypto/tls.
	TLS     func() (*tls.Config, error)
	Release string // release of this program; the app dispatches tasks only if its own release is the same
	Strict  bool   // do not run tasks if the release of this program cannot be determined
	Token   string // worker token, sent with each request; empty: none

	WorkerID     string   // empty: a new ULID. A lock in DataDir prevents two processes with the same ID
	Namespace    string   // default
	Queues       []string // task queues to poll: default
	BuildID      string   // version of the worker's code, for rollouts; empty: the workers without one
	Capabilities []string // what the worker offers for requirements of tasks and sessions
	// Resources are the amounts that the worker's sessions may use together, as quantities: {"gpu_mem": "80GiB"}.
	Resources   map[string]string
	Concurrency int // activities at once: 128, or 2 × cores if some of them run in executors
	Workflows   int // workflow tasks at once: 256, of which at most 2 × cores replay a long history
	StickyCache int // maximum number of runs in the sticky cache: 1000. Other runs are replayed for each task

	AttemptLease time.Duration // lease of attempts and workflow tasks, renewed with each heartbeat: 30 s
	DrainTimeout time.Duration // maximum duration of a drain: 25 s
	Addr         string        // of the worker's own port: /healthz, /readyz, /metrics; empty: none
	DataDir      string        // for the lock and the executors' folders; empty: no lock, and the temporary folder
	Handlers     string        // folder of activities in other languages; empty: none
	Watch        bool          // watch for new and changed handlers, for development

	Sessions  SessionOptions  // sessions that the worker holds
	Executors ExecutorOptions // processes that run handlers and isolated activities

	NoMachine bool // do not report the machine: its load, memory, disk and address
	// SetLogLevel sets the process's log level as configured by an operator; an empty level restores the original one.
	// nil: no call.
	SetLogLevel func(level string)
	// Logger receives the worker's log, with the attribute worker_id, and what workflow code and activities log. nil:
	// slog.Default().
	Logger *slog.Logger

	internal workeropt.Options
}

func init() {
	workeropt.Register(workeropt.Implementation{
		Change: func(options any, change func(*workeropt.Options)) any {
			out := options.(Options)
			change(&out.internal)
			return out
		},
		FromConfig: func(r any, c *config.Config, carrier link.Carrier, logger *slog.Logger) (any, error) {
			return fromConfig(r.(*Registry), c, carrier, logger)
		},
	})
}

func (o Options) defaults() Options {
	or := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if o.internal.Carrier == nil && len(o.URLs) > 0 {
		o.internal.Carrier = link.Over(o.Link, o.URLs, o.TLS)
	}
	or(&o.AttemptLease, 30*time.Second)
	or(&o.Sessions.Lease, 30*time.Second)
	or(&o.Sessions.Buffer, 5*time.Second)
	or(&o.Sessions.Idle, 5*time.Minute)
	or(&o.DrainTimeout, 25*time.Second)
	or(&o.Sessions.SnapshotMaxAge, protocol.SnapshotAge)
	or(&o.Sessions.SnapshotTimeout, 30*time.Second)
	o.Sessions.SnapshotTimeout = min(o.Sessions.SnapshotTimeout, protocol.MaxSnapshotTimeout)
	if o.Workflows <= 0 {
		o.Workflows = 256
	}
	if len(o.Queues) == 0 {
		o.Queues = []string{"default"}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Worker runs the workflows and activities of a registry for an app. Run once.
type Worker struct {
	opt         Options
	id          string
	incarnation string
	log         zerolog.Logger
	link        *link.Link
	runner      *runner.Runner
	sessions    *session.Sessions
	pool        *sandbox.Pool // nil: none

	snapshotFiles *runner.SnapshotFiles
	snapshots     sync.WaitGroup // running snapshots of sessions
	machine       *link.Machine
	lock          *os.File          // nil: none
	found         sync.Mutex        // guards handlers, storing, prepares and fileResources
	handlers      Handlers          // activities of other languages
	storing       map[string]bool   // whether files of session definitions store snapshots, by their hashes
	prepares      map[string]string // hashes of the files of session definitions with a hand-over, by their names
	// resources of session definitions in files whose options were read, by the names of the files
	fileResources map[string]fileResources
	resources     protocol.Resources // amounts for sessions
	executes      bool               // some activities run in executors
	together      int                // default maximum of concurrent activities in a session; 0: the number of slots
	fleet         fleetWide
	abort         chan struct{}
	aborting      sync.Once
	drain         chan struct{}
	draining      sync.Once
}

// New checks the options and prepares a worker. The caller must call Run or Close to release its resources.
func New(o Options) (_ *Worker, err error) {
	o = o.defaults()
	o.Watch = o.Watch && o.Handlers != ""
	switch o.Link {
	case "", link.WayAuto, link.WaySocket, link.WayHTTP:
	default:
		return nil, fmt.Errorf("worker: unknown link %q; use auto, socket or http", o.Link)
	}
	if o.Registry == nil || o.internal.Carrier == nil {
		return nil, errors.New("worker: registry and URLs are required")
	}
	if err := o.Registry.Check(); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if o.AttemptLease < time.Second {
		return nil, fmt.Errorf("worker: an attempt lease of %s is shorter than 1s", o.AttemptLease)
	}
	o.AttemptLease = o.AttemptLease.Round(time.Second)
	w := &Worker{
		opt: o, id: o.WorkerID, incarnation: ulid.Make().String(), abort: make(chan struct{}), drain: make(chan struct{}),
		prepares: map[string]string{}, storing: map[string]bool{}, fileResources: map[string]fileResources{},
	}
	if w.id == "" {
		w.id = ulid.Make().String()
	}
	logger := o.Logger.With("worker_id", w.id)
	w.log = slogbridge.Zerolog(logger)
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if o.WorkerID != "" && o.DataDir != "" {
		if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
			return nil, fmt.Errorf("worker: %w", err)
		}
		if w.lock, err = filelock.Acquire(
			filepath.Join(o.DataDir, "worker-"+fileName(o.WorkerID)+".lock"), os.O_CREATE,
		); err != nil {
			return nil, fmt.Errorf("worker id %s is in use on this machine: %w", o.WorkerID, err)
		}
	}
	if err := w.openSandbox(); err != nil {
		return nil, err
	}
	if o.Concurrency <= 0 {
		o.Concurrency, w.together = w.defaultSlots()
	}
	workflows, activities := o.Registry.WorkflowTypes(), w.activityTypes()
	if len(workflows) == 0 {
		o.Workflows = 0
	}
	if len(activities) == 0 && !o.Watch {
		o.Concurrency = 0
	}
	if len(workflows)+len(activities) == 0 && !o.Watch {
		return nil, errors.New("worker: no workflow and no activity is registered")
	}
	w.opt = o
	w.snapshotFiles = &runner.SnapshotFiles{Dir: o.Sessions.SnapshotDir, MaxAge: o.Sessions.SnapshotMaxAge}
	w.sessions, err = session.New(session.Options{
		Lease: o.Sessions.Lease, Buffer: o.Sessions.Buffer, Idle: o.Sessions.Idle, NewState: func() session.State {
			return activity.NewSessionValues()
		},
		End: w.endSession, Adopt: w.adoptSession, Failed: w.sessionFailed, GiveUp: w.giveUpSession,
		Beat: func() { w.link.Beat() }, Log: w.log, Snapshots: w.keepsSnapshots,
		TakeSnapshot: w.takeSnapshot, ReleaseIdle: w.releaseIdle,
	}, session.Interval(o.AttemptLease, o.Sessions.Buffer)) // without the upper limit of the renewal interval
	if err != nil {
		return nil, err
	}
	if !o.NoMachine {
		w.machine = link.WatchMachine(orElse(o.DataDir, os.TempDir()))
	}
	var run *runner.Runner // the link and the runner refer to each other, and the runner is created later
	if w.resources, err = protocol.ReadResources(o.Resources); err != nil {
		return nil, fmt.Errorf("worker: Resources: %w", err)
	}
	w.link, err = link.New(link.Options{
		Carrier: o.internal.Carrier, WorkerID: w.id, Namespace: o.Namespace, Token: o.Token, Incarnation: w.incarnation,
		Release: o.Release, Strict: o.Strict,
		// The link sets the worker ID in the registration.
		Register: w.registration, Machine: w.describe, Holdings: lazy{&run}, Preparations: lazy{&run},
		HandsOver: w.handsOver, Log: slogbridge.Zerolog(o.Logger),
		OnCancel: func(n protocol.CancelNotice) { run.Cancel(n) }, OnSettings: w.settings,
		OnSession:  w.sessions.Notified,
		OnYield:    w.yield,
		OnEnded:    func(runs []string) { run.Ended(runs) },
		CachedRuns: func() []protocol.CachedRun { return run.CachedRuns() },
		OnDrain:    func() { w.draining.Do(func() { close(w.drain) }) },
	})
	if err != nil {
		return nil, err
	}
	_, local := o.internal.Carrier.(link.Local)
	ro := runner.Options{
		Link: w.link, Definitions: w.definitions(), Sessions: w.sessions,
		InProcess: o.Executors.Isolation == IsolationNone, WorkerID: w.id, Queues: o.Queues,
		WorkflowSlots: o.Workflows, Validates: len(o.Registry.Validated()) > 0, ActivitySlots: o.Concurrency, PollIDs: !local,
		AttemptLease: o.AttemptLease, LeaseBuffer: o.Sessions.Buffer,
		Namespace: orElse(o.Namespace, "default"), Snapshots: w.snapshotFiles, TakeSnapshot: w.takeSnapshot,
		MaxSetUps: o.Sessions.MaxSetUps, ReleaseSession: w.releaseSession,
		Machines: o.StickyCache, TaskFailed: o.internal.OnTaskFailed, OnBranchRun: o.internal.OnBranchRun, Logger: logger,
		Codecs: codecs.Of(o.Registry.codecs),
	}
	if w.pool != nil {
		ro.Executors = w.pool
	}
	run, err = runner.New(ro)
	w.runner = run
	return w, err
}

// lazy passes the calls of the link to a runner that is created after the link.
type lazy struct{ r **runner.Runner }

func (l lazy) Due(now time.Time) ([]protocol.HeartbeatRequest, []protocol.SessionRenewal, time.Time) {
	return (*l.r).Holdings().Due(now)
}

func (l lazy) Leases() []protocol.HeartbeatRequest { return (*l.r).Holdings().Leases() }

func (l lazy) Renewed(sent time.Time, leases []protocol.HeartbeatRequest, sessions []protocol.SessionRenewal,
	a protocol.WorkerHeartbeatResponse, err error,
) {
	(*l.r).Holdings().Renewed(sent, leases, sessions, a, err)
}

func (l lazy) Preparations(draining bool) []protocol.SessionPreparation {
	return (*l.r).Preparations(draining)
}

func (l lazy) Prepared(sent time.Time, a protocol.WorkerHeartbeatResponse) { (*l.r).Prepared(sent, a) }

// ID returns the worker's ID.
func (w *Worker) ID() string { return w.id }

// Slots returns how many workflow tasks and activities run at once.
func (w *Worker) Slots() (workflows, activities int) { return w.opt.Workflows, w.opt.Concurrency }

// Ready returns an error while the worker has no connection to the app.
func (w *Worker) Ready() error {
	if !w.link.Connected() {
		return link.ErrNotConnected
	}
	return nil
}

// Alive returns an error if the worker is stuck in a way that only a restart ends.
func (w *Worker) Alive() error { return w.runner.Alive() }

// WaitReady returns once the worker is connected and registered, or when ctx ends.
func (w *Worker) WaitReady(ctx context.Context) error { return w.link.Ready(ctx) }

// openSandbox creates the pool of executors and finds the handlers in other languages.
func (w *Worker) openSandbox() error {
	o := w.opt
	needs := o.Handlers != ""
	for _, name := range o.Registry.ActivityTypes() {
		def, _ := o.Registry.FindActivity(name)
		needs = needs || def.Options.Isolated
	}
	for _, name := range o.Registry.SessionDefinitions() {
		needs = needs || o.Registry.sessions[name].Isolated()
	}
	if o.Executors.Isolation == IsolationNone {
		if o.Handlers != "" {
			return errors.New("worker: handlers in other languages require executors; set isolation to process or confined")
		}
		return nil
	}
	if o.Executors.Disabled {
		if needs {
			return errors.New("worker: isolated activities and handlers require executors, which are not available on this machine")
		}
		return nil
	}
	so := sandbox.Options{
		Handlers: o.Handlers, MinLevel: sandbox.Level(
			o.Executors.IsolationMin,
		), Read: o.Executors.Read, Write: o.Executors.Write, Limits: o.Executors.limits(), OnLost: w.lost,
		OnEvict: w.evict, Memory: o.Executors.Memory, Logger: w.log,
	}
	so.EgressAllow, so.Apps = o.Executors.EgressAllow, o.Executors.Apps
	so.Node, so.Python, so.Packages = o.Executors.Node, o.Executors.Python, sandbox.Packages(o.Executors.Packages)
	so.Cgroup = o.Executors.Cgroup
	if o.Executors.UIDs != "auto" {
		so.Users = o.Executors.UIDs
	}
	if o.Executors.Egress != "auto" {
		so.Egress = sandbox.Egress(o.Executors.Egress)
	}
	if o.Executors.Isolation != "auto" {
		so.Level = sandbox.Level(o.Executors.Isolation)
	}
	if o.DataDir != "" {
		so.Dir, so.Private = SandboxDir(o.DataDir), o.DataDir
	}
	if !needs && so.MinLevel == sandbox.FloorAuto {
		so.MinLevel = "" // nothing runs in executors, so no level is too weak
	}
	pool, err := sandbox.NewPool(so)
	if err != nil {
		if needs || errors.Is(err, sandbox.ErrTooWeak) {
			return fmt.Errorf("worker: %w", err)
		}
		w.log.Warn().Err(err).Msg("executors are not available on this machine")
		return nil
	}
	w.pool, w.executes = pool, needs
	if r := pool.Report(); needs && len(r.Missing) > 0 {
		level := zerolog.InfoLevel // isolated Go activities are code of the worker's own authors
		if o.Handlers != "" {
			level = zerolog.WarnLevel
		}
		event := w.log.WithLevel(level).Str("isolation", string(r.Level)).Str("egress", string(r.Egress)).
			Strs("missing", r.Missing)
		if r.Reason != "" {
			event = event.Str("reason", r.Reason)
		}
		event.Msg("sandbox isolation is partial")
	}
	if o.Handlers == "" {
		return nil
	}
	found, err := FindHandlers(o.Handlers, o.Registry, pool.Report().Runtimes)
	w.setHandlers(found)
	return err
}

// defaultSlots returns the default number of concurrent activities of the worker, and of one session. Activities in Go
// mostly wait for other systems. Each isolated activity needs an executor process, and tasks that are leased without a
// free executor would time out.
func (w *Worker) defaultSlots() (all, together int) {
	few := 2 * runtime.GOMAXPROCS(0)
	if w.executes {
		return few, 0
	}
	return max(128, few), few
}

// maxSessions returns the cap of sessions that the worker holds.
func (w *Worker) maxSessions() int {
	if w.opt.Sessions.Max >= 0 {
		return w.opt.Sessions.Max
	}
	if !w.onlyExecutors() {
		return autoSessions
	}
	return min(autoSessions, w.pool.Carries(w.activityTypes()))
}

// sessionResources returns the resources that sessions use by default, by definition. In executors that is the memory
// limit of the executor, if the worker declares how much memory it has.
func (w *Worker) sessionResources() map[string]protocol.Resources {
	all := map[string]protocol.Resources{}
	_, limited := w.resources[protocol.ResourceMemory]
	add := func(definition string, own protocol.Resources, executors ...string) {
		resources := maps.Clone(own)
		if limited && w.pool != nil && len(executors) > 0 {
			if resources == nil {
				resources = protocol.Resources{}
			}
			if _, set := resources[protocol.ResourceMemory]; !set {
				resources[protocol.ResourceMemory] = protocol.Bytes(w.pool.MemoryLimit(executors))
			}
		}
		if len(resources) > 0 {
			all[definition] = resources
		}
	}
	for _, name := range w.opt.Registry.SessionDefinitions() {
		d := w.opt.Registry.sessions[name]
		if d.Isolated() {
			add(name, d.Resources(), sandbox.SessionPrefix+name)
		} else {
			add(name, d.Resources())
		}
	}
	for _, h := range w.Handlers().sessions {
		add(strings.TrimPrefix(h.Name, sandbox.SessionPrefix), w.resourcesOf(h), h.Name)
	}
	if w.onlyExecutors() {
		add(protocol.EverySession, nil, w.activityTypes()...)
	}
	return all
}

// onlyExecutors reports whether all activities of the worker run in executors.
func (w *Worker) onlyExecutors() bool {
	for _, name := range w.opt.Registry.ActivityTypes() {
		if def, _ := w.opt.Registry.FindActivity(name); !def.Options.Isolated {
			return false
		}
	}
	return w.pool != nil && len(w.activityTypes()) > 0
}

func (w *Worker) activityTypes() []string {
	all := slices.AppendSeq(w.opt.Registry.ActivityTypes(), maps.Keys(w.handlerVersions()))
	slices.Sort(all)
	return slices.Compact(all)
}

// capabilities returns the configured capabilities, the supported protocol features and the capabilities of the
// sandbox.
func (w *Worker) capabilities() []string {
	// A worker that holds no sessions, because its maximum is 0, nevertheless understands workflows that use them.
	all := append(slices.Clone(w.opt.Capabilities), "worker_sessions", "worker_session_verbs", protocol.CapFailFast)
	if w.opt.Workflows > 0 {
		all = append(all, "query_tasks", "cancellation_requests", protocol.CapAwakeables)
		if len(w.opt.Registry.Validated()) > 0 {
			all = append(all, "update_validation_tasks")
		}
	}
	for _, name := range w.sessionDefinitions() {
		all = append(all, protocol.DefinitionCapability(name))
	}
	for _, name := range w.preparedDefinitions() {
		all = append(all, protocol.PrepareCapability(name))
	}
	for _, name := range w.sessionDefinitions() {
		if w.keepsSnapshots(name) {
			all = append(all, protocol.SnapshotCapability(name))
		}
	}
	if w.pool != nil {
		all = append(all, w.pool.Report().Capabilities()...)
	}
	return all
}

// registration returns the worker's registration.
func (w *Worker) registration() protocol.RegisterRequest {
	o := w.opt
	in := protocol.RegisterRequest{
		TaskQueues: o.Queues, BuildID: o.BuildID, Runtime: "go", SDKVersion: "sojourn-go/" + orElse(o.Release, "0.0.0"),
		WorkflowTypes: o.Registry.WorkflowTypes(), ActivityTypes: w.offered(), Capabilities: w.capabilities(),
		WorkflowSlots: &o.Workflows, ActivitySlots: new(w.concurrency()), MaxSessions: new(w.maxSessions()),
		AttemptLease: int64(o.AttemptLease / time.Second), Settings: new(w.fleet.get().Revision),
		Resources: w.resources, SessionResources: w.sessionResources(),
		MaxSetUps: cmp.Or(o.Sessions.MaxSetUps, runtime.GOMAXPROCS(0)),
		Session: &protocol.SessionSettings{
			LeaseMS: o.Sessions.Lease.Milliseconds(), BufferMS: o.Sessions.Buffer.Milliseconds(),
			IdleMS:        o.Sessions.Idle.Milliseconds(),
			MaxActivities: w.together, Resumes: true,
		},
	}
	if validated := o.Registry.Validated(); len(validated) > 0 {
		in.Contracts = contracts(validated)
	}
	in.Versions = w.handlerVersions()
	if w.pool != nil {
		in.Isolation, _ = json.Marshal(w.pool.Report()) // only strings and lists: it cannot fail
	}
	return in
}

// contracts returns the declarations of workflows: the updates that have validators. Update handlers are unknown before
// the code runs.
func contracts(validated map[string][]string) json.RawMessage {
	all := map[string]map[string][]string{}
	for name, updates := range validated {
		all[name] = map[string][]string{"update_validators": updates}
	}
	raw, _ := json.Marshal(all) // only strings and lists: it cannot fail
	return raw
}

// describe returns the load of the machine and of the worker's executors, for the registration and the heartbeats.
func (w *Worker) describe() protocol.MachineInformation {
	var m protocol.MachineInformation
	if w.machine != nil {
		m = w.machine.Latest()
	}
	mode := sandbox.LevelNone
	if w.pool != nil {
		mode = w.pool.Report().Level
		for _, e := range w.pool.Snapshot() {
			m.Sandboxes = append(m.Sandboxes, protocol.SandboxInfo{
				SandboxID: e.SandboxID, Runtime: e.Runtime, SessionID: e.SessionID, Epoch: e.Epoch, Busy: e.Busy, Calls: e.Calls,
				Memory: e.MemoryUsageBytes, Since: history.At(e.Since),
			})
		}
		m.Packages = workeropt.Packages(w.pool.Packages())
	}
	m.Props = &protocol.WorkerProps{
		ExecutionMode: string(mode), Concurrency: protocol.Text(strconv.Itoa(w.concurrency())), ReuseSandbox: "true",
	}
	return m
}

// SandboxDir returns the folder of executors and handler packages for workers with a data directory.
func SandboxDir(data string) string { return filepath.Join(data, "sandbox") }

// fileName returns a worker ID as part of a file's name.
func fileName(id string) string {
	out := []byte(id)
	for i, c := range out {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			out[i] = '_'
		}
	}
	return string(out)
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
