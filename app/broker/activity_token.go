package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A caller outside of Sojourn reports the outcome of a pending attempt by the attempt's token, and may repeat the
// request if the response is lost. The app recognizes a repetition by the hash in the event that ended the attempt.

// ResolveActivity completes or fails an attempt of an activity by its token. A failure is subject to the retry
// policy of the activity. A request with the content of the accepted one gets the same response; any other request
// is refused once the attempt has ended.
func (b *Broker) ResolveActivity(
	ctx context.Context, in protocol.ActivityOutcomeRequest,
) (protocol.ActivityReceipt, error) {
	ns := transaction.NamespaceOrDefault(in.Namespace)
	run, seq, delivery, err := parseToken(in.Token)
	if err != nil {
		return protocol.ActivityReceipt{}, err
	}
	out, err := b.externalOutcome(ctx, ns, in.ExternalOutcome)
	if err != nil {
		return protocol.ActivityReceipt{}, err
	}
	name := ""
	update := transaction.UpdateRun(
		ns, run, store.Keys{Runs: []string{run}, Activities: []int64{seq}},
		engine.ResolveActivity{Seq: seq, Delivery: delivery, Result: out.result, Failure: out.failure, Hash: out.hash},
	)
	decide := update.Decide
	update.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
		if s := rows.Run(run); s != nil {
			a, _ := s.Activities.Get(seq)
			name = a.Type
		}
		return decide(rows, now)
	}
	o, err := transaction.Commit[transaction.Outcome](ctx, b.store, update)
	if err == nil {
		transaction.Recheck(b.dispatch, o.Freed)
		err = o.Refused
	}
	switch {
	case errors.Is(err, engine.ErrAttemptNotOpen):
		return b.endedAttempt(ctx, ns, in, out.hash)
	case err != nil:
		return protocol.ActivityReceipt{}, attemptError(in.Token, err)
	}
	b.opt.Metrics.countOutcome(protocol.KindActivity, o.Outcome)
	return protocol.ActivityReceipt{
		Token: in.Token, WorkflowID: o.Run.WorkflowID, RunID: run, ActivityType: name, Outcome: o.Outcome,
		Retry: o.NextTask != "",
	}, nil
}

// parseToken returns the attempt that a token names. The token must have the form in which the activity received it.
func parseToken(token string) (run string, seq, delivery int64, err error) {
	run, seq, delivery, ok := engine.ParseAttemptID(token)
	if !ok || engine.AttemptID(run, seq, delivery) != token {
		return "", 0, 0, attemptNotFound(token)
	}
	return run, seq, delivery, nil
}

// endedAttempt returns the first response if a request with this hash ended the attempt, and a refusal otherwise.
func (b *Broker) endedAttempt(
	ctx context.Context, ns string, in protocol.ActivityOutcomeRequest, hash string,
) (protocol.ActivityReceipt, error) {
	run, seq, delivery, _ := engine.ParseAttemptID(in.Token)
	out := protocol.ActivityReceipt{Token: in.Token, RunID: run}
	var ended history.Event
	err := b.store.View(ctx, func(r store.Reader) error {
		head, err := transaction.FindHead(ctx, r, protocol.Target{Namespace: ns, RunID: run})
		if err != nil {
			return err
		}
		out.WorkflowID = head.WorkflowID
		ended, err = r.AttemptEnd(ctx, run, seq, delivery)
		return err
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return protocol.ActivityReceipt{}, attemptError(in.Token, err)
	}
	stored := ""
	switch d := ended.Data.(type) {
	case *history.ActivityCompleted:
		out.Outcome, out.ActivityType, stored = "completed", d.ActivityType, d.BodyHash
	case *history.ActivityFailed:
		out.Outcome, out.ActivityType, stored = "failed", d.ActivityType, d.BodyHash
	case *history.ActivityTimedOut: // a timeout that a caller reported has a hash
		out.Outcome, out.ActivityType, stored = "failed", d.ActivityType, d.BodyHash
	case *history.ActivityRetryScheduled:
		out.Outcome, out.ActivityType, out.Retry, stored = "failed", d.ActivityType, true, d.BodyHash
	case *history.ActivityCancelled:
		out.Outcome, out.ActivityType = "cancelled", d.ActivityType
		// The event has no hash: a caller reports a cancellation with its reason only.
		if f := in.Failure; f != nil && f.Cancelled && f.Cleaned().Message == d.Reason {
			return out, nil
		}
	}
	switch {
	case stored == "":
		_, cancelled := ended.Data.(*history.ActivityCancelled)
		return protocol.ActivityReceipt{}, attemptClosed(in.Token).With("cancel_requested", cancelled)
	case stored != hash:
		return protocol.ActivityReceipt{}, protocol.Refuse(
			protocol.ReasonConflictingCompletion, "attempt %s was already reported with another outcome", in.Token,
		).With("activity_token", in.Token).With("outcome", out.Outcome)
	}
	return out, nil
}

// HeartbeatActivity records a heartbeat of an attempt by its token. It restarts the heartbeat timeout and stores the
// details; the response says whether the attempt should stop.
func (b *Broker) HeartbeatActivity(
	ctx context.Context, in protocol.ActivityHeartbeatRequest,
) (protocol.ActivityHeartbeatReceipt, error) {
	ns := transaction.NamespaceOrDefault(in.Namespace)
	run, seq, delivery, err := parseToken(in.Token)
	if err != nil {
		return protocol.ActivityHeartbeatReceipt{}, err
	}
	progress, err := in.Join()
	if err != nil {
		return protocol.ActivityHeartbeatReceipt{}, err
	}
	update := transaction.UpdateRun(
		ns, run, store.Keys{Runs: []string{run}, Activities: []int64{seq}},
		engine.BeatActivity{Seq: seq, Delivery: delivery, Progress: progress},
	)
	decide := update.Decide
	update.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
		w, err := decide(rows, now)
		if err != nil {
			return w, err
		}
		next := w.Runs[0].Next
		a, _ := next.Activities.Get(seq)
		w.Answer = protocol.ActivityHeartbeatReceipt{
			Token: in.Token, WorkflowID: next.WorkflowID, RunID: run, ActivityType: a.Type, LastHeartbeatAt: a.HeartbeatAt,
			CancelRequested: a.Cancel,
		}
		return w, nil
	}
	out, err := transaction.Commit[protocol.ActivityHeartbeatReceipt](ctx, b.store, update)
	if errors.Is(err, engine.ErrAttemptNotOpen) {
		// The response to an attempt that its workflow cancelled differs from that to an attempt that timed out.
		_, err = b.endedAttempt(ctx, ns, protocol.ActivityOutcomeRequest{Token: in.Token}, "")
		if protocol.ReasonOf(err) == protocol.ReasonConflictingCompletion {
			err = attemptClosed(in.Token)
		}
	}
	return out, attemptError(in.Token, err)
}

// attemptError returns the error of a request with a token. A run that does not exist in the namespace is reported like
// an attempt that does not exist.
func attemptError(token string, err error) error {
	switch protocol.ReasonOf(err) {
	case protocol.ReasonTaskNotFound, protocol.ReasonRunNotFound:
		return attemptNotFound(token)
	}
	return err
}

func attemptClosed(token string) *protocol.Error {
	return protocol.Refuse(
		protocol.ReasonStaleAttempt, "attempt %s has ended; an attempt that follows it has another token", token,
	).With("activity_token", token)
}

func attemptNotFound(token string) error {
	return protocol.Refuse(
		protocol.ReasonTaskNotFound,
		"attempt %s not found; the token is RUN_ID-SEQUENCE-DELIVERY, as the activity code received it", token,
	).With("activity_token", token)
}
