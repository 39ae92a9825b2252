package view

import (
	"context"
	"errors"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Log lines are read after a sequence number, in pages. The dashboard polls while an activity runs, and lines that it
// already has must not be read again.

// logParts is the maximum number of log batches in one response.
const logParts = 1000

// ActivityLogs returns log lines of an activity attempt after position in.After only, so that clients can poll it.
func (v *View) ActivityLogs(ctx context.Context, in protocol.LogsQuery) (protocol.ActivityLogs, error) {
	id, seq, ok := engine.ParseStepID(in.TaskID)
	if !ok {
		return protocol.ActivityLogs{}, transaction.TaskNotFound(in.TaskID)
	}
	out := protocol.ActivityLogs{
		TaskID: in.TaskID, RunID: id, Attempts: []protocol.LogAttempt{}, Lines: []protocol.LogLine{}, Next: in.After,
	}
	err := v.store.View(ctx, func(r store.Reader) error {
		run, err := r.Step(ctx, id, seq)
		if err != nil {
			return err
		}
		// A run of another namespace is reported as not found, not as forbidden, so that run IDs reveal nothing.
		if run.Namespace != transaction.NamespaceOrDefault(in.Namespace) {
			return store.ErrNotFound
		}
		out.WorkflowID = run.WorkflowID
		sums, err := r.LogSums(ctx, id, seq)
		if err != nil {
			return err
		}
		a, open := run.Activities.Get(seq)
		out.Open = open
		runs := int64(0) // the delivery that runs
		if out.Open && (a.State == engine.LeasedState || a.State == engine.Pending) {
			if runs = a.Delivery; len(sums) == 0 || sums[len(sums)-1].Delivery != runs {
				sums = append(sums, store.LogSum{Delivery: runs})
			}
		}
		if len(sums) == 0 && !open {
			_, err = r.Completion(ctx, id, seq) // an error means that the activity does not exist
			return err
		}
		for _, s := range sums {
			out.Attempts = append(out.Attempts, protocol.LogAttempt{
				AttemptID: engine.AttemptID(id, seq, s.Delivery), Number: s.Delivery, Bytes: s.Size,
			})
			if in.Delivery == 0 && s == sums[len(sums)-1] {
				in.Delivery = s.Delivery
			}
		}
		if in.Delivery == 0 {
			return nil
		}
		out.AttemptID, out.Running = engine.AttemptID(id, seq, in.Delivery), in.Delivery == runs
		parts, err := r.Logs(ctx, store.AttemptKey{Run: id, Seq: seq, Delivery: in.Delivery}, in.After, logParts)
		for _, p := range parts {
			out.Lines, out.Next = append(out.Lines, p.Lines...), p.Part
		}
		out.More = len(parts) == logParts
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		err = transaction.TaskNotFound(in.TaskID)
	}
	return out, err
}
