package view

import (
	"context"
	"encoding/json"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Lists need only the row of a run. A description also reads its first event, for the input, and its last event, for
// the result. These are not copied into the row, because rows are written at every step and rarely read.

// kindOf returns the kind of a run as the API shows it.
func kindOf(h *engine.Head) string {
	if h.Kind == history.KindActivity {
		return protocol.RunOfActivity
	}
	return protocol.RunOfWorkflow
}

// Describe returns one run with everything open in it and its wait reason. Without a run ID it is the current run of
// the workflow ID; without a workflow ID the run ID selects it.
func (v *View) Describe(ctx context.Context, t protocol.Target) (protocol.RunView, error) {
	return v.described(ctx, t, wholeEnds{})
}

func (v *View) described(ctx context.Context, t protocol.Target, read ends) (protocol.RunView, error) {
	t.Namespace = transaction.NamespaceOrDefault(t.Namespace)
	now, err := v.store.Now(ctx)
	if err != nil {
		return protocol.RunView{}, err
	}
	var shown protocol.RunView
	err = v.store.View(ctx, func(r store.Reader) error {
		run, flow, err := transaction.Find(ctx, r, t)
		if err != nil {
			return err
		}
		shown = runView(&run.Head)
		shown.Current = flow.RunID == run.ID
		if shown.RunCount, err = runCount(ctx, r, &run.Head, flow); err != nil {
			return err
		}
		// Only the first event contains the input: rows contain no payloads.
		if err := read.first(ctx, r, run, &shown); err != nil {
			return err
		}
		if run.Status.Open() {
			var wait *protocol.Wait
			if shown.Pending, wait, err = v.pending(ctx, r, run, now); err != nil {
				return err
			}
			setWait(&shown, wait)
			shown.Actions = &protocol.RunActions{
				Signal: run.HasCode(), Query: run.HasCode(), Update: run.HasCode(), Cancel: true, Terminate: true,
				Repair: shown.Quarantined != nil,
			}
			return nil
		}
		if run.Activities.Len() > 0 { // abandoned activities
			if shown.Pending, _, err = v.pending(ctx, r, run, now); err != nil {
				return err
			}
		}
		shown.Actions = &protocol.RunActions{Query: run.HasCode(), Archive: shown.Current && run.ArchivedAt.IsZero()}
		return read.last(ctx, r, run, &shown)
	})
	return shown, err
}

// runView converts the row of a run to the form in which lists show it.
func runView(h *engine.Head) protocol.RunView {
	status, bucket, closed := h.Public()
	v := protocol.RunView{
		WorkflowID: h.WorkflowID, RunID: h.ID, Namespace: h.Namespace, Kind: kindOf(h), WorkflowType: h.Type,
		BusinessKey: protocol.OrNil(h.BusinessKey),
		Status:      status, StatusBucket: bucket, Terminal: !h.Status.Open(), ClosedReason: protocol.OrNil(closed),
		TaskQueue: h.Queue,
		RunNumber: h.Number, ChainRunID: protocol.OrNil(h.Chain),
		Compatibility: protocol.OrNil(h.BuildID),
		PayloadCodec:  payload.Codec, ExecutionTimeout: orNoInt(h.ExecutionTimeout), RunTimeout: orNoInt(h.RunTimeout),
		ExecutionDeadline: h.ExecutionDeadline, RunDeadline: h.RunDeadline, StartedAt: h.StartedAt, ClosedAt: h.ClosedAt,
		LastProgressAt: h.ProgressAt, Memo: payload.Plain(h.Memo), SearchAttributes: h.SearchAttributes,
		HistoryLength: h.LastSeq, Error: protocol.OrNil(h.Failure), ErrorType: h.FailureType,
		ArchivedAt: h.ArchivedAt, ArchiveReason: h.ArchiveReason,
	}
	if h.Parent != nil {
		v.ParentWorkflowID, v.ParentRunID = &h.Parent.WorkflowID, &h.Parent.RunID
	}
	if h.Task != nil && h.Task.State == engine.Quarantined {
		v.Quarantined = &h.Task.Problem
	}
	if s := h.Stuck(); s != nil {
		v.Stuck = &protocol.RunStuck{Since: s.Since, Reason: s.Reason, Message: s.Message}
	}
	return v
}

func orNoInt(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// Envelope returns a blob in both forms: as stored, and decoded.
func Envelope(blob string) (*payload.Payload, json.RawMessage) {
	p := payload.Payload{Blob: blob}
	decoded, err := payload.ToJSON(p)
	if err != nil {
		return &p, nil
	}
	return &p, decoded
}

// outcome adds how a closed run ended, from its last event.
func outcome(last *history.Event, v *protocol.RunView) (err error) {
	switch d := last.Data.(type) {
	case *history.WorkflowCompleted:
		if d.Output != "" {
			v.OutputEnvelope, v.Output = Envelope(d.Output)
		}
	case *history.WorkflowFailed:
		v.Failure, err = json.Marshal(d)
	case *history.WorkflowCancelled:
		v.Failure, err = json.Marshal(d)
	case *history.WorkflowTerminated:
		v.Failure, err = json.Marshal(d)
	case *history.WorkflowTimedOut:
		v.Reason = d.TimeoutKind
		v.Failure, err = json.Marshal(d)
	}
	return err
}
