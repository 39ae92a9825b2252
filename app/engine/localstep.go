package engine

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A local step is an activity that the worker runs inside a workflow task. It has no task, no lease and no session of
// its own: the delivery number of the workflow task fences it. The worker reports it with one command, which becomes
// the events of an activity that was scheduled and has ended.

// OutcomeRecorded is the outcome of a request that recorded commands of a workflow task which stays leased.
const OutcomeRecorded = "recorded"

// recordLocal records a local step and its outcome. It does not wake the run, since the code that ran the step knows
// the outcome.
func (st *step) recordLocal(c protocol.Command, seq int64) {
	st.emit(&history.ActivityScheduled{
		Sequence: seq, ExecutionID: StepID(st.ID, seq), ActivityType: c.ActivityType, Arguments: c.Arguments.Blob,
		PayloadCodec: codecOf(c.Arguments.Blob), StartToClose: int64(c.StartToClose),
		ScheduleToClose: int64(c.ScheduleToClose), Heartbeat: int64(c.Heartbeat), ExecutionMode: history.ModeLocal,
	})
	number := max(1, len(c.Attempts))
	a := history.Attempt{
		AttemptID: AttemptID(st.ID, seq, int64(number)), Number: number, Worker: st.holder.Owner,
		Release: st.holder.Release, ExecutionMode: history.ModeLocal,
		StartedAt: localStart(c.Attempts, st.holder.LeasedAt, st.now),
	}
	if c.Outcome == protocol.LocalCompleted {
		st.emit(&history.ActivityCompleted{
			Sequence: seq, ExecutionID: StepID(st.ID, seq), ActivityType: c.ActivityType, Result: c.Result.Blob,
			PayloadCodec: codecOf(c.Result.Blob), Attempt: a,
		})
		return
	}
	f := history.Failure{
		ID: st.failureID(), Category: "activity", Message: c.Message, ExceptionType: c.ExceptionType,
		ExceptionCls: c.ExceptionClass, NonRetryable: c.NonRetryable, Exception: c.Exception,
	}
	if len(f.Exception) == 0 {
		f.Exception = sdkException(protocol.Failure{
			Type: c.ExceptionType, Class: c.ExceptionClass, Message: c.Message, NonRetryable: c.NonRetryable,
		})
	}
	switch c.Outcome {
	case protocol.LocalTimedOut:
		kind := c.TimeoutKind
		if kind == "" {
			kind = "start_to_close"
		}
		f.Category = "timeout"
		st.emit(&history.ActivityTimedOut{
			Sequence: seq, ExecutionID: StepID(st.ID, seq), ActivityType: c.ActivityType, TimeoutKind: kind, Attempt: a,
			Failure: f,
		})
	case protocol.LocalCancelled:
		st.emit(&history.ActivityCancelled{
			Sequence: seq, ExecutionID: StepID(st.ID, seq), ActivityType: c.ActivityType, Reason: c.Message, Attempt: a,
		})
	default:
		st.emit(&history.ActivityFailed{
			Sequence: seq, ExecutionID: StepID(st.ID, seq), ActivityType: c.ActivityType, Attempt: a, Failure: f,
		})
	}
}

// localStart returns when the last attempt of a local step started: as long before the recording as the attempt took,
// but not before the workflow task was leased. It returns zero if the worker reports no duration.
func localStart(attempts []json.RawMessage, leased, recorded history.Time) history.Time {
	var last struct {
		Milliseconds *float64 `json:"duration_ms"`
	}
	if len(attempts) == 0 || json.Unmarshal(attempts[len(attempts)-1], &last) != nil || last.Milliseconds == nil {
		return history.Time{}
	}
	longest := float64(recorded.Sub(leased.Time)) / float64(time.Millisecond)
	ran := min(max(*last.Milliseconds, 0), max(longest, 0))
	return history.At(recorded.Add(-time.Duration(ran * float64(time.Millisecond))))
}

// wasRecorded reports whether the commands of a report that keeps its task leased are already recorded, because the
// report is a retry. It refuses commands that do not continue the command sequence of the run, and commands that only a
// completion may contain.
func (in CompleteTask) wasRecorded(st *step) (bool, error) {
	r := st.Task.Recorded
	if r != nil && r.Delivery == in.Delivery && r.From == in.RecordFrom && r.Hash == in.Hash {
		st.d.Answer.Outcome, st.d.Answer.Recorded = OutcomeRecorded, true
		return true, nil
	}
	if next := st.CommandSeq + 1; in.RecordFrom != next {
		return false, protocol.Refuse(
			protocol.ReasonConflictingCompletion, "the next command of run %s has sequence %d, not %d", st.ID, next, in.RecordFrom,
		)
	}
	if n := len(in.Commands); n == 0 || in.Commands[n-1].Type != protocol.RecordLocalActivity {
		return false, protocol.Invalid("commands", "must end with %s if record_from is set", protocol.RecordLocalActivity)
	}
	if i := slices.IndexFunc(in.Commands, func(c protocol.Command) bool { return c.Type.Terminal() }); i >= 0 {
		return false, protocol.Invalid("commands", "must not contain %s if record_from is set", in.Commands[i].Type)
	}
	return false, nil
}
