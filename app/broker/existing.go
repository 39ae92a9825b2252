package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A start whose workflow ID is free costs one commit and no read. Only if the ID is in use, the start is decided on the
// existing rows; and only if an earlier chain of the ID may have been started by the same request, it reads the
// response that was stored when that chain was replaced.

// errEarlierChain means that an earlier chain of the workflow ID may have the Idempotency-Key of the request: the start
// is decided again with the stored responses.
var errEarlierChain = errors.New("an earlier chain of the workflow ID may have the key of the request")

// commitStart commits a start; the second attempt also loads the stored response to the Idempotency-Key.
func commitStart[T any](k *engine.StartKey, commit func(receipts bool) (T, error)) (T, error) {
	out, err := commit(false)
	if k != nil && errors.Is(err, errEarlierChain) {
		return commit(true)
	}
	return out, err
}

// startKeyOf returns the Idempotency-Key of a start with a hash of the request; nil without a key. A repeated request
// with the same key must be the same request, whatever its policies. kind is that of the run; empty for a workflow.
func startKeyOf(in *protocol.StartRequest, kind, run string) *engine.StartKey {
	if in.IdempotencyKey == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(kind + "\n" + in.WorkflowType + "\n" + in.TaskQueue + "\n" + string(in.Input)))
	return &engine.StartKey{Key: in.IdempotencyKey, Run: run, Hash: hex.EncodeToString(sum[:])}
}

// startNeeds returns the rows that a start may need if its workflow ID is in use.
func startNeeds(in *protocol.StartRequest, k *engine.StartKey, receipts bool) store.Keys {
	ends := in.ConflictPolicy == protocol.ConflictTerminateExisting
	needs := store.Keys{
		Workflows: []engine.WorkflowKey{{Namespace: in.Namespace, ID: in.WorkflowID}}, Current: true,
		AllTasks: ends, Chain: ends, Bound: ends,
	}
	if receipts {
		needs.Receipts = []store.ReceiptKey{startReceipt(in, k)}
	}
	return needs
}

func startReceipt(in *protocol.StartRequest, k *engine.StartKey) store.ReceiptKey {
	return store.ReceiptKey{Namespace: in.Namespace, WorkflowID: in.WorkflowID, RequestID: k.Receipt()}
}

// startWrites are the writes of a start. reuses reports that the run begins a new chain under an ID that is in use.
type startWrites struct {
	store.Writes
	reuses bool
}

// add adds the run of the start, which becomes the run that the workflow ID addresses.
func (w *startWrites) add(d engine.Decision) {
	h := &d.Next.Head
	w.Runs = append(w.Runs, d)
	w.Workflows = append(w.Workflows, engine.Workflow{
		Namespace: h.Namespace, ID: h.WorkflowID, RunID: h.ID, Runs: 1,
	})
}

// decideStart decides what a start does: it returns the response if the start returns an existing run, else the writes
// that precede the new run, among them the termination of the open run. check checks what applies to new runs only; a
// quota may refuse the new run as well.
func decideStart(
	rows store.Rows, in *protocol.StartRequest, k *engine.StartKey, receipts bool, check func() error, now time.Time,
) (w startWrites, existing *protocol.StartResponse, err error) {
	quotas := rows.Quotas(in.Namespace)
	if flow := rows.Workflow(engine.WorkflowKey{Namespace: in.Namespace, ID: in.WorkflowID}); flow != nil {
		run := rows.Run(flow.RunID)
		if k != nil {
			if existing, err = repeatedStart(rows, in, k, run, receipts); err != nil || existing != nil {
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
			end := engine.EndRun{Terminate: true, Reason: engine.ReasonReplaced, Identity: in.Identity}
			if w.Writes, _, err = transaction.Decide(rows, run, end, now); err != nil {
				return w, nil, err
			}
			w.Audit = append(w.Audit, store.Audit{
				At: history.At(now), Identity: in.Identity, Action: "workflow.terminate", Namespace: run.Namespace,
				Target: run.WorkflowID, Detail: run.ID + ": " + engine.ReasonReplaced,
			})
			quotas.Usage.OpenRuns-- // the new run takes its place
		}
		w.reuses = true
		if err := w.keepResponse(in, run, now); err != nil {
			return w, nil, err
		}
	}
	if err := check(); err != nil {
		return w, nil, err
	}
	return w, nil, quotaRefusal(in.Namespace, quotas.NewRun(0))
}

// keepResponse stores the response to the start of the chain that is replaced, if that start had an Idempotency-Key.
// The store removes it with the first run of the chain.
func (w *startWrites) keepResponse(in *protocol.StartRequest, run *engine.Run, now time.Time) error {
	if run == nil || run.StartKey == nil {
		return nil
	}
	body, err := json.Marshal(keyedResponse(in, &run.Head))
	if err != nil {
		return err
	}
	w.Receipts = append(w.Receipts, store.Receipt{
		ReceiptKey: startReceipt(in, run.StartKey), Hash: run.StartKey.Hash, Body: body, At: history.At(now),
	})
	return nil
}

// keyedResponse returns the response to the start that began the chain of a run.
func keyedResponse(in *protocol.StartRequest, run *engine.Head) protocol.StartResponse {
	first := *run
	if first.ID = run.StartKey.Run; first.ID != run.ID { // the chain has continued as new since
		first.Status = protocol.RunContinued
	}
	return startResponse(*in, &first, "started_new")
}

// repeatedStart returns the response to an earlier start with the same Idempotency-Key; nil if there was none.
func repeatedStart(
	rows store.Rows, in *protocol.StartRequest, k *engine.StartKey, run *engine.Run, receipts bool,
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
		a := keyedResponse(in, &run.Head)
		a.Repeated = true
		return &a, conflict(run.StartKey.Hash)
	}
	if run != nil && run.Chain == "" {
		return nil, nil // the first chain of the ID: no earlier start
	}
	if !receipts {
		return nil, errEarlierChain
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

// existingAnswer returns the response to a start that writes nothing; nil means that the start failed with an error.
func existingAnswer(existing *protocol.StartResponse) store.Writes {
	if existing == nil {
		return store.Writes{}
	}
	return store.Writes{Answer: *existing}
}
