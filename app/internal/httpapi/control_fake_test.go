package httpapi_test

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (f *fake) HasNamespace(context.Context, string) error { return nil }

func (f *fake) Namespace(_ context.Context, name string) (protocol.NamespaceView, error) {
	return protocol.NamespaceView{Name: name}, f.saw(name)
}

func (f *fake) Namespaces(context.Context, func(string) bool) ([]protocol.NamespaceView, error) {
	return nil, f.saw("namespaces")
}

func (f *fake) CreateNamespace(_ context.Context, in protocol.NamespaceRequest) (protocol.NamespaceView, error) {
	return protocol.NamespaceView{Name: in.Name}, f.saw(in)
}

func (f *fake) UpdateNamespace(_ context.Context, in protocol.NamespaceRequest) (protocol.NamespaceView, error) {
	return protocol.NamespaceView{Name: in.Name}, f.saw(in)
}

func (f *fake) DeleteNamespace(_ context.Context, name string) (protocol.NamespaceRemoval, error) {
	return protocol.NamespaceRemoval{Name: name}, f.saw(name)
}

func (f *fake) CreateSchedule(_ context.Context, in protocol.ScheduleRequest) (protocol.ScheduleReceipt, error) {
	return protocol.ScheduleReceipt{ScheduleID: in.ID}, f.saw(in)
}

func (f *fake) UpdateSchedule(_ context.Context, in protocol.ScheduleRequest) (protocol.ScheduleReceipt, error) {
	return protocol.ScheduleReceipt{ScheduleID: in.ID}, f.saw(in)
}

func (f *fake) PauseSchedule(_ context.Context, _, id, note string) (protocol.ScheduleReceipt, error) {
	return protocol.ScheduleReceipt{ScheduleID: id}, f.saw([]string{id, note})
}

func (f *fake) ResumeSchedule(_ context.Context, _, id, note string) (protocol.ScheduleReceipt, error) {
	return protocol.ScheduleReceipt{ScheduleID: id}, f.saw([]string{id, note})
}

func (f *fake) TriggerSchedule(_ context.Context, _, id, note string) (protocol.ScheduleReceipt, error) {
	return protocol.ScheduleReceipt{ScheduleID: id}, f.saw([]string{id, note})
}

func (f *fake) DeleteSchedule(_ context.Context, _, id string) (protocol.ScheduleReceipt, error) {
	return protocol.ScheduleReceipt{ScheduleID: id}, f.saw(id)
}

func (f *fake) BackfillSchedule(
	_ context.Context, _, id string, from, to time.Time, _ string,
) (protocol.ScheduleReceipt, error) {
	return protocol.ScheduleReceipt{ScheduleID: id}, f.saw([]time.Time{from, to})
}

func (f *fake) SetPool(_ context.Context, in protocol.PoolRequest) (protocol.PoolView, error) {
	return protocol.PoolView{Name: in.Name}, f.saw(in)
}

func (f *fake) DeletePool(_ context.Context, in protocol.PoolRequest) (protocol.PoolDeleted, error) {
	return protocol.PoolDeleted{Name: in.Name}, f.saw(in.Name)
}

func (f *fake) Pools(_ context.Context, namespace string) (protocol.PoolList, error) {
	return protocol.PoolList{Namespace: namespace, Pools: []protocol.PoolView{}}, f.saw(namespace)
}

func (f *fake) Pool(_ context.Context, _, name string) (protocol.PoolView, error) {
	return protocol.PoolView{Name: name}, f.saw(name)
}

func (f *fake) Schedule(_ context.Context, _, id string) (protocol.ScheduleView, error) {
	return protocol.ScheduleView{ScheduleID: id}, f.saw(id)
}

func (f *fake) Schedules(_ context.Context, in protocol.ScheduleListRequest) ([]protocol.ScheduleView, string, error) {
	return nil, "", f.saw(in.PageToken)
}

func (f *fake) ScheduleHistory(
	_ context.Context, _, id string, _ int64, _ int,
) ([]protocol.ScheduleEvent, bool, error) {
	return nil, false, f.saw(id)
}

func (f *fake) ScheduleHistoryBack(
	_ context.Context, _, id string, before int64, _ int,
) ([]protocol.ScheduleEvent, bool, error) {
	return nil, false, f.saw([]any{id, before})
}

func (f *fake) ScheduleTimes(_ context.Context, spec protocol.ScheduleSpec, count int) ([]history.Time, error) {
	return nil, f.saw([]any{spec, count})
}

func (f *fake) Retention(_ context.Context, ns string) (protocol.RetentionStatus, error) {
	return protocol.RetentionStatus{}, f.saw(ns)
}

func (f *fake) RetentionPass(_ context.Context, in protocol.RetentionRequest) (protocol.RetentionPass, error) {
	return protocol.RetentionPass{}, f.saw(in.Namespace)
}

func (f *fake) SearchAttributes(_ context.Context, ns string) (protocol.SearchAttributes, error) {
	return protocol.SearchAttributes{}, f.saw(ns)
}

func (f *fake) CreateSearchAttribute(
	_ context.Context, _ string, in protocol.SearchAttribute,
) (protocol.SearchAttribute, error) {
	return in, f.saw(in)
}

func (f *fake) DeleteSearchAttribute(_ context.Context, _, name string) (protocol.SearchAttribute, error) {
	return protocol.SearchAttribute{Name: name}, f.saw(name)
}

func (f *fake) Archive(_ context.Context, in protocol.EndRequest) (protocol.CommandReceipt, error) {
	return f.end("archive", in)
}

func (f *fake) Redrive(_ context.Context, in protocol.RedriveRequest) (protocol.RedriveReceipt, error) {
	r, err := f.end("redrive", protocol.EndRequest{Target: in.Target, RequestID: in.RequestID})
	return protocol.RedriveReceipt{CommandReceipt: r, ContinuedFrom: in.RunID, ResumeSequence: 1}, err
}

func (f *fake) Reset(_ context.Context, in protocol.ResetRequest) (protocol.ResetReceipt, error) {
	r, err := f.end("reset", protocol.EndRequest{Target: in.Target, RequestID: in.RequestID})
	return protocol.ResetReceipt{CommandReceipt: r, ContinuedFrom: in.RunID, Event: in.Event}, err
}

func (f *fake) DeleteRun(_ context.Context, in protocol.RunDeletion) (protocol.DeletedRun, error) {
	return protocol.DeletedRun{WorkflowID: in.WorkflowID, RunID: in.RunID, Outcome: "deleted"}, f.saw(in)
}

func (f *fake) ResolveActivity(
	_ context.Context, in protocol.ActivityOutcomeRequest,
) (protocol.ActivityReceipt, error) {
	return protocol.ActivityReceipt{Token: in.Token, Outcome: "completed"}, f.saw(in)
}

func (f *fake) HeartbeatActivity(
	_ context.Context, in protocol.ActivityHeartbeatRequest,
) (protocol.ActivityHeartbeatReceipt, error) {
	return protocol.ActivityHeartbeatReceipt{Token: in.Token}, f.saw(in)
}

func (f *fake) ResolveAwakeable(
	_ context.Context, in protocol.AwakeableRequest,
) (protocol.AwakeableReceipt, error) {
	return protocol.AwakeableReceipt{AwakeableID: in.AwakeableID, Outcome: "completed"}, f.saw(in)
}

func (f *fake) Debug(_ context.Context, in protocol.Target) (protocol.DebugView, error) {
	return protocol.DebugView{WorkflowID: in.WorkflowID, RunID: in.RunID, Diagnosis: "waiting"}, f.saw(in)
}

func (f *fake) ActivityLogs(_ context.Context, in protocol.LogsQuery) (protocol.ActivityLogs, error) {
	return protocol.ActivityLogs{TaskID: in.TaskID}, f.err
}

func (f *fake) TaskWhy(_ context.Context, _, id string) (protocol.TaskWhy, error) {
	return protocol.TaskWhy{TaskID: id}, f.saw(id)
}

func (f *fake) Follow(_ context.Context, t protocol.Target, after int64, to view.Follower) (bool, error) {
	if err := f.saw(after); err != nil {
		return false, err
	}
	return true, to.Begin(protocol.RunView{WorkflowID: t.WorkflowID, RunID: t.RunID})
}

func (f *fake) Import(_ context.Context, in protocol.ImportRequest) (protocol.ImportResponse, error) {
	return protocol.ImportResponse{}, f.saw(in)
}

func (f *fake) RepairStatus(_ context.Context, ns string) (protocol.RepairStatus, error) {
	return protocol.RepairStatus{}, f.saw(ns)
}

func (f *fake) RepairPass(_ context.Context, in protocol.RepairRequest) (protocol.SystemPass, error) {
	return protocol.SystemPass{}, f.saw(in)
}

func (f *fake) ActivityTimeouts(_ context.Context, ns string) (protocol.TimeoutStatus, error) {
	return protocol.TimeoutStatus{}, f.saw(ns)
}

func (f *fake) ActivityTimeoutPass(_ context.Context, in protocol.TimeoutRequest) (protocol.SystemPass, error) {
	return protocol.SystemPass{}, f.saw(in)
}

func (f *fake) CreateBatchJob(_ context.Context, in protocol.BatchJobRequest) (protocol.BatchJobView, error) {
	return protocol.BatchJobView{State: protocol.BatchCollecting, Action: in.Action}, f.saw(in)
}

func (f *fake) StopBatchJob(_ context.Context, in protocol.BatchStopRequest) (protocol.BatchJobView, error) {
	return protocol.BatchJobView{JobID: in.JobID, State: protocol.BatchStopped, Action: "cancel"}, f.saw(in)
}

func (f *fake) BatchJob(_ context.Context, _, id string) (protocol.BatchJobView, error) {
	return protocol.BatchJobView{JobID: id, State: protocol.BatchRunning, Action: "cancel"}, f.saw(id)
}

func (f *fake) BatchJobs(_ context.Context, in protocol.BatchJobList) (protocol.BatchJobPage, error) {
	return protocol.BatchJobPage{BatchJobs: []protocol.BatchJobView{}}, f.saw(in)
}

func (f *fake) BatchResults(_ context.Context, in protocol.BatchResultList) (protocol.BatchResultPage, error) {
	return protocol.BatchResultPage{JobID: in.JobID, Results: []protocol.BatchResult{}}, f.saw(in)
}

func (f *fake) PreviewBatch(_ context.Context, in protocol.BatchPreviewRequest) (protocol.BatchPreview, error) {
	return protocol.BatchPreview{Query: in.Query, Action: in.Action}, f.saw(in)
}
