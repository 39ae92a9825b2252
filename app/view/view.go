// Package view answers reads: runs with their wait reasons, histories, workers, sessions, queues and schedules. It
// never commits and holds no lock, so a slow read does not delay a step of a run.
//
// It combines stored rows with the registry of live workers in memory and asks the engine for wait reasons.
package view

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// View answers reads of one app. All methods may be called from any goroutine.
type View struct {
	store   reads
	workers *membership.Registry
	opt     Options
	started time.Time
	jump    atomic.Pointer[store.ClockJump] // latest jump of the store's clock; nil: none

	overviews       shared[protocol.Overview]
	runCounts       shared[protocol.RunCounts]
	exactOverviews  shared[protocol.Overview]
	sessionsCounted shared[map[protocol.SessionStatus]int]
	queues          shared[queueCounts] // by namespace; "" means all namespaces
	orders          shared[protocol.QueueOrder]
}

// Options of a view. The first four are required.
type Options struct {
	AppState AppState
	Dispatch Dispatch
	Workers  *membership.Registry
	// Questions counts the query tasks of a kind, by queue.
	Questions func(ctx context.Context, namespace string, k protocol.TaskKind) (map[string]protocol.QueryTally, error)

	App, Release string        // ID and release of this process
	Shared       bool          // other apps write to the store as well
	Heartbeat    time.Duration // heartbeat interval that workers receive
	Alive        time.Duration // a worker is alive for this long after its last heartbeat
}

// reads is the part of the store that a view uses: it cannot commit.
type reads interface {
	View(ctx context.Context, read func(store.Reader) error) error
	Now(ctx context.Context) (time.Time, error)
	Queue(engine.QueueKey) *engine.Queue
}

// AppState is state that an app has only in memory.
type AppState interface {
	// AttributeTypes returns the registered search attributes of a namespace.
	AttributeTypes(ctx context.Context, namespace string) (map[string]string, error)
	// Drained is closed when the app drains: waiting requests return then.
	Drained() <-chan struct{}
}

// Dispatch notifies a view of commits, and lists open polls.
type Dispatch interface {
	WatchRun(run string) (changed <-chan struct{}, stop func())
	// WatchRunEnds subscribes to the closed runs of a workflow ID, or of one run.
	WatchRunEnds(k engine.WorkflowKey, run string) *dispatch.RunEnds
	// Changes increases with every commit that this app knows of.
	Changes() uint64
	// Waiting returns the number of open polls at this app by task queue.
	Waiting(namespace string) map[string]int
}

// New returns a view of a store.
func New(s reads, o Options) *View {
	return &View{
		store: s, workers: o.Workers, opt: o, started: time.Now(),
		overviews: shared[protocol.Overview]{pace: displayPace}, runCounts: shared[protocol.RunCounts]{pace: displayPace},
		sessionsCounted: shared[map[protocol.SessionStatus]int]{pace: programPace},
		exactOverviews:  shared[protocol.Overview]{pace: programPace}, queues: shared[queueCounts]{pace: programPace},
		orders: shared[protocol.QueueOrder]{pace: programPace},
	}
}

// Audits lists audit records, newest first: the records of a namespace and, with common, records without a namespace
// too.
func (v *View) Audits(ctx context.Context, ns string, common bool, limit int) (list []store.Audit, err error) {
	err = v.store.View(ctx, func(r store.Reader) error {
		list, err = r.Audits(ctx, cmp.Or(ns, store.DefaultNamespace), common, pageSize(limit, 100, 1000))
		return err
	})
	return list, err
}

// pageSize returns the number of items of a page: def if n is not positive, and at most most.
func pageSize(n, def, most int) int {
	if n <= 0 {
		return def
	}
	return min(n, most)
}
