package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A reset reads the history of the run before its transaction. If the run gets events in between, the transaction
// changes nothing, and the reset reads these events and tries again.

// resetTries is the maximum number of times that a reset is decided.
const resetTries = 20

// Reset continues a run from the end of one of its workflow tasks as a new run of the same workflow ID.
func (b *Broker) Reset(ctx context.Context, in protocol.ResetRequest) (protocol.ResetReceipt, error) {
	return b.commitReset(ctx, in, nil)
}

func (b *Broker) commitReset(
	ctx context.Context, in protocol.ResetRequest, wrap transactionWrapper,
) (protocol.ResetReceipt, error) {
	if err := in.Check(); err != nil {
		return protocol.ResetReceipt{}, err
	}
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	r := reset{in: in, runID: ulid.Make().String(), wrap: wrap}
	r.hash = hashParts(in.RunID, "reset", fmt.Sprint(in.Event, in.To, r.noReapply()), in.Reason)
	r.receipt = store.ReceiptKey{Namespace: in.Namespace, WorkflowID: in.WorkflowID, RequestID: in.RequestID}
	from, err := b.headOf(ctx, in.Target)
	if err != nil {
		return protocol.ResetReceipt{}, err
	}
	copies := from.HasCode() && from.Bytes <= engine.MaxCopiedBytes
	if copies {
		release, err := b.reserveCopy(ctx, from)
		if err != nil {
			return protocol.ResetReceipt{}, err
		}
		defer release()
	}
	var events []history.Event
	for range resetTries {
		if copies {
			if events, err = b.copiedEvents(ctx, from, events); err != nil {
				return protocol.ResetReceipt{}, err
			}
		}
		if err := b.prepareReset(ctx, &r, from, events); err != nil {
			return protocol.ResetReceipt{}, err
		}
		out, err := r.commit(ctx, b.store)
		if !errors.Is(err, engine.ErrResetBehind) && !errors.Is(err, engine.ErrChildEnded) {
			return out, b.countQuotaRefusal(in.Namespace, "reset", err)
		}
		if from, err = b.headOf(ctx, in.Target); err != nil {
			return out, err
		}
	}
	return protocol.ResetReceipt{}, fmt.Errorf(
		"run %s got new events in each of %d tries to reset it: %w", in.RunID, resetTries, store.ErrUnavailable,
	)
}

// reset is one request to reset a run.
type reset struct {
	in      protocol.ResetRequest
	receipt store.ReceiptKey // only with a request ID
	hash    string           // of the request
	runID   string           // ID of the new run
	wrap    transactionWrapper
	plan    *engine.Reset // nil: refused says why
	refused error
}

func (r *reset) noReapply() bool { return r.in.Reapply != nil && !*r.in.Reapply }

// prepareReset prepares the reset with the events of the run, and reads the ends of children that the transaction
// needs. A refusal is stored in r, because a repeated request must get the response to the first one.
func (b *Broker) prepareReset(ctx context.Context, r *reset, from *engine.Head, events []history.Event) error {
	point := engine.ResetPoint{Event: r.in.Event, To: r.in.To}
	r.plan, r.refused = engine.PrepareReset(from, events, point, r.noReapply(), r.runID, r.in.Reason)
	var children []string
	if r.refused == nil {
		children = r.plan.Children
	}
	for _, id := range children {
		end, ended, err := b.childEnd(ctx, engine.WorkflowKey{Namespace: r.in.Namespace, ID: id})
		if err != nil {
			return err
		}
		if ended {
			if r.plan.Ends == nil {
				r.plan.Ends = map[string]engine.Message{}
			}
			r.plan.Ends[id] = end
		}
	}
	return nil
}

func (r *reset) commit(ctx context.Context, s store.Store) (protocol.ResetReceipt, error) {
	key := engine.WorkflowKey{Namespace: r.in.Namespace, ID: r.in.WorkflowID}
	needs := store.Keys{Workflows: []engine.WorkflowKey{key}, Current: true, AllTasks: true, Chain: true}
	if r.in.RequestID != "" {
		needs.Receipts = []store.ReceiptKey{r.receipt}
	}
	if r.plan != nil {
		for _, id := range r.plan.Sessions {
			needs.Sessions = append(needs.Sessions, engine.SessionKey{Namespace: r.in.Namespace, ID: id})
		}
		for _, id := range r.plan.Children {
			needs.Workflows = append(needs.Workflows, engine.WorkflowKey{Namespace: r.in.Namespace, ID: id})
		}
	}
	return transaction.Commit[protocol.ResetReceipt](ctx, s, r.wrap.apply(store.Transaction{
		Needs: needs,
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			return decideOnce(rows, r.receipt, r.hash, now, (*protocol.ResetReceipt).Retain, r.decide)
		},
	}))
}

func (r *reset) decide(rows store.Rows, now time.Time) (store.Writes, error) {
	flow := rows.Workflow(engine.WorkflowKey{Namespace: r.in.Namespace, ID: r.in.WorkflowID})
	switch {
	case flow == nil:
		return store.Writes{}, transaction.WorkflowNotFound(r.in.WorkflowID)
	case flow.RunID != r.in.RunID:
		return store.Writes{}, notCurrentRun(r.in.Target, flow.RunID)
	}
	run := rows.Run(flow.RunID)
	if run == nil {
		return store.Writes{}, transaction.RunNotFound(flow.RunID)
	}
	if r.refused != nil {
		return store.Writes{}, r.refused
	}
	ended := int64(0)
	if run.Status.Open() {
		ended = 1
	}
	if err := quotaRefusal(r.in.Namespace, rows.Quotas(r.in.Namespace).NewRun(0, ended)); err != nil {
		return store.Writes{}, err
	}
	w, err := transaction.Reset(rows, flow, run, r.plan, r.in.Identity, now)
	if err != nil {
		return store.Writes{}, err
	}
	out := protocol.ResetReceipt{
		CommandReceipt: protocol.CommandReceipt{
			Outcome: "reset", WorkflowID: run.WorkflowID, RunID: r.runID, WorkflowType: run.Type, Status: "accepted",
			CommandID: engine.StepID(r.runID, 1),
		},
		ContinuedFrom: run.ID, Event: r.plan.Point,
	}
	w.Answer = out
	return w, nil
}
