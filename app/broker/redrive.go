package broker

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A redrive reads the history of the failed run before its transaction. This is safe because a closed run gets no more
// events. The transaction checks that the run is still the current run of its workflow ID, and inserts the new run.

// Redrive continues a failed run as a new run of the same workflow ID, with the results of the completed activities.
func (b *Broker) Redrive(ctx context.Context, in protocol.RedriveRequest) (protocol.RedriveReceipt, error) {
	return b.commitRedrive(ctx, in, nil)
}

func (b *Broker) commitRedrive(
	ctx context.Context, in protocol.RedriveRequest, wrap transactionWrapper,
) (protocol.RedriveReceipt, error) {
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.RedriveReceipt{}, err
	}
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	r := redrive{in: in, hash: hashParts(in.RunID, "redrive")}
	r.receipt = store.ReceiptKey{Namespace: in.Namespace, WorkflowID: in.WorkflowID, RequestID: in.RequestID}
	release, err := b.prepareRedrive(ctx, &r)
	if err != nil {
		return protocol.RedriveReceipt{}, err
	}
	defer release()
	key := engine.WorkflowKey{Namespace: in.Namespace, ID: in.WorkflowID}
	needs := store.Keys{Workflows: []engine.WorkflowKey{key}, Current: true}
	if in.RequestID != "" {
		needs.Receipts = []store.ReceiptKey{r.receipt}
	}
	if r.plan != nil {
		for _, id := range r.plan.Sessions {
			needs.Sessions = append(needs.Sessions, engine.SessionKey{Namespace: in.Namespace, ID: id})
		}
	}
	out, err := transaction.Commit[protocol.RedriveReceipt](ctx, b.store, wrap.apply(store.Transaction{
		Needs: needs,
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			return decideOnce(rows, r.receipt, r.hash, now, (*protocol.RedriveReceipt).Retain, r.decide)
		},
	}))
	return out, b.countQuotaRefusal(in.Namespace, "redrive", err)
}

// redrive is one request to redrive a run.
type redrive struct {
	in      protocol.RedriveRequest
	receipt store.ReceiptKey // only with a request ID
	hash    string           // of the request
	plan    *engine.Redrive  // nil: refused says why
	refused error
}

// Redrives and resets of histories with more than largeCopy bytes are limited to maxLargeCopies at a time, because each
// holds its history in memory from the preparation until the commit.
const (
	largeCopy      = 1 << 20
	maxLargeCopies = 2
)

// prepareRedrive reads the run and its history. A refusal is stored in r, because a repeated request must get the
// response to the first one. The caller calls release after the commit.
func (b *Broker) prepareRedrive(ctx context.Context, r *redrive) (release func(), err error) {
	from, err := b.headOf(ctx, r.in.Target)
	if err != nil {
		return nil, err
	}
	if from.Status != protocol.RunFailed || from.Bytes > engine.MaxCopiedBytes {
		r.plan, r.refused = engine.PrepareRedrive(from, nil, "")
		return func() {}, nil
	}
	if release, err = b.reserveCopy(ctx, from); err != nil {
		return nil, err
	}
	events, err := b.copiedEvents(ctx, from, nil)
	if err != nil {
		release()
		return nil, err
	}
	r.plan, r.refused = engine.PrepareRedrive(from, events, ulid.Make().String())
	return release, nil
}

// reserveCopy waits until the history of a run may be read into memory. The caller calls release after the commit.
func (b *Broker) reserveCopy(ctx context.Context, from *engine.Head) (release func(), err error) {
	if err := b.delayLargePayload(ctx, from.Namespace, int(from.Bytes)); err != nil {
		return nil, err
	}
	if from.Bytes <= largeCopy {
		return func() {}, nil
	}
	select {
	case b.largeCopies <- struct{}{}:
		return func() { <-b.largeCopies }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// copiedEvents reads the history of a run. known are its first events, which were read before.
func (b *Broker) copiedEvents(
	ctx context.Context, from *engine.Head, known []history.Event,
) (events []history.Event, err error) {
	err = b.store.View(ctx, func(read store.Reader) error {
		events = known
		for int64(len(events)) < from.LastSeq {
			page, err := read.Events(
				ctx, from.ID, int64(len(events)), from.LastSeq, transaction.MaxPage, transaction.MaxPageSize,
			)
			if err != nil {
				return err
			}
			if len(page) == 0 { // retention deletes the run
				return transaction.RunNotFound(from.ID)
			}
			events = append(events, page...)
		}
		return nil
	})
	return events, err
}

func (r *redrive) decide(rows store.Rows, now time.Time) (store.Writes, error) {
	flow := rows.Workflow(engine.WorkflowKey{Namespace: r.in.Namespace, ID: r.in.WorkflowID})
	switch {
	case flow == nil:
		return store.Writes{}, transaction.WorkflowNotFound(r.in.WorkflowID)
	case flow.RunID != r.in.RunID:
		return store.Writes{}, notCurrentRun(r.in.Target, flow.RunID)
	case r.refused != nil:
		return store.Writes{}, r.refused
	}
	from := rows.Run(flow.RunID)
	if from == nil {
		return store.Writes{}, transaction.RunNotFound(flow.RunID)
	}
	if err := from.CheckRedrive(); err != nil {
		return store.Writes{}, err
	}
	if err := quotaRefusal(r.in.Namespace, rows.Quotas(r.in.Namespace).NewRun(0, 0)); err != nil {
		return store.Writes{}, err
	}
	d, resume, err := r.plan.Decide(r.in.Identity, func(id string) *engine.Session {
		return rows.Session(engine.SessionKey{Namespace: r.in.Namespace, ID: id})
	}, now)
	if err != nil {
		return store.Writes{}, err
	}
	next := *flow
	next.RunID, next.Runs = d.Next.ID, flow.Runs+1
	out := protocol.RedriveReceipt{
		CommandReceipt: protocol.CommandReceipt{
			Outcome: "redriven", WorkflowID: from.WorkflowID, RunID: d.Next.ID, WorkflowType: from.Type, Status: "accepted",
			CommandID: engine.StepID(d.Next.ID, 1),
		},
		ContinuedFrom: from.ID, ResumeSequence: resume,
	}
	return store.Writes{Runs: []engine.Decision{d}, Workflows: []engine.Workflow{next}, Answer: out}, nil
}
