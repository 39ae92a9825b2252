package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A start with an unused workflow ID costs one commit and no read. Only if the ID is in use, the start is decided on
// the existing rows. Two kinds of rows are loaded only if the decision asks for them: the response that was stored when
// an earlier chain of the ID was replaced, if the same request may have started that chain; and the first run of the
// current chain, if the chain has continued as new.

// startReads says which optional rows a start must load, because its decision asked for them.
type startReads struct {
	receipts bool   // the stored response for the Idempotency-Key
	first    string // ID of the first run of the current chain; empty: do not load it
}

// missingRows is the error of a decision that needs rows which were not loaded.
type missingRows struct{ reads startReads }

func (m *missingRows) Error() string { return "a start needs rows of earlier runs of its workflow ID" }

// startTries is the maximum number of times that a start is decided. After three, only other starts that use the
// workflow ID at the same time can be the cause.
const startTries = 10

// commitStart commits a start. It repeats the commit with the rows that its decision asks for.
func commitStart[T any](commit func(startReads) (T, error)) (out T, err error) {
	var reads startReads
	for range startTries {
		out, err = commit(reads)
		var missing *missingRows
		if !errors.As(err, &missing) {
			return out, err
		}
		reads = missing.reads
	}
	return out, fmt.Errorf(
		"other starts used the workflow ID in each of %d tries: %w", startTries, store.ErrUnavailable,
	)
}

// startKeyOf returns the Idempotency-Key of a start with a hash of the request; nil without a key. A repeated request
// with the same key must be the same request, except for its policies. kind is the kind of run; empty for a workflow.
func startKeyOf(in *protocol.StartRequest, kind, run string) *engine.StartKey {
	if in.IdempotencyKey == "" {
		return nil
	}
	hash := hashParts(kind, in.WorkflowType, in.TaskQueue, comparableInput(in.Input))
	return &engine.StartKey{Key: in.IdempotencyKey, Run: run, Hash: hash}
}

// startNeeds returns the rows that a start may need if its workflow ID is in use.
func startNeeds(in *protocol.StartRequest, k *engine.StartKey, reads startReads) store.Keys {
	ends := in.ConflictPolicy == protocol.ConflictTerminateExisting
	needs := store.Keys{
		Workflows: []engine.WorkflowKey{{Namespace: in.Namespace, ID: in.WorkflowID}}, Current: true,
		AllTasks: ends, Chain: ends, Bound: ends,
	}
	if reads.receipts {
		needs.Receipts = []store.ReceiptKey{startReceipt(in, k)}
	}
	if reads.first != "" {
		needs.Runs = []string{reads.first}
	}
	return needs
}

func startReceipt(in *protocol.StartRequest, k *engine.StartKey) store.ReceiptKey {
	return store.ReceiptKey{Namespace: in.Namespace, WorkflowID: in.WorkflowID, RequestID: k.Receipt()}
}

// startWrites are the writes of a start. reuses is true if the run begins a new chain under an ID that is in use.
type startWrites struct {
	store.Writes
	reuses bool
}

// add adds the run of the start, to which the workflow ID will refer.
func (w *startWrites) add(d engine.Decision) {
	h := &d.Next.Head
	w.Runs = append(w.Runs, d)
	w.Workflows = append(w.Workflows, engine.Workflow{
		Namespace: h.Namespace, ID: h.WorkflowID, RunID: h.ID, Runs: 1,
	})
}

// decideStart decides what a start does. If the start returns an existing run, it returns the response; otherwise it
// returns the writes that precede the new run, such as the termination of the open run. check makes the checks that
// apply only to new runs; a quota may refuse the new run, too.
func decideStart(
	rows store.Rows, in *protocol.StartRequest, k *engine.StartKey, reads startReads, check func() error, now time.Time,
) (w startWrites, existing *protocol.StartResponse, err error) {
	quotas, ended := rows.Quotas(in.Namespace), int64(0)
	if flow := rows.Workflow(engine.WorkflowKey{Namespace: in.Namespace, ID: in.WorkflowID}); flow != nil {
		run := rows.Run(flow.RunID)
		if k != nil {
			if existing, err = repeatedStart(rows, in, k, run, reads); err != nil || existing != nil {
				return w, existing, err
			}
		}
		kind, err := engine.DecideExisting(in, flow, run)
		if err != nil {
			return w, nil, err
		}
		switch kind {
		case engine.ReturnRun:
			a := startResponse(*in, &run.Head, "returned_existing_active")
			return w, &a, nil
		case engine.TerminateRun:
			if w.Writes, err = transaction.Replace(rows, run, in.Identity, now); err != nil {
				return w, nil, err
			}
			ended = 1
		}
		w.reuses = true
		if err := w.keepResponse(rows, in, run, reads, now); err != nil {
			return w, nil, err
		}
	}
	if err := check(); err != nil {
		return w, nil, err
	}
	return w, nil, quotaRefusal(in.Namespace, quotas.NewRun(0, ended))
}

// keepResponse stores the response to the start of the chain that is being replaced, if that start had an
// Idempotency-Key. The store deletes it with the first run of the chain; if that run was already deleted, nothing is
// stored.
func (w *startWrites) keepResponse(
	rows store.Rows, in *protocol.StartRequest, run *engine.Run, reads startReads, now time.Time,
) error {
	if run == nil || run.StartKey == nil {
		return nil
	}
	exists, err := firstRunExists(rows, run, reads)
	if err != nil || !exists {
		return err
	}
	r, err := startReceiptOf(in, run, now)
	w.Receipts = append(w.Receipts, r)
	return err
}

// startReceiptOf returns the stored response to the start that began the chain of run.
func startReceiptOf(in *protocol.StartRequest, run *engine.Run, now time.Time) (store.Receipt, error) {
	return newReceipt(startReceipt(in, run.StartKey), run.StartKey.Hash, keyedResponse(in, &run.Head), now)
}

// errFirstRunNotLoaded is the error of a transaction that lacks the first run of a chain which a child or a firing
// replaces, because that chain began after firstRuns had read the workflow ID.
var errFirstRunNotLoaded = fmt.Errorf(
	"another start used the workflow ID of a child or firing meanwhile: %w", store.ErrUnavailable,
)

// firstRuns returns the first run of the current chain of each workflow ID, if the start of the chain had an
// Idempotency-Key. A transaction that may begin a new chain under the ID for a child or a firing must load this run, so
// that keepResponses can check that it still exists.
func (b *Broker) firstRuns(ctx context.Context, keys []engine.WorkflowKey) (first []string, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err = b.store.View(ctx, func(r store.Reader) error {
		for _, k := range keys {
			var run *engine.Run
			flow, err := r.Workflow(ctx, k)
			if err == nil {
				run, err = r.Step(ctx, flow.RunID, 0)
			}
			switch {
			case errors.Is(err, store.ErrNotFound): // the ID is unused, or its newest run was deleted
			case err != nil:
				return err
			case run.StartKey != nil:
				first = append(first, run.StartKey.Run)
			}
		}
		return nil
	})
	return first, err
}

// keepResponses stores the responses to the starts whose chains the new runs of a transaction replace; see
// keepResponse. first are the first runs that the transaction has loaded.
func keepResponses(rows store.Rows, w *store.Writes, first []string, now time.Time) error {
	for i := range w.Runs {
		h := &w.Runs[i].Next.Head
		if w.Runs[i].After != 0 || h.Number != 1 || h.Chain != h.ID { // not the first run of a later chain
			continue
		}
		flow := rows.Workflow(engine.WorkflowKey{Namespace: h.Namespace, ID: h.WorkflowID})
		if flow == nil {
			continue
		}
		run := rows.Run(flow.RunID)
		switch {
		case run == nil || run.StartKey == nil:
			continue
		case !slices.Contains(first, run.StartKey.Run):
			return errFirstRunNotLoaded
		case rows.Run(run.StartKey.Run) == nil: // it was deleted, so nothing would delete the response
			continue
		}
		in := protocol.StartRequest{Namespace: h.Namespace, WorkflowID: h.WorkflowID}
		r, err := startReceiptOf(&in, run, now)
		if err != nil {
			return err
		}
		w.Receipts = append(w.Receipts, r)
	}
	return nil
}

// keepingResponses adds keepResponses to the decision of a transaction.
func keepingResponses(
	decide func(store.Rows, time.Time) (store.Writes, error), first []string,
) func(store.Rows, time.Time) (store.Writes, error) {
	return func(rows store.Rows, now time.Time) (store.Writes, error) {
		w, err := decide(rows, now)
		if err != nil {
			return w, err
		}
		return w, keepResponses(rows, &w, first, now)
	}
}

// firstRunExists reports whether the first run of the chain of run still exists. Retention and deletions may remove it
// before the later runs of the chain.
func firstRunExists(rows store.Rows, run *engine.Run, reads startReads) (bool, error) {
	first := run.StartKey.Run
	if first == run.ID {
		return true, nil
	}
	if reads.first != first {
		reads.first = first
		return false, &missingRows{reads}
	}
	return rows.Run(first) != nil, nil
}

// keyedResponse returns the response to the start that began the chain of a run.
func keyedResponse(in *protocol.StartRequest, run *engine.Head) protocol.StartResponse {
	first := *run
	if first.ID = run.StartKey.Run; first.ID != run.ID { // the chain has continued as new since
		first.Status = protocol.RunContinued
	}
	return startResponse(*in, &first, "started_new")
}

// repeatedStart returns the response to an earlier start with the same Idempotency-Key; nil if there was none. If the
// run that the start created was deleted, the response names the current run of its chain.
func repeatedStart(
	rows store.Rows, in *protocol.StartRequest, k *engine.StartKey, run *engine.Run, reads startReads,
) (*protocol.StartResponse, error) {
	conflict := func(hash string) error {
		if hash == k.Hash {
			return nil
		}
		return protocol.Refuse(
			protocol.ReasonRequestConflict, "Idempotency-Key %s was already used for a different start of workflow %s", k.Key,
			in.WorkflowID,
		)
	}
	if run != nil && run.StartKey != nil && run.StartKey.Key == k.Key {
		exists, err := firstRunExists(rows, run, reads)
		if err != nil {
			return nil, err
		}
		a := startResponse(*in, &run.Head, "started_new")
		if exists {
			a = keyedResponse(in, &run.Head)
		}
		a.Repeated = true
		return &a, conflict(run.StartKey.Hash)
	}
	if run != nil && run.Chain == "" {
		return nil, nil // this is the first chain of the ID, so there was no earlier start
	}
	if !reads.receipts {
		reads.receipts = true
		return nil, &missingRows{reads}
	}
	r := rows.Receipt(startReceipt(in, k))
	if r == nil {
		return nil, nil
	}
	var a protocol.StartResponse
	if err := json.Unmarshal(r.Body, &a); err != nil {
		return nil, err
	}
	a.New, a.Repeated = true, true
	return &a, conflict(r.Hash)
}

// existingResponse returns the response of a start that writes nothing, or nil if the start failed.
func existingResponse(existing *protocol.StartResponse) store.Writes {
	if existing == nil {
		return store.Writes{}
	}
	return store.Writes{Answer: *existing}
}
