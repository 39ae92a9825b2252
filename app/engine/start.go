package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A run begins in one of four ways: by a caller, as a child, by a schedule, or as the next run of a run that continued
// as new. This file decides for all four what the new run inherits, so that they do not differ.

// DefaultPriority is in the middle of 0 (first) and 9 (last).
const DefaultPriority = 5

// DecideStart creates a run: its first events and its first workflow task. Signals and updates that an earlier run
// passed on are recorded before the task is created, so that the code receives them in its first task.
func DecideStart(in Start, now time.Time) Decision {
	r := in.Request
	run := &Run{Head: Head{Namespace: r.Namespace}}
	st := &step{Run: run, now: history.At(now)}
	started := &history.WorkflowStarted{
		WorkflowType: r.WorkflowType, WorkflowID: r.WorkflowID, RunID: in.RunID, RunNumber: in.Number, TaskQueue: r.TaskQueue,
		Arguments: in.Arguments, BusinessKey: r.BusinessKey, Priority: DefaultPriority, FairnessKey: r.FairnessKey,
		FairnessWeight: r.FairnessWeight, Memo: r.Memo, SearchAttributes: r.SearchAttributes, Identity: r.Identity,
		RunTimeout: r.RunTimeout, ExecutionTimeout: r.ExecutionTimeout, BuildID: in.BuildID, Headers: r.Headers,
		Trace: r.Trace,
	}
	if !in.OldNames {
		started.NameRules = protocol.NameRules
	}
	if started.Arguments != "" {
		started.PayloadCodec = payload.Codec
	}
	if r.Priority != nil {
		started.Priority = *r.Priority
	}
	if r.RunTimeout > 0 {
		started.RunDeadline = plus(st.now, seconds(r.RunTimeout))
	}
	if r.ExecutionTimeout > 0 {
		started.ExecutionDeadline = plus(st.now, seconds(r.ExecutionTimeout))
	}
	// The execution timeout covers the whole chain of runs, so the new run inherits its deadline.
	if p := in.ContinuedFrom; p != nil {
		started.ContinuedFrom, started.ExecutionTimeout, started.ExecutionDeadline = p.ID, p.ExecutionTimeout,
			p.ExecutionDeadline
		started.NameRules = p.NameRules
		started.CarriedSignals = len(in.Carry)
		if in.Inbox != nil {
			started.CarriedSignals = int(elementCount(in.Inbox.Ranges))
		}
	}
	if !in.Deadline.IsZero() {
		started.ExecutionDeadline = in.Deadline
	}
	parent := in.Parent
	if in.ContinuedFrom != nil {
		parent = in.ContinuedFrom.Parent
		started.ChainRunID = in.ContinuedFrom.Chain
	}
	if in.Chain != "" {
		started.ChainRunID = in.Chain
	}
	if in.Reuses {
		started.ChainRunID = in.RunID
	}
	if parent != nil {
		started.ParentChainRunID = parent.Chain
		started.ParentRunID, started.ParentWorkflowID, started.ParentSequence = parent.RunID, parent.WorkflowID, parent.Seq
	}
	if r.StartDelay > 0 {
		started.DelayUntil = plus(st.now, seconds(r.StartDelay))
	}
	st.emit(started)
	run.StartKey = in.StartKey
	if p := in.ContinuedFrom; p != nil {
		run.StartKey = p.StartKey
		// A new run of the chain has the same requirements on workers.
		run.HasSessions, run.NeedsSessions = p.HasSessions, p.NeedsSessions
		run.Heeds = p.Heeds && p.Type == run.Type
		run.Inherited = in.Inherited
	}
	for _, s := range in.Carry {
		st.emit(signalReceived(s))
	}
	if in.Inbox != nil { // these events follow the first one; the store creates them from the inbox
		run.Inbox, run.LastSeq, st.d.Inherits = in.Inbox, in.Inbox.Last(), in.Inherits
	}
	for _, u := range in.Updates {
		st.emit(&history.UpdateAccepted{
			UpdateID: u.ID, UpdateName: u.Name, Arguments: u.Arguments, PayloadCodec: codecOf(u.Arguments),
			Headers: u.Headers, Trace: u.Trace, CarriedFrom: in.ContinuedFrom.ID,
		})
	}
	if in.First != nil {
		if err := in.First.decide(st); err != nil {
			panic("engine: a run that has just started refused a signal or an update: " + err.Error())
		}
	}
	st.wakeUp()
	if r.StartDelay > 0 {
		run.Task.State, run.Task.ReadyAt = Delayed, plus(st.now, seconds(r.StartDelay))
	}
	if in.Held != "" && run.Task != nil {
		run.Held, run.Task.State, run.Task.ReadyAt = in.Held, Delayed, history.Time{}
	}
	st.d.Next = run
	return st.d
}

// DerivedRunID returns the ID of a run that another run starts with its command seq. It begins with the time of the
// decision, so that IDs are ordered by time, and continues with a hash of the parent and seq, so that a decision that
// is repeated with the same time yields the same ID.
func DerivedRunID(parent string, seq int64, now time.Time) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(seq))
	sum := sha256.Sum256(append([]byte(parent), b[:]...))
	var id ulid.ULID
	_ = id.SetTime(uint64(now.UnixMilli()))
	_ = id.SetEntropy(sum[:10])
	return id.String()
}

// codecOf returns the payload_codec that is recorded with a blob: empty if the blob is empty.
func codecOf(blob string) string {
	if blob == "" {
		return ""
	}
	return payload.Codec
}
