package httpapi

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The routes depend on small interfaces, one per subject, so that a reader of a route or the author of a fake sees what
// it can call. Methods of the broker and reads have separate interfaces. The interfaces of schedules, namespaces,
// attributes and retention are next to their routes.

// Starts are the verbs that start runs.
type Starts interface {
	Start(context.Context, protocol.StartRequest) (protocol.StartResponse, error)
	StartActivity(context.Context, protocol.ActivityRequest) (protocol.ActivityResponse, error)
	SignalWithStart(context.Context, protocol.SignalWithStartRequest) (protocol.SignalWithStartResponse, error)
	UpdateWithStart(context.Context, protocol.UpdateWithStartRequest) (protocol.UpdateWithStartResponse, error)
}

// Runs are the verbs of existing workflow runs.
type Runs interface {
	Signal(context.Context, protocol.SignalRequest) (protocol.CommandReceipt, error)
	Update(context.Context, protocol.UpdateRequest) (protocol.UpdateResponse, error)
	Query(context.Context, protocol.QueryRequest) (protocol.QueryResponse, error)
	Cancel(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	Terminate(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	RequestCancellation(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	Repair(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	Archive(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	DeleteRun(context.Context, protocol.RunDeletion) (protocol.DeletedRun, error)
	Import(context.Context, protocol.ImportRequest) (protocol.ImportResponse, error)
}

// Continuations are the verbs that continue a run as a new run with a copy of its history.
type Continuations interface {
	Redrive(context.Context, protocol.RedriveRequest) (protocol.RedriveReceipt, error)
	Reset(context.Context, protocol.ResetRequest) (protocol.ResetReceipt, error)
}

// Outcomes are the verbs by which callers outside of Sojourn report outcomes.
type Outcomes interface {
	ResolveActivity(context.Context, protocol.ActivityOutcomeRequest) (protocol.ActivityReceipt, error)
	HeartbeatActivity(context.Context, protocol.ActivityHeartbeatRequest) (protocol.ActivityHeartbeatReceipt, error)
	ResolveAwakeable(context.Context, protocol.AwakeableRequest) (protocol.AwakeableReceipt, error)
}

// WorkerOperations are operators' commands for workers.
type WorkerOperations interface {
	RemoveWorker(ctx context.Context, namespace, id string) (protocol.DeregisterResponse, error)
	OperateFleet(context.Context, protocol.FleetRequest) (protocol.FleetDrainState, error)
	SetFleet(context.Context, protocol.FleetSettingsRequest) (protocol.FleetSettingsState, error)
}

// Operations are operators' commands for sessions, queues, deployments, and quarantined runs or overdue work.
type Operations interface {
	OperateSession(context.Context, protocol.SessionOperation) (protocol.SessionView, error)
	DecideBuild(context.Context, protocol.BuildRequest) (protocol.BuildState, error)
	DecideDeployment(ctx context.Context, name, verb, identity string) (protocol.DeploymentState, error)
	Limit(context.Context, protocol.LimitRequest) (protocol.LimitState, error)
	Route(context.Context, protocol.RouteRequest) (protocol.RouteState, error)
	RepairPass(context.Context, protocol.RepairRequest) (protocol.SystemPass, error)
	ActivityTimeoutPass(context.Context, protocol.TimeoutRequest) (protocol.SystemPass, error)
}

// Process is the app process itself.
type Process interface {
	Release() string
	Ready(context.Context) error
	Drained() <-chan struct{} // closed when the app begins to drain
	Audit(context.Context, store.Audit) error
}

// RunViews reads runs and their wait reasons, which depend on the live workers.
type RunViews interface {
	DescribeValues(context.Context, protocol.Target, protocol.Values) (protocol.RunView, error)
	Result(ctx context.Context, t protocol.Target, most time.Duration, full bool) (protocol.RunView, error)
	// WatchStart begins to wait for the result of a run before its start.
	WatchStart(namespace, workflow string) *view.ResultWatch
	List(context.Context, protocol.ListRequest) (protocol.ListResponse, error)
	Runs(context.Context, protocol.Target) ([]protocol.RunView, error)
	History(context.Context, protocol.HistoryQuery) (protocol.HistoryPage, error)
	ReserveHistory(context.Context, protocol.Target) (context.Context, error)
	// Outlines returns a page of events without whole values, and the token of the next page.
	Outlines(context.Context, protocol.HistoryQuery, protocol.Values) ([]history.Outline, *string, error)
	Follow(ctx context.Context, t protocol.Target, after int64, f view.Follower) (closed bool, err error)
	Debug(context.Context, protocol.Target) (protocol.DebugView, error)
	TaskWhy(ctx context.Context, namespace, task string) (protocol.TaskWhy, error)
	ActivityLogs(ctx context.Context, in protocol.LogsQuery) (protocol.ActivityLogs, error)
}

// FleetViews reads workers and their sessions.
type FleetViews interface {
	Workers(ctx context.Context, namespace, queue, status string) ([]protocol.WorkerView, error)
	Worker(ctx context.Context, namespace, id string) (protocol.WorkerView, error)
	FleetSettings(ctx context.Context, namespace string) (protocol.FleetSettingsState, error)
	FleetDrains(ctx context.Context, namespace string) (protocol.FleetDrains, error)
	Sessions(context.Context, protocol.SessionList) (protocol.SessionPage, error)
	Session(ctx context.Context, namespace, id string) (protocol.SessionView, error)
	SessionTimeline(context.Context, protocol.SessionTimeline) (protocol.SessionTimelinePage, error)
	SessionAttempts(context.Context, protocol.SessionAttempts) (protocol.SessionAttemptPage, error)
}

// QueueViews reads task queues and the builds that serve them.
type QueueViews interface {
	Queues(context.Context, protocol.QueueList) (protocol.QueuePage, error)
	Queue(ctx context.Context, namespace, name string) (protocol.QueueState, error)
	Order(ctx context.Context, namespace, queue string) (protocol.QueueOrder, error)
	QueueWaiting(ctx context.Context, namespace, queue string) ([]protocol.TaskWhy, error)
	Limits(ctx context.Context, namespace, queue string) (protocol.LimitState, error)
	Routed(ctx context.Context, namespace, queue string) (protocol.RouteState, error)
	BuildIDs(ctx context.Context, namespace, queue string) (protocol.BuildRollout, error)
	Deployments(ctx context.Context, namespace, queue string) (protocol.DeploymentList, error)
	Deployment(ctx context.Context, name string) (protocol.Deployment, error)
}

// ScheduleViews reads schedules.
type ScheduleViews interface {
	Schedule(ctx context.Context, namespace, id string) (protocol.ScheduleView, error)
	Schedules(context.Context, protocol.ScheduleListRequest) ([]protocol.ScheduleView, string, error)
	ScheduleHistory(
		ctx context.Context, namespace, id string, after int64, limit int,
	) ([]protocol.ScheduleEvent, bool, error)
	ScheduleHistoryBack(
		ctx context.Context, namespace, id string, before int64, limit int,
	) ([]protocol.ScheduleEvent, bool, error)
	ScheduleTimes(ctx context.Context, spec protocol.ScheduleSpec, count int) ([]history.Time, error)
}

// SystemViews reads summaries of a namespace.
type SystemViews interface {
	Overview(ctx context.Context, namespace string) (protocol.Overview, error)
	RunCounts(ctx context.Context, namespace string) (protocol.RunCounts, error)
	Find(context.Context, protocol.FindRequest) (protocol.FindResponse, error)
	ExactOverview(ctx context.Context, namespace string) (protocol.Overview, error)
	RepairStatus(ctx context.Context, namespace string) (protocol.RepairStatus, error)
	ActivityTimeouts(ctx context.Context, namespace string) (protocol.TimeoutStatus, error)
	Audits(ctx context.Context, namespace string, common bool, limit int) ([]store.Audit, error)
}
