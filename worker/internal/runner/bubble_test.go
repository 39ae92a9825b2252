package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/link/linktest"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/session"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test in virtual time, with a real app over SQLite and without a port.
func bubble(t *testing.T, test func(t *testing.T, a *control)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := open(t, filepath.Join(dir, "app.db"))
		defer a.close()
		test(t, a)
	})
}

// control is the app of a bubble, with faults that a test can switch on.
type control struct {
	*broker.Broker
	*view.View
	t        *testing.T
	server   *server.Server
	ended    chan error // receives the result of server.Run
	store    store.Store
	dispatch *dispatch.Dispatch
	away     atomic.Bool  // the store rejects writes
	older    atomic.Bool  // the app ignores eager workflow tasks, as an older app does
	turns    atomic.Int64 // number of eager workflow tasks that it ignored
	narrow   atomic.Bool  // requests with an eager workflow task are too large for the connection
	// error with which a whole request is refused if it has an outcome named "bad"; nil: none
	bundle   atomic.Pointer[error]
	formless atomic.Bool // results of activities are refused as malformed
	// responds to requests with outcomes instead of the app; if it is nil or returns nil, the app responds
	judge    atomic.Pointer[judge]
	plain    atomic.Bool  // workers do not report that they support eager workflow tasks
	asked    atomic.Int64 // number of requests with outcomes that also poll
	replayed atomic.Int64 // events that were sent for replays from the start
	counts   *counts
	clock    atomic.Int64 // difference of the machine's clock from the time of the bubble, in nanoseconds

	mu      sync.Mutex                        // guards the fields below
	fail    func(worker, method string) error // if it returns an error, the call fails before it reaches the app
	lose    func(worker, method string) error // if it returns an error, the response is lost after the app has acted
	mute    bool                              // workers that start now receive no notices
	calls   map[string]int
	flying  map[*pendingCall]struct{}
	workers []*member
}

// judge responds to a request with outcomes instead of the app, or returns nil and no error.
type judge = func(protocol.CompleteRequest) (any, error)

// outage is a store that rejects writes while away is set, and counts reads.
type outage struct {
	store.Store
	away   *atomic.Bool
	counts *counts
}

func (o outage) Commit(ctx context.Context, c store.Transaction) (any, error) {
	if o.away.Load() {
		return nil, store.ErrUnavailable
	}
	return o.Store.Commit(ctx, c)
}

// View counts the events that the broker reads, so that a test sees whether a history was read again.
func (o outage) View(ctx context.Context, fn func(store.Reader) error) error {
	if o.counts.off.Load() {
		return o.Store.View(ctx, fn)
	}
	return o.Store.View(ctx, func(r store.Reader) error { return fn(counted{r, o.counts}) })
}

// counts sums up what histories cost: bytes of responses to workers, and events read from the store.
type counts struct {
	off         atomic.Bool
	bytes, read atomic.Int64
}

type counted struct {
	store.Reader
	counts *counts
}

func (c counted) Events(
	ctx context.Context, run string, after, through int64, limit, maxBytes int,
) ([]history.Event, error) {
	list, err := c.Reader.Events(ctx, run, after, through, limit, maxBytes)
	c.counts.read.Add(int64(len(list)))
	return list, err
}

// pendingCall is a call in progress.
type pendingCall struct {
	worker, method string
	cancel         context.CancelCauseFunc
}

func open(t *testing.T, path string) *control {
	t.Helper()
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.ErrorLevel)
	a := &control{t: t, calls: map[string]int{}, flying: map[*pendingCall]struct{}{}, counts: &counts{}}
	a.counts.off.Store(true)
	var err error
	a.server, err = server.Open(t.Context(), server.Options{
		Release: "test", NoAuth: true, Log: log,
		Open: func(ctx context.Context, _ string, d store.Dispatcher) (store.Store, error) {
			s, err := sqlite.Open(ctx, path, sqldb.Options{
				App: "app", Dispatch: d, Wall: func() time.Time { return time.Now().Add(time.Duration(a.clock.Load())) },
			})
			return outage{s, &a.away, a.counts}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	a.Broker, a.View, a.store = a.server.Broker(), a.server.View(), a.server.Store()
	a.dispatch = a.server.Dispatch()
	a.ended = make(chan error, 1)
	go func() { a.ended <- a.server.Run(context.Background()) }()
	return a
}

func (a *control) close() {
	for _, m := range a.workers {
		m.kill()
	}
	if err := errors.Join(a.server.Close(context.Background()), <-a.ended); err != nil {
		a.t.Error(err)
	}
}

// breaks makes new calls fail before they reach the app, and aborts calls in progress; nil stops this.
func (a *control) breaks(fail func(worker, method string) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail = fail
	for f := range a.flying {
		if fail != nil && fail(f.worker, f.method) != nil {
			f.cancel(errBroken)
		}
	}
}

// hangs makes new calls wait in fail before they reach the app. It does not affect calls in progress.
func (a *control) hangs(fail func(worker, method string) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail = fail
}

// loses discards responses of the app; nil stops this.
func (a *control) loses(lose func(worker, method string) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lose = lose
}

func (a *control) called(method string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls[method]
}

// way returns a worker's connection to the app in this process, with the faults that the test has switched on.
func (a *control) way(worker string) func(context.Context, string, any, linktest.Call) (any, error) {
	return func(ctx context.Context, method string, in any, call linktest.Call) (any, error) {
		a.mu.Lock()
		fail, lose := a.fail, a.lose
		a.calls[method]++
		ctx, cancel := context.WithCancelCause(ctx)
		f := &pendingCall{worker, method, cancel}
		a.flying[f] = struct{}{}
		a.mu.Unlock()
		defer func() {
			a.mu.Lock()
			delete(a.flying, f)
			a.mu.Unlock()
			cancel(nil)
		}()
		if fail != nil {
			if err := fail(worker, method); err != nil {
				return nil, err
			}
		}
		if c, ok := in.(protocol.CompleteRequest); ok && c.Next != nil &&
			c.Next.Free[protocol.KindActivity]+c.Next.Free[protocol.KindWorkflow] > 0 {
			a.asked.Add(1)
		}
		if a.plain.Load() {
			in = without(in)
		}
		if a.older.Load() && hasTurn(in) {
			a.turns.Add(1)
			in = untaken(in.(protocol.CompleteRequest))
		}
		if c, ok := in.(protocol.CompleteRequest); ok && a.bundle.Load() != nil && spoiled(c) {
			return nil, *a.bundle.Load()
		}
		if c, ok := in.(protocol.CompleteRequest); ok && a.formless.Load() && c.Items[0].Kind == protocol.KindActivity &&
			c.Items[0].Failure == nil {
			return protocol.CompleteBatchResponse{Items: []protocol.CompleteResponse{
				protocol.Rejected(c.Items[0].TaskID, protocol.Invalid("result", "is invalid")),
			}}, nil
		}
		if c, ok := in.(protocol.CompleteRequest); ok && a.judge.Load() != nil {
			if out, err := (*a.judge.Load())(c); out != nil || err != nil {
				return out, err
			}
		}
		if a.narrow.Load() && hasTurn(in) {
			return nil, fmt.Errorf("%w: request with an eager workflow task", socketio.ErrPayloadTooLarge)
		}
		out, err := call(ctx, in)
		if err == nil {
			a.replayed.Add(int64(readAgain(out)))
		}
		if err == nil && !a.counts.off.Load() {
			raw, _ := json.Marshal(out)
			a.counts.bytes.Add(int64(len(raw)))
		}
		if err == nil && lose != nil {
			err = lose(worker, method)
		}
		return out, err
	}
}

// without returns the request as a worker without support for eager workflow tasks sends it.
func without(in any) any {
	switch in := in.(type) {
	case protocol.PollRequest:
		in.EagerTasks = false
		return in
	case protocol.CompleteRequest:
		if in.Next != nil {
			next := *in.Next
			next.EagerTasks = false
			in.Next = &next
		}
		return in
	}
	return in
}

// hasTurn reports whether a request contains an eager workflow task.
func hasTurn(in any) bool {
	c, ok := in.(protocol.CompleteRequest)
	return ok && slices.ContainsFunc(c.Items, func(item protocol.CompleteItem) bool { return item.Eager != nil })
}

// untaken returns the request as an app without support for eager workflow tasks reads it.
func untaken(in protocol.CompleteRequest) protocol.CompleteRequest {
	in.Items = slices.Clone(in.Items)
	for i := range in.Items {
		in.Items[i].Eager = nil
	}
	return in
}

// readAgain returns the number of events in a response to a worker that replays a run from the start. The first task of
// a run does not count.
func readAgain(out any) (n int) {
	switch out := out.(type) {
	case protocol.HistoryPage:
		n = len(out.Events)
	case protocol.PollResponse:
		for _, t := range out.Tasks {
			if t := t.Workflow; t != nil && len(t.Events) > 1 && t.Events[0].Seq == 1 {
				n += len(t.Events)
			}
		}
	case protocol.CompleteBatchResponse:
		if out.Next != nil {
			n = readAgain(*out.Next)
		}
	}
	return n
}

// member is a worker of a bubble.
type member struct {
	*runner.Runner
	link     *link.Link
	sessions *session.Sessions
	stop     context.CancelFunc
	parts    sync.WaitGroup
	once     sync.Once
}

// lease is the lease of attempts in these tests.
const lease = 20 * time.Second

// worker starts a worker with the workflows and activities that register adds.
func (a *control) worker(id string, register func(*worker.Registry), change func(*runner.Options)) *member {
	a.t.Helper()
	log := zerolog.New(zerolog.NewTestWriter(a.t)).Level(zerolog.ErrorLevel)
	r := worker.NewRegistry()
	register(r)
	m := &member{}
	var err error
	newState := func() session.State { return activity.NewSessionValues() }
	m.sessions, err = session.New(session.Options{NewState: newState, Log: log},
		runner.AttemptInterval(lease, 5*time.Second))
	if err != nil {
		a.t.Fatal(err)
	}
	var run *runner.Runner
	slots, sessions := 4, 10
	m.link, err = link.New(link.Options{
		Carrier: link.Local{Join: func(
			hello protocol.ChannelAuth, notices protocol.WorkerNotices,
		) (protocol.WorkerConnection, func(), error) {
			if a.mute {
				notices = linktest.IgnoreNotices{}
			}
			c, leave, err := a.server.Connections().Join(hello, notices)
			return linktest.Wire{To: c, Intercept: a.way(id)}, leave, err
		}},
		WorkerID: id, Incarnation: id + "-1", Release: "test", Log: log,
		Register: func() protocol.RegisterRequest {
			return protocol.RegisterRequest{
				TaskQueues: []string{"default"}, WorkflowTypes: r.WorkflowTypes(), ActivityTypes: r.ActivityTypes(),
				Capabilities: []string{"worker_sessions", "query_tasks"}, WorkflowSlots: &slots, ActivitySlots: &slots,
				MaxSessions:  &sessions,
				AttemptLease: int64(lease / time.Second),
				Session:      &protocol.SessionSettings{LeaseMS: 30_000, BufferMS: 5_000, IdleMS: 300_000},
			}
		},
		OnCancel: func(n protocol.CancelNotice) { run.Cancel(n) }, Holdings: held{&run},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	o := runner.Options{
		Link: m.link, Definitions: definitions{r}, Sessions: m.sessions, InProcess: true, WorkerID: id, WorkflowSlots: slots,
		ActivitySlots: slots,
		AttemptLease:  lease, Logger: slogbridge.Slog(log),
	}
	if change != nil {
		change(&o)
	}
	if run, err = runner.New(o); err != nil {
		a.t.Fatal(err)
	}
	m.Runner = run
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	m.parts.Go(func() {
		if err := m.link.Run(ctx); err != nil {
			a.t.Error(err)
		}
	})
	m.parts.Go(run.Run)
	a.workers = append(a.workers, m)
	if err := m.link.Ready(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	return m
}

type held struct{ r **runner.Runner }

func (h held) Due(now time.Time) ([]protocol.HeartbeatRequest, []protocol.SessionRenewal, time.Time) {
	return (*h.r).Holdings().Due(now)
}

func (h held) Leases() []protocol.HeartbeatRequest { return (*h.r).Holdings().Leases() }

func (h held) Renewed(
	sent time.Time, leases []protocol.HeartbeatRequest, sessions []protocol.SessionRenewal,
	a protocol.WorkerHeartbeatResponse, err error,
) {
	(*h.r).Holdings().Renewed(sent, leases, sessions, a, err)
}

// kill stops a worker without a drain, like a crash; only its goroutines end.
func (m *member) kill() {
	m.once.Do(func() {
		m.stop()
		m.Close()
		m.parts.Wait()
		m.sessions.DropAll("killed")
		m.sessions.Wait(context.Background())
	})
}

// begin starts a run and returns its ID.
func (a *control) begin(typ string, args ...any) string {
	a.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		a.t.Fatal(err)
	}
	answer, err := a.Start(a.t.Context(), protocol.StartRequest{WorkflowType: typ, Input: raw})
	if err != nil {
		a.t.Fatal(err)
	}
	return answer.RunID
}

func (a *control) events(run string) []history.Event {
	a.t.Helper()
	page, err := a.History(a.t.Context(), protocol.HistoryQuery{Target: protocol.Target{RunID: run}, PageSize: 1000})
	if err != nil {
		a.t.Fatal(err)
	}
	return page.Events
}

// end waits, in virtual time, until the run has closed, and returns its last event.
func (a *control) end(run string) history.Event {
	a.t.Helper()
	changed, stop := a.dispatch.WatchRun(run)
	defer stop()
	for late := time.After(time.Hour); ; {
		events := a.events(run)
		last := events[len(events)-1]
		switch last.Data.(type) {
		case *history.WorkflowCompleted, *history.WorkflowFailed, *history.WorkflowCancelled, *history.WorkflowTerminated:
			return last
		}
		select {
		case <-changed:
		case <-late:
			raw, _ := json.MarshalIndent(events, "", " ")
			a.t.Fatalf("run %s did not end:\n%s", run, raw)
		}
	}
}

// last is like end, but reads the history only once; for long runs.
func (a *control) last(run string) (last history.Event) {
	a.t.Helper()
	changed, stop := a.dispatch.WatchRun(run)
	defer stop()
	for late := time.After(time.Hour); ; {
		err := a.store.View(a.t.Context(), func(r store.Reader) error {
			s, err := r.Run(a.t.Context(), run)
			if err == nil && !s.Status.Open() {
				var list []history.Event
				if list, err = r.Events(a.t.Context(), run, s.LastSeq-1, s.LastSeq, 1, 0); len(list) == 1 {
					last = list[0]
				}
			}
			return err
		})
		if err != nil {
			a.t.Fatal(err)
		}
		if last.Data != nil {
			return last
		}
		select {
		case <-changed:
		case <-late:
			a.t.Fatalf("run %s did not end", run)
		}
	}
}

// task returns the run's workflow task; nil if it has none.
func (a *control) task(run string) (task *engine.Task) {
	a.t.Helper()
	err := a.store.View(a.t.Context(), func(r store.Reader) error {
		s, err := r.Run(a.t.Context(), run)
		if err == nil {
			task = s.Task
		}
		return err
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return task
}

// result returns the result of a run.
func result[T any](t *testing.T, last history.Event) T {
	t.Helper()
	done, ok := last.Data.(*history.WorkflowCompleted)
	if !ok {
		raw, _ := json.Marshal(last)
		t.Fatalf("the run ended with %s", raw)
	}
	var v T
	if err := payload.Decode(payload.Payload{Blob: done.Output}, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// all returns the events of one type.
func all[T history.Data](events []history.Event) (found []T) {
	for _, e := range events {
		if d, ok := e.Data.(T); ok {
			found = append(found, d)
		}
	}
	return found
}

// single registers an activity and a workflow that runs it, with unlimited attempts.
func single(r *worker.Registry, name string, fn any, opts ...activity.Options) {
	r.Workflow("do_"+name, func(ctx workflow.Context) (any, error) {
		return workflow.Await[any](ctx, workflow.ExecuteActivity(workflow.WithActivity(ctx, workflow.ActivityOptions{
			Retry: &workflow.RetryPolicy{MaxAttempts: 5, Backoff: []time.Duration{time.Second}},
		}), name))
	})
	r.Activity(name, fn, opts...)
}

// signal sends a signal to the workflow of a run.
func (a *control) signal(run, name string) {
	a.t.Helper()
	head := a.events(run)[0].Data.(*history.WorkflowStarted)
	_, err := a.Signal(
		a.t.Context(), protocol.SignalRequest{Target: protocol.Target{WorkflowID: head.WorkflowID}, SignalName: name},
	)
	if err != nil {
		a.t.Fatal(err)
	}
}

// definitions are the definitions of a registry without session definitions.
type definitions struct{ *worker.Registry }

func (definitions) FindSession(string) (*runner.SessionDefinition, bool) { return nil, false }
