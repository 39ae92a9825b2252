package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Traffic is the concurrent work of several apps of one database on the same rows: three runs, a budget of leases, a
// fairness class, a session and the row of its worker. The first app prepares it.
type Traffic struct {
	S       store.Store
	App     string // unique: the prefix of every ID
	Payload int    // bytes of a start's arguments

	n     atomic.Int64
	mu    sync.Mutex
	taken map[string]bool // signals that were acknowledged; guarded by mu
}

// Crowded is the queue that all operations share; Quiet is a queue that only Apart uses.
const (
	Crowded = "crowded"
	Quiet   = "quiet"
)

// SharedRuns are the IDs, used as workflow ID and as run ID, of the runs that all apps change.
var SharedRuns = []string{"shared-run-1", "shared-run-2", "shared-run-3"}

const sharedSession = "shared-session"

func sharedWorker() *engine.Worker {
	return NewWorker("shared-worker", Sessions(4, 10*time.Minute), func(w *engine.Worker) { w.Queues = []string{Crowded} })
}

// Prepare creates the shared rows.
func (x *Traffic) Prepare(ctx context.Context) error {
	for _, id := range SharedRuns {
		if _, err := x.S.Commit(ctx, StartChange(x.start(id, id, "nobody-polls"))); err != nil {
			return err
		}
	}
	k := engine.QueueKey{Namespace: Namespace, Name: Crowded}
	limits := map[string]engine.Budget{
		string(protocol.KindWorkflow): {Leases: 100_000},
		string(protocol.KindActivity): {Leases: 100_000, PerMinute: 1_000_000},
	}
	_, err := x.S.Commit(ctx, store.Transaction{Needs: store.Keys{
		Queues: []engine.QueueKey{k},
	}, Decide: func(_ store.Rows, now time.Time) (store.Writes, error) {
		return store.Writes{Queues: []engine.Queue{{Namespace: Namespace, Name: Crowded, Limits: limits}}}, nil
	}})
	return errors.Join(err, x.beat(ctx))
}

// id returns a new ID.
func (x *Traffic) nextID() string { return fmt.Sprintf("%s-%d", x.App, x.n.Add(1)) }

func (x *Traffic) start(run, workflow, queue string) engine.Start {
	return engine.Start{RunID: run, Number: 1, Request: protocol.StartRequest{
		Namespace: Namespace, WorkflowID: workflow, WorkflowType: "flow", TaskQueue: queue,
	}}
}

// Op is one kind of operation in the traffic; it may be repeated, by one caller at a time.
type Op struct {
	Name string
	Do   func(context.Context) error
}

// Ops returns all kinds of operations except operations that run alone.
func (x *Traffic) Ops() []Op {
	ops := []Op{
		{"start in a fairness class", x.begin},
		{"a step of a workflow, and its activity in the session", x.step},
		{"the worker's row", x.beat},
	}
	for _, run := range SharedRuns {
		ops = append(ops, Op{"signal " + run, func(ctx context.Context) error { return x.signal(ctx, run) }})
	}
	return append(ops, Op{"renewal of the session", x.renew})
}

// Apart changes rows that no other operation uses.
func (x *Traffic) Apart(ctx context.Context) error {
	id := x.nextID()
	_, err := x.S.Commit(ctx, StartChange(x.start(id, id, Quiet)))
	return err
}

func (x *Traffic) begin(ctx context.Context) error {
	id := x.nextID()
	in := x.start(id, id, Crowded)
	in.Request.FairnessKey = "tenant"
	in.Arguments = strings.Repeat("A", x.Payload)
	_, err := x.S.Commit(ctx, StartChange(in))
	return err
}

func (x *Traffic) signal(ctx context.Context, run string) error {
	name := x.nextID()
	_, err := x.S.Commit(ctx, Step(run, engine.SignalRun{Name: name, Value: "AAAA"}, store.Keys{}))
	if err == nil {
		x.mu.Lock()
		if x.taken == nil {
			x.taken = map[string]bool{}
		}
		x.taken[name] = true
		x.mu.Unlock()
	}
	return err
}

// Taken returns the signals that were acknowledged.
func (x *Traffic) Taken() map[string]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.taken
}

// step claims a workflow task, completes it with an activity in the shared session, claims one of its activities and
// completes it. It does not wait for tasks that another app has leased.
func (x *Traffic) step(ctx context.Context) error {
	tasks, err := x.claim(ctx, protocol.KindWorkflow)
	if err != nil {
		return err
	}
	for _, l := range tasks {
		if err := x.done(x.S.Commit(ctx, Answering(l, Activity("x", sharedSession)))); err != nil {
			return err
		}
	}
	if tasks, err = x.claim(ctx, protocol.KindActivity); err != nil {
		return err
	}
	for _, l := range tasks {
		if err := x.done(x.S.Commit(ctx, Finishing(l))); err != nil {
			return err
		}
	}
	return nil
}

func (x *Traffic) claim(ctx context.Context, kind protocol.TaskKind) ([]store.Leased, error) {
	return x.S.LeaseTasks(ctx, store.LeaseRequest{
		Namespace: Namespace, Queue: Crowded, Kind: kind,
		Pollers: []store.Poller{{Lessee: engine.Lessee{Worker: sharedWorker()}, Max: 2}},
	})
}

func (x *Traffic) beat(ctx context.Context) error {
	row := sharedWorker()
	_, err := x.S.Commit(ctx, store.Transaction{Needs: store.Keys{
		Workers: []engine.WorkerKey{row.Key()},
	}, Decide: func(store.Rows, time.Time) (store.Writes, error) {
		return store.Writes{Workers: []engine.Worker{*row}}, nil
	}})
	return err
}

func (x *Traffic) renew(ctx context.Context) error {
	return x.done(x.S.Commit(ctx, SessionStep(sharedSession, engine.RenewSession{
		SessionHolder: engine.SessionHolder{Worker: "shared-worker"},
	})))
}

// done accepts a refusal as a response: only a store that does not respond is an error.
func (x *Traffic) done(_ any, err error) error {
	if err != nil && protocol.ReasonOf(err) != "" && protocol.ReasonOf(err) != protocol.ReasonStoreUnavailable {
		return nil
	}
	return err
}
