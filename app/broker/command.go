package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A caller that did not receive the response may send a command again. Therefore the transaction of a command also
// stores its request ID, a hash of the request and the receipt. A repeated request gets the same receipt; a different
// request with the same request ID is rejected.

// Cancel closes a run immediately; its code does not run again.
func (b *Broker) Cancel(ctx context.Context, in protocol.EndRequest) (protocol.CommandReceipt, error) {
	return b.commitCancel(ctx, in, nil)
}

func (b *Broker) commitCancel(
	ctx context.Context, in protocol.EndRequest, wrap transactionWrapper,
) (protocol.CommandReceipt, error) {
	return b.commandWithReason(ctx, in, "cancel", nil, wrap, func(reason string) engine.Input {
		return engine.EndRun{Reason: reason, Identity: in.Identity, Trace: in.Trace}
	})
}

// Terminate closes a run immediately. It has the same effect as Cancel, but history records a termination.
func (b *Broker) Terminate(ctx context.Context, in protocol.EndRequest) (protocol.CommandReceipt, error) {
	return b.commitTerminate(ctx, in, nil)
}

func (b *Broker) commitTerminate(
	ctx context.Context, in protocol.EndRequest, wrap transactionWrapper,
) (protocol.CommandReceipt, error) {
	return b.commandWithReason(ctx, in, "terminate", nil, wrap, func(reason string) engine.Input {
		return engine.EndRun{Terminate: true, Reason: reason, Identity: in.Identity}
	})
}

// CapCancellation is the capability of a worker whose workflows support cancellation requests. Other workers could not
// replay the event of such a request.
const CapCancellation = "cancellation_requests"

// RequestCancellation cancels the root context of the workflow's code, which may clean up. It is refused unless a
// registered worker of the run's queue declares CapCancellation for the run's type.
func (b *Broker) RequestCancellation(ctx context.Context, in protocol.EndRequest) (protocol.CommandReceipt, error) {
	return b.commitRequestCancellation(ctx, in, nil)
}

func (b *Broker) commitRequestCancellation(
	ctx context.Context, in protocol.EndRequest, wrap transactionWrapper,
) (protocol.CommandReceipt, error) {
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	understood := false
	err := b.store.View(ctx, func(r store.Reader) error {
		run, err := transaction.FindHead(ctx, r, in.Target)
		if err != nil {
			return err
		}
		workers, err := r.Workers(ctx, store.WorkerQuery{Namespace: in.Namespace, Queue: run.Queue, Limit: 1000})
		understood = slices.ContainsFunc(workers, func(w engine.Worker) bool {
			return w.DeregisteredAt.IsZero() && w.Runs(protocol.KindWorkflow, run.Type) &&
				slices.Contains(w.Capabilities, CapCancellation)
		})
		return err
	})
	if err != nil {
		return protocol.CommandReceipt{}, err
	}
	may := func(run *engine.Run) error {
		if understood || !run.Status.Open() || !run.HasCode() {
			return nil
		}
		return protocol.Refuse(protocol.ReasonCancelNotSupported,
			"no registered worker of queue %s declares that workflow type %s handles cancellation requests; "+
				"/cancel ends the run immediately",
			run.Queue, run.Type)
	}
	return b.commandWithReason(ctx, in, "request-cancellation", may, wrap, func(reason string) engine.Input {
		return engine.RequestCancellation{Reason: reason, Identity: in.Identity, Trace: in.Trace}
	})
}

// Repair ends the quarantine of a run.
func (b *Broker) Repair(ctx context.Context, in protocol.EndRequest) (protocol.CommandReceipt, error) {
	return b.commitRepair(ctx, in, nil)
}

func (b *Broker) commitRepair(
	ctx context.Context, in protocol.EndRequest, wrap transactionWrapper,
) (protocol.CommandReceipt, error) {
	return b.commandWithReason(
		ctx, in, "repair", nil, wrap, func(string) engine.Input { return engine.Repair{Identity: in.Identity} },
	)
}

// Archive marks a closed run as archived.
func (b *Broker) Archive(ctx context.Context, in protocol.EndRequest) (protocol.CommandReceipt, error) {
	return b.commitArchive(ctx, in, nil)
}

func (b *Broker) commitArchive(
	ctx context.Context, in protocol.EndRequest, wrap transactionWrapper,
) (protocol.CommandReceipt, error) {
	return b.commandWithReason(
		ctx, in, "archive", nil, wrap, func(reason string) engine.Input { return engine.ArchiveRun{Reason: reason} },
	)
}

// commandWithReason sends a run a command whose only argument is a reason. The hash of the request covers command and
// reason: a repeated request ID with another reason is a conflict.
func (b *Broker) commandWithReason(
	ctx context.Context, in protocol.EndRequest, verb string, may func(*engine.Run) error,
	wrap transactionWrapper, input func(reason string) engine.Input,
) (protocol.CommandReceipt, error) {
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.CommandReceipt{}, err
	}
	reason := strings.TrimSpace(in.Reason)
	return b.command(ctx, externalCommand{
		target: in.Target, requestID: in.RequestID, what: verb + " " + reason, closes: true, input: input(reason), may: may,
		wrap: wrap,
	})
}

// externalCommand is an external command on a workflow's current run.
type externalCommand struct {
	target    protocol.Target
	requestID string       // empty: the request is not recognized if it is repeated
	what      string       // all arguments of the command; a repeated request ID with other arguments is refused
	closes    bool         // the command may end everything that is open in the run
	input     engine.Input // the input of the engine's decision
	quotas    bool         // the command adds data, so a quota of the namespace may refuse it
	// may is a condition on the run, which a repeated request skips; nil: none.
	may  func(*engine.Run) error
	fill func(*protocol.CommandReceipt) // completes the receipt; nil: nothing to add
	wrap transactionWrapper             // extends the transaction of the command
}

// command executes an external command, once per request ID.
func (b *Broker) command(ctx context.Context, o externalCommand) (protocol.CommandReceipt, error) {
	t, request := o.target, o.requestID
	t.Namespace = transaction.NamespaceOrDefault(t.Namespace)
	key := engine.WorkflowKey{Namespace: t.Namespace, ID: t.WorkflowID}
	needs := store.Keys{
		Workflows: []engine.WorkflowKey{key}, Current: true, AllTasks: o.closes, Chain: o.closes, Bound: o.closes,
	}
	rk := store.ReceiptKey{Namespace: t.Namespace, WorkflowID: t.WorkflowID, RequestID: request}
	// The hash covers the run ID of the request: the same request ID with another run is a different request.
	sum := sha256.Sum256([]byte(t.RunID + " " + o.what))
	hash := hex.EncodeToString(sum[:])
	if request != "" {
		needs.Receipts = []store.ReceiptKey{rk}
	}
	first := func(rows store.Rows, now time.Time) (store.Writes, error) {
		flow := rows.Workflow(key)
		if flow == nil {
			return store.Writes{}, transaction.WorkflowNotFound(t.WorkflowID)
		}
		run := rows.Run(flow.RunID)
		if run == nil {
			return store.Writes{}, transaction.RunNotFound(flow.RunID)
		}
		if t.RunID != "" && t.RunID != flow.RunID {
			return store.Writes{}, notCurrentRun(t, flow.RunID)
		}
		// Check the locked rows, since the condition must hold for the current run.
		if o.may != nil {
			if err := o.may(run); err != nil {
				return store.Writes{}, err
			}
		}
		if o.quotas && run.Status.Open() {
			if err := quotaRefusal(t.Namespace, rows.Quotas(t.Namespace).NewBytes()); err != nil {
				return store.Writes{}, err
			}
		}
		w, d, err := transaction.Decide(rows, run, o.input, now)
		if err != nil {
			return store.Writes{}, err
		}
		receipt := protocol.CommandReceipt{
			Outcome: d.Answer.Outcome, WorkflowID: run.WorkflowID, RunID: run.ID, WorkflowType: run.Type, Status: "accepted",
			CommandID: engine.StepID(run.ID, run.LastSeq+1), UpdateID: d.Answer.Update,
		}
		if o.fill != nil {
			o.fill(&receipt)
		}
		w.Answer = receipt
		return w, nil
	}
	out, err := transaction.Commit[protocol.CommandReceipt](ctx, b.store, o.wrap.apply(store.Transaction{
		Needs: needs,
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			return decideOnce(rows, rk, hash, now, (*protocol.CommandReceipt).Retain, first)
		},
	}))
	if protocol.ReasonOf(err) == protocol.ReasonHistoricalRun {
		err = b.refuseUnknownRun(ctx, t, err)
	}
	return out, err
}

// refuseUnknownRun returns "not found" instead of refusal if the workflow never had the requested run. The transaction
// that made the refusal saw only the current run.
func (b *Broker) refuseUnknownRun(ctx context.Context, t protocol.Target, refusal error) error {
	if _, err := b.headOf(ctx, t); protocol.ReasonOf(err) == protocol.ReasonRunNotFound {
		return err
	}
	return refusal
}

// headOf reads the run of a target.
func (b *Broker) headOf(ctx context.Context, t protocol.Target) (head *engine.Head, err error) {
	err = b.store.View(ctx, func(r store.Reader) error {
		head, err = transaction.FindHead(ctx, r, t)
		return err
	})
	return head, err
}

func notCurrentRun(t protocol.Target, current string) error {
	return protocol.Refuse(
		protocol.ReasonHistoricalRun, "run %s is not the current run of %s", t.RunID, t.WorkflowID,
	).With("current_run_id", current).With("target_scope", "run")
}

// decideOnce returns the writes of first and stores their answer as the response to a request, or returns the stored
// response if the request is a repetition. Without a request ID it recognizes no repetition. retain marks a response as
// the stored one.
func decideOnce[R any](
	rows store.Rows, key store.ReceiptKey, hash string, now time.Time, retain func(*R),
	first func(store.Rows, time.Time) (store.Writes, error),
) (store.Writes, error) {
	if key.RequestID == "" {
		return first(rows, now)
	}
	// Check the receipt before the run: the first request may have closed the run, and its repetition must get the
	// receipt instead of an error that the run is closed.
	if had := rows.Receipt(key); had != nil {
		var response R
		if err := readReceipt(had, hash, &response); err != nil {
			return store.Writes{}, err
		}
		retain(&response)
		return store.Writes{Answer: response}, nil
	}
	w, err := first(rows, now)
	if err != nil {
		return store.Writes{}, err
	}
	// Commit the receipt with the change: a receipt without the change would report a change that did not happen, and a
	// change without its receipt would be repeated.
	stored, err := newReceipt(key, hash, w.Answer, now)
	if err != nil {
		return store.Writes{}, err
	}
	w.Receipts = append(w.Receipts, stored)
	return w, nil
}

// newReceipt returns the stored response to a request with a request ID or an Idempotency-Key.
func newReceipt(key store.ReceiptKey, hash string, response any, now time.Time) (store.Receipt, error) {
	body, err := json.Marshal(response)
	return store.Receipt{ReceiptKey: key, Hash: hash, Body: body, At: history.At(now)}, err
}

// readReceipt decodes the response to the first request with this request ID into response, or returns an error if the
// repeated request differs from it.
func readReceipt(r *store.Receipt, hash string, response any) error {
	if r.Hash != hash {
		return protocol.Refuse(
			protocol.ReasonRequestConflict, "request ID %s was already used for a different request", r.RequestID,
		)
	}
	return json.Unmarshal(r.Body, response)
}
