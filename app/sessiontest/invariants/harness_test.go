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
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// harness is one database with the apps that share it. On SQLite, whose file only one process uses, the test can move
// the store's clock.
type harness struct {
	t     testing.TB
	apps  []*apptest.App
	shift *atomic.Int64 // nil: the store uses the clock of the database
}

func onSQLite(t testing.TB) *harness {
	w := &harness{t: t, shift: &atomic.Int64{}}
	path := filepath.Join(t.TempDir(), "invariants.db")
	w.apps = []*apptest.App{apptest.Start(t, apptest.Options{Change: func(o *app.Options) {
		o.Cleanup, o.Release = 50*time.Millisecond, releaseOf(1)
		o.Open = func(ctx context.Context, _ string, d store.Dispatcher) (store.Store, error) {
			return sqlite.Open(ctx, path, sqldb.Options{App: "app", Dispatch: d, Shift: func() time.Duration {
				return time.Duration(w.shift.Load())
			}})
		}
	}})}
	return w
}

func onPostgres(t testing.TB, apps int) *harness {
	w := &harness{t: t}
	database := apptest.Postgres(t)
	for i := range apps {
		w.apps = append(w.apps, apptest.Start(t, apptest.Options{
			Database: database, Change: func(o *app.Options) { o.Cleanup, o.Release = 200*time.Millisecond, releaseOf(i+1) },
		}))
	}
	return w
}

// releaseOf returns the release of the nth app. The apps have different releases, which the release gate compares with
// the releases of workers.
func releaseOf(n int) string { return fmt.Sprint("release ", n) }

// movers is the approximate number of callers that move the clock of one store at the same time.
const movers = 6

// pass advances the store's clock.
func (w *harness) pass(d time.Duration) {
	if w.shift == nil {
		time.Sleep(d)
		return
	}
	w.shift.Add(int64(d) / movers)
	w.apps[0].Dispatch().Due(time.Unix(0, 0)) // the sweeper does not see the clock jump by itself
	time.Sleep(time.Millisecond + d/50)
}

// now returns the store's time in microseconds.
func (w *harness) now() int64 {
	at, err := w.apps[0].Store().Now(context.Background())
	if err != nil {
		w.t.Error(err)
	}
	return at.UnixMicro()
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// worker registers a worker that holds at most the given number of sessions, each under this lease.
func worker(
	ns, id, incarnation string, most int, lease time.Duration, capabilities ...string,
) protocol.RegisterRequest {
	return protocol.RegisterRequest{
		Namespace: ns, WorkerID: id, Incarnation: incarnation, TaskQueue: "default", AnyActivity: true,
		Capabilities: append([]string{broker.CapSessions}, capabilities...), MaxSessions: &most, AttemptLease: 3600,
		Session: &protocol.SessionSettings{LeaseMS: lease.Milliseconds(), BufferMS: 5, IdleMS: time.Hour.Milliseconds()},
	}
}

// flow is the ID of the worker that completes the workflow tasks of these tests.
const flow = "flow"

// namespace creates a namespace, which separates a test from others.
func (w *harness) namespace(name string) string {
	w.t.Helper()
	must[protocol.NamespaceView](w.t)(w.apps[0].Broker().CreateNamespace(
		w.t.Context(), protocol.NamespaceRequest{Name: name},
	))
	return name
}

// handle is a placeholder for the session that the first command of a run starts.
const handle = "$1"

// decide starts a run with this workflow ID, completes its first task with these commands, and returns the run ID.
func (w *harness) decide(ns, id string, commands ...protocol.Command) string {
	w.t.Helper()
	b, ctx := w.apps[0].Broker(), w.t.Context()
	must[protocol.RegisterResponse](w.t)(b.Register(ctx, protocol.RegisterRequest{
		Namespace: ns, WorkerID: flow, Incarnation: "1", TaskQueue: "default", WorkflowTypes: []string{"wf"},
	}))
	run := must[protocol.StartResponse](w.t)(b.Start(
		ctx, protocol.StartRequest{Namespace: ns, WorkflowID: id, WorkflowType: "wf"},
	)).RunID
	for i, c := range commands {
		if c.SessionID == handle {
			commands[i].SessionID = engine.StepID(run, 1)
		}
	}
	w.step(ns, id, commands...)
	return run
}

// step leases the only workflow task of this workflow ID and completes it.
func (w *harness) step(ns, id string, commands ...protocol.Command) {
	w.t.Helper()
	b, ctx, wait := w.apps[0].Broker(), w.t.Context(), int64(30)
	p := must[protocol.PollResponse](w.t)(b.Poll(ctx, protocol.PollRequest{
		Namespace: ns, WorkerID: flow, Kinds: []protocol.TaskKind{protocol.KindWorkflow}, Timeout: &wait,
	}))
	if len(p.Tasks) != 1 || p.Tasks[0].Workflow.WorkflowID != id {
		w.t.Fatalf("workflow task of %s: %+v", id, p.Tasks)
	}
	task := p.Tasks[0].Workflow
	out := must[protocol.CompleteBatchResponse](
		w.t,
	)(b.Complete(ctx, protocol.CompleteRequest{Items: []protocol.CompleteItem{{
		Namespace: ns, Kind: protocol.KindWorkflow, TaskID: task.TaskID, Owner: flow, Attempt: task.Attempt,
		Commands: commands,
	}}}))
	if err := out.Items[0].Err; err != nil {
		w.t.Fatal(err)
	}
}

// activity returns an activity without a session.
func activity() protocol.Command {
	p, _ := payload.EncodeArgs("x")
	return protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "turn", Arguments: p}
}

func inSession(id string) protocol.Command {
	c := activity()
	c.SessionID = id
	return c
}

func withOptions(o protocol.SessionOptions) protocol.Command {
	c := activity()
	c.WorkerSession = &o
	return c
}

// poll polls an app for one activity.
func poll(
	ctx context.Context, b *broker.Broker, ns, worker, incarnation string, seconds int64,
) (*protocol.ActivityTask, error) {
	p, err := ask(ctx, b, protocol.PollRequest{
		Namespace: ns, WorkerID: worker, Incarnation: incarnation, Timeout: &seconds,
	})
	if err != nil || len(p.Tasks) == 0 {
		return nil, err
	}
	return p.Tasks[0].Activity, nil
}

// ask polls an app for activities.
func ask(ctx context.Context, b *broker.Broker, in protocol.PollRequest) (protocol.PollResponse, error) {
	in.Kinds = []protocol.TaskKind{protocol.KindActivity}
	return b.Poll(ctx, in)
}

func finish(
	ctx context.Context, b *broker.Broker, ns string, task *protocol.ActivityTask, change func(*protocol.CompleteItem),
) protocol.CompleteResponse {
	item := protocol.CompleteItem{
		Namespace: ns, Kind: protocol.KindActivity, TaskID: task.TaskID, Owner: task.LeaseOwner, AttemptID: task.AttemptID,
	}
	if change != nil {
		change(&item)
	}
	out, err := b.Complete(ctx, protocol.CompleteRequest{Items: []protocol.CompleteItem{item}})
	if err != nil {
		return protocol.CompleteResponse{Err: err}
	}
	return out.Items[0]
}
