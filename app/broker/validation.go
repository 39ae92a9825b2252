package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/querytask"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A rejected update must leave no trace in history. So the verdict of its validator must exist before the transaction
// that accepts the update, and this transaction checks that the verdict applies to the run that was validated.

// validationDeadline is the maximum duration of an update validation, including the wait for a worker.
const validationDeadline = 10 * time.Second

// acceptUpdate accepts an update. If the live workers declare a validator for the update, a worker must validate it
// first, and only an approved update is added to history. An update that was already accepted under its request ID is
// not validated again. A verdict applies to the run that the worker saw. New events of the run do not invalidate it,
// since more may follow before the update is handled; a new run does.
func (b *Broker) acceptUpdate(
	ctx context.Context, in protocol.UpdateRequest, value string, allowed func(*engine.Run) error,
) (protocol.CommandReceipt, error) {
	learned, approved := !b.opt.Shared, "" // approved is the run for which the validator accepted the update
	// The loop ends: each round returns, loads the workers (once), or gets a verdict for another run of the chain.
	for {
		declared := b.workers.Declarations(transaction.NamespaceOrDefault(in.Namespace))
		may := func(run *engine.Run) error {
			if allowed != nil {
				if err := allowed(run); err != nil {
					return err
				}
			}
			validated, err := checkUpdate(declared, &run.Head, in.UpdateName, learned)
			if err == nil && validated && approved != run.ID {
				return &notValidated{run.Head, true}
			}
			return err
		}
		r, err := b.command(ctx, externalCommand{
			target: in.Target, requestID: in.RequestID, quotas: true, may: may,
			what: "update " + in.UpdateName + " " + comparableBlob(value),
			input: engine.AcceptUpdate{
				Name: in.UpdateName, Value: value, RequestID: in.RequestID, Identity: in.Identity, Headers: in.Headers,
				Trace: in.Trace,
			},
		})
		var u *notValidated
		switch {
		case !errors.As(err, &u):
			return r, b.countQuotaRefusal(transaction.NamespaceOrDefault(in.Namespace), "update", err)
		// The workers are known and declare a validator: run it now, outside of any transaction.
		case u.known:
			err = b.validateByWorker(ctx, &u.head, in.UpdateName, value, in.Headers)
			approved = u.head.ID
		default:
			err = b.loadWorkers(ctx, u.head.Namespace, u.head.Queue)
			learned = true
		}
		if err != nil {
			return protocol.CommandReceipt{}, err
		}
	}
}

// checkUpdate refuses an update that the type of a run does not declare, and reports whether the type has a validator
// for it. If this app knows no worker of the type, the error is *notValidated, unless learned: the workers were read
// from the store.
func checkUpdate(
	declared engine.Declarations, run *engine.Head, name string, learned bool,
) (validated bool, err error) {
	if !run.Status.Open() || !run.HasCode() { // the decision refuses the update
		return false, nil
	}
	_, known := declared[run.Type]
	switch {
	case declared.Lacks(run.Type, "updates", name):
		return false, protocol.Refuse(protocol.ReasonUnknownUpdate, "workflow type %s has no update %s", run.Type, name).
			With("outcome", "rejected_unknown_update").With("update_name", name)
	case !known && !learned:
		return false, &notValidated{head: *run}
	}
	return declared.Has(run.Type, "update_validators", name), nil
}

// notValidated stops an update that has not been validated yet, or whose workers this app does not know.
type notValidated struct {
	head  engine.Head
	known bool
}

func (*notValidated) Error() string { return "the update was not judged yet" }

// validateByWorker sends an update to a worker for validation. It returns nil if the worker accepts the update.
func (b *Broker) validateByWorker(
	ctx context.Context, h *engine.Head, name, value string, headers history.Headers,
) error {
	unavailable := func(format string, args ...any) error {
		return protocol.Refuse(protocol.ReasonValidatorWorker, format, args...).With("update_name", name).
			With("retryable", true)
	}
	q := querytask.NewTask(protocol.KindValidation, h, name, value, headers)
	ok, err := b.hasQueryWorker(ctx, &q)
	if err != nil {
		return err
	}
	noWorker := func() error {
		return unavailable("no living worker of queue %s validates update %s of %s", h.Queue, name, h.Type)
	}
	if !ok {
		return noWorker()
	}
	reply, err := b.questions.Run(ctx, q, validationDeadline)
	switch {
	case errors.Is(err, querytask.ErrNoWorker):
		return noWorker()
	case errors.Is(err, store.ErrFull):
		return protocol.Refuse(
			protocol.ReasonThrottled,
			"%d updates already wait for validation in queue %s, which is the maximum; try again later",
			protocol.MaxPendingQuestions, h.Queue,
		)
	case errors.Is(err, querytask.ErrDraining):
		return unavailable("the app is draining")
	case errors.Is(err, querytask.ErrUnclaimed):
		return protocol.Refuse(
			protocol.ReasonValidationUnclaimed, "no worker leased the validation of update %s in time", name,
		).With("retryable", true)
	case errors.Is(err, querytask.ErrUnanswered):
		return protocol.Refuse(
			protocol.ReasonValidationTimeout, "no worker finished the validation of update %s in time%s", name,
			silentWorkers(err),
		).With("retryable", true)
	case err != nil:
		return err
	case reply.Failure == nil:
		return nil
	}
	f := reply.Failure
	// The validator failed without a verdict, so the caller may retry the update.
	if f.Reason != "" && f.Reason != string(protocol.ReasonUpdateRejected) {
		return protocol.Refuse(protocol.ReasonValidatorFailed, "update %s could not be validated: %s", name, f.Message).
			With("update_name", name).With("failure", f).With("retryable", true)
	}
	refusal := protocol.Refuse(protocol.ReasonUpdateRejected, "update %s was rejected: %s", name, f.Message).
		With("update_name", name).With("update_status", "rejected").With("outcome", "rejected_invalid_arguments").With(
		"failure", f,
	)
	if len(f.Errors) > 0 {
		refusal.With("validation_errors", f.Errors)
	}
	return refusal
}

// validationTask returns the task for the worker: the update with the whole history, or with its first page.
func (b *Broker) validationTask(ctx context.Context, q *store.Question, paged bool) (*protocol.ValidationTask, error) {
	events, next, args, err := b.questions.Snapshot(ctx, q, paged)
	return &protocol.ValidationTask{
		Kind: protocol.KindValidation, TaskID: q.ID, Attempt: q.Attempt, WorkflowID: q.WorkflowID, RunID: q.RunID,
		Namespace: q.Namespace, WorkflowType: q.Type,
		UpdateName: q.Name, PayloadCodec: payload.Codec, WorkflowArguments: args,
		UpdateArguments: payload.Payload{Blob: q.Arguments}, Headers: q.Headers, Events: events,
		TotalEvents: q.LastSeq, NextPageToken: next, RunStatus: q.RunStatus, TaskQueue: q.Queue, LeaseOwner: q.Owner,
		LeaseExpiresAt: history.At(q.Until),
	}, err
}
