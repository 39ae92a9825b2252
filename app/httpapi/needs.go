package httpapi

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// What the routes ask for stands in small interfaces, one for each noun, so that who reads a route or writes a fake
// knows what it can do. Those of queues, deployments, schedules, namespaces, attributes, retention and passes stand
// beside their routes.

// Runs is what is done to runs.
type Runs interface {
	Start(context.Context, protocol.StartRequest) (protocol.StartAnswer, error)
	StartActivity(context.Context, protocol.ActivityRequest) (protocol.ActivityAnswer, error)
	Signal(context.Context, protocol.SignalRequest) (protocol.CommandReceipt, error)
	Update(context.Context, protocol.UpdateRequest) (protocol.UpdateAnswer, error)
	Query(context.Context, protocol.QueryRequest) (protocol.QueryAnswer, error)
	Cancel(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	Terminate(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	RequestCancellation(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	Repair(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	Archive(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	Import(context.Context, protocol.ImportRequest) (protocol.ImportAnswer, error)
}

// RunViews is what is told of runs, with what they wait for; so it knows which workers live.
type RunViews interface {
	Describe(context.Context, protocol.Target) (protocol.RunView, error)
	Result(ctx context.Context, t protocol.Target, most time.Duration) (protocol.RunView, error)
	List(context.Context, protocol.ListRequest) (protocol.ListAnswer, error)
	Runs(context.Context, protocol.Target) ([]protocol.RunView, error)
	History(context.Context, protocol.HistoryQuery) (protocol.HistoryPage, error)
	Follow(ctx context.Context, t protocol.Target, after int64, f view.Follower) (closed bool, err error)
	Debug(context.Context, protocol.Target) (protocol.DebugView, error)
	TaskWhy(ctx context.Context, namespace, task string) (protocol.TaskWhy, error)
	QueueWaiting(ctx context.Context, namespace, queue string) ([]protocol.TaskWhy, error)
}

// Workers is what is told of workers and done to them.
type Workers interface {
	Workers(ctx context.Context, namespace, queue, status string) ([]protocol.WorkerView, error)
	Worker(ctx context.Context, namespace, id string) (protocol.WorkerView, error)
	RemoveWorker(ctx context.Context, namespace, id string) (protocol.DeregisterAnswer, error)
	OperateFleet(context.Context, protocol.FleetRequest) (protocol.FleetDrainState, error)
	SetFleet(context.Context, protocol.FleetSettingsRequest) (protocol.FleetSettingsState, error)
	FleetSettings(ctx context.Context, namespace string) (protocol.FleetSettingsState, error)
	FleetDrains(ctx context.Context, namespace string) (protocol.FleetDrains, error)
}

// Sessions is what is told of sessions and done to them.
type Sessions interface {
	Sessions(context.Context, protocol.SessionList) (protocol.SessionPage, error)
	Session(ctx context.Context, namespace, id string) (protocol.SessionView, error)
	OperateSession(context.Context, protocol.SessionOperation) (protocol.SessionView, error)
}

// Process is what is asked of this app as such.
type Process interface {
	Release() string
	Ready(context.Context) error
	Overview(ctx context.Context, namespace string) (protocol.Overview, error)
	RunCounts(ctx context.Context, namespace string) (protocol.RunCounts, error)
	Tally(ctx context.Context, namespace string) (protocol.Overview, error)
	Audit(context.Context, store.Audit) error
}

// View is what is read from the store alone.
type View interface {
	SessionTimeline(context.Context, protocol.SessionTimeline) (protocol.SessionTimelinePage, error)
	SessionAttempts(context.Context, protocol.SessionAttempts) (protocol.SessionAttemptPage, error)
	Order(ctx context.Context, namespace, queue string) (protocol.QueueOrder, error)
	Schedule(ctx context.Context, namespace, id string) (protocol.ScheduleView, error)
	Schedules(ctx context.Context, namespace, after string, limit int) ([]protocol.ScheduleView, string, error)
	ScheduleHistory(
		ctx context.Context, namespace, id string, after int64, limit int,
	) ([]protocol.ScheduleEvent, bool, error)
	ScheduleHistoryBack(
		ctx context.Context, namespace, id string, before int64, limit int,
	) ([]protocol.ScheduleEvent, bool, error)
	ScheduleTimes(ctx context.Context, spec protocol.ScheduleSpec, count int) ([]history.Time, error)
	Audits(ctx context.Context, namespace string, limit int) ([]store.Audit, error)
}
