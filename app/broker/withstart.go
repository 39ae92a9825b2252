package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A start with a signal or an update is one commit, so that no crash leaves a run that lacks it. The commit also stores
// the response under the request's Idempotency-Key: a repeated request neither starts a second run nor sends the signal
// or the update twice, even if the first run has closed. One case takes two commits: a validator of an update needs a
// run, so the start is committed first, and the run remains if the validator rejects the update.

// startInput is a signal or an update that a start delivers to the run that it starts or finds.
type startInput struct {
	what  string // the request, for the hash that distinguishes a repetition from another request
	size  int
	input engine.Input
	// check refuses the input for a run. later: the input is not delivered with the start but in a commit after it.
	check func(run *engine.Head) (later bool, err error)
	fill  func(*protocol.CommandReceipt)
}

// startedWith is the result of a start with a signal or an update. Its JSON form is the stored response.
type startedWith struct {
	Start protocol.StartResponse `json:"start"`
	// Command is the receipt of the signal or the update; nil: it is to be delivered after the start.
	Command *protocol.CommandReceipt `json:"command,omitempty"`
	// Chain is Head.Chain of the started or found run. An update that is accepted after the start must not reach a run of
	// another chain.
	Chain string `json:"chain,omitempty"`
}

// SignalWithStart starts a workflow and records a signal in one commit. If a run of the workflow ID is open, the signal
// goes to that run, unless the conflict policy replaces the run.
func (b *Broker) SignalWithStart(
	ctx context.Context, in protocol.SignalWithStartRequest,
) (protocol.SignalWithStartResponse, error) {
	if err := in.Check(); err != nil {
		return protocol.SignalWithStartResponse{}, err
	}
	value, err := Arguments("signal_input", in.SignalInput)
	if err != nil {
		return protocol.SignalWithStartResponse{}, err
	}
	learned := !b.opt.Shared
	o := startInput{
		what: "signal " + in.SignalName + " " + comparableBlob(value), size: len(value),
		input: engine.SignalRun{
			Name: in.SignalName, Value: value, Identity: in.Identity, Headers: in.Headers, Trace: in.Trace,
		},
		check: func(run *engine.Head) (bool, error) { return false, b.checkSignal(run, in.SignalName, learned) },
		fill:  func(r *protocol.CommandReceipt) { r.SignalName = in.SignalName },
	}
	for {
		out, err := b.commitStartWith(ctx, in.StartRequest, o)
		var u *notValidated
		if !errors.As(err, &u) {
			if err = b.countQuotaRefusal(in.Namespace, "start", err); err != nil {
				return protocol.SignalWithStartResponse{}, err
			}
			return protocol.SignalWithStartResponse{CommandReceipt: *out.Command, StartOutcome: out.Start.Outcome}, nil
		}
		learned = true
		if err := b.loadSignalWorkers(ctx, &u.head); err != nil {
			return protocol.SignalWithStartResponse{}, err
		}
	}
}

// UpdateWithStart starts a workflow and accepts an update in one commit, then waits for the requested stage. If a run
// of the workflow ID is open, the update goes to that run, unless the conflict policy replaces the run. An update with
// a validator is accepted in a commit after the start; if the validator rejects it, the started run remains.
func (b *Broker) UpdateWithStart(
	ctx context.Context, in protocol.UpdateWithStartRequest,
) (out protocol.UpdateWithStartResponse, err error) {
	if err := in.Check(); err != nil {
		return out, err
	}
	value, err := Arguments("update_input", in.UpdateInput)
	if err != nil {
		return out, err
	}
	learned := !b.opt.Shared
	declared := b.workers.Declarations(in.Namespace)
	o := startInput{
		what: "update " + in.UpdateName + " " + comparableBlob(value), size: len(value),
		input: engine.AcceptUpdate{
			Name: in.UpdateName, Value: value, Identity: in.Identity, Headers: in.Headers, Trace: in.Trace,
		},
		check: func(run *engine.Head) (later bool, err error) {
			return checkUpdate(declared, run, in.UpdateName, learned)
		},
	}
	started, err := b.commitStartWith(ctx, in.StartRequest, o)
	var u *notValidated
	if errors.As(err, &u) {
		if err := b.loadWorkers(ctx, u.head.Namespace, u.head.Queue); err != nil {
			return out, err
		}
		learned, declared = true, b.workers.Declarations(in.Namespace)
		started, err = b.commitStartWith(ctx, in.StartRequest, o)
	}
	if err = b.countQuotaRefusal(in.Namespace, "start", err); err != nil {
		return out, err
	}
	out.StartOutcome = started.Start.Outcome
	update := protocol.UpdateRequest{
		Target:     protocol.Target{Namespace: in.Namespace, WorkflowID: started.Start.WorkflowID},
		UpdateName: in.UpdateName, WaitFor: in.WaitFor, WaitTimeout: in.WaitTimeout, Identity: in.Identity,
		Headers: in.Headers, Trace: in.Trace,
	}
	if started.Command == nil {
		if in.IdempotencyKey != "" {
			update.RequestID = withStartReceipt(in.StartRequest, "update").RequestID
		}
		r, err := b.acceptUpdate(ctx, update, value, started.sameChain)
		if err != nil {
			return out, err
		}
		started.Command = &r
	}
	out.UpdateResponse, err = b.awaitAccepted(ctx, update, *started.Command)
	return out, err
}

// sameChain refuses a run of another chain than that of the started or found run, which has closed.
func (s *startedWith) sameChain(run *engine.Run) error {
	if run.Chain == s.Chain {
		return nil
	}
	return protocol.Refuse(
		protocol.ReasonRunNotActive, "run %s has closed, and run %s, which was started later, uses its workflow ID",
		s.Start.RunID, run.ID,
	).With("run_id", s.Start.RunID).With("rejection_reason", "run_not_active").With("command_status", "rejected").
		With("outcome", "rejected_not_active").With("current_run_id", run.ID)
}

// withStartReceipt names the stored response to a request with an Idempotency-Key. part distinguishes the start from an
// update that is accepted after it. The request ID is a hash, so that no request ID of a client equals it.
func withStartReceipt(in protocol.StartRequest, part string) store.ReceiptKey {
	sum := sha256.Sum256([]byte("with-start " + part + " " + in.IdempotencyKey))
	return store.ReceiptKey{
		Namespace: in.Namespace, WorkflowID: in.WorkflowID, RequestID: "with-start " + hex.EncodeToString(sum[:]),
	}
}

// commitStartWith commits a start with its input.
func (b *Broker) commitStartWith(ctx context.Context, in protocol.StartRequest, o startInput) (startedWith, error) {
	if in.ConflictPolicy == "" && in.DuplicatePolicy == "" {
		in.ConflictPolicy = protocol.ConflictUseExisting
	}
	in, args, err := b.startRequest(in)
	if err != nil {
		return startedWith{}, err
	}
	if err := b.checkTypes(ctx, in.Namespace, "search_attributes", in.SearchAttributes); err != nil {
		return startedWith{}, err
	}
	if err := b.delayLargePayload(ctx, in.Namespace, len(args)+len(in.Memo)+o.size+2*in.Headers.Size()); err != nil {
		return startedWith{}, err
	}
	badName := engine.CheckStartNames(in)
	start := engine.Start{RunID: ulid.Make().String(), Number: 1, Request: in, Arguments: args}
	c := withStart{startInput: o, start: start, check: func() error { return badName }}
	if in.IdempotencyKey != "" {
		c.receipt = withStartReceipt(in, "start")
		c.hash = hashParts(in.WorkflowType, in.TaskQueue, comparableInput(in.Input), o.what)
	}
	return commitStart(func(reads startReads) (startedWith, error) {
		needs := startNeeds(&in, nil, reads)
		if c.hash != "" {
			needs.Receipts = append(needs.Receipts, c.receipt)
		}
		return transaction.Commit[startedWith](ctx, b.store, store.Transaction{
			Needs: needs, Class: store.Class{Namespace: in.Namespace, Key: in.FairnessKey, Weight: in.FairnessWeight},
			Decide: func(rows store.Rows, now time.Time) (store.Writes, error) { return c.decide(rows, reads, now) },
		})
	})
}

// withStart is the commit of a start with a signal or an update.
type withStart struct {
	startInput
	start   engine.Start
	check   func() error // checks what applies to new runs only
	receipt store.ReceiptKey
	hash    string // of the request; empty: it has no Idempotency-Key
}

// decide returns the writes of the commit: those of the run that is found or started, and the stored response.
func (c *withStart) decide(rows store.Rows, reads startReads, now time.Time) (store.Writes, error) {
	if c.hash != "" {
		if r := rows.Receipt(c.receipt); r != nil {
			return c.repeated(r)
		}
	}
	in := c.start.Request
	w, existing, err := decideStart(rows, &in, nil, reads, c.check, now)
	if err != nil {
		return store.Writes{}, err
	}
	var out startedWith
	if existing != nil {
		w.Writes, out, err = c.deliver(rows, *existing, now)
	} else {
		out, err = c.begin(rows, &w, now)
	}
	if err != nil {
		return store.Writes{}, err
	}
	if c.hash != "" {
		r, err := newReceipt(c.receipt, c.hash, out, now)
		if err != nil {
			return store.Writes{}, err
		}
		w.Receipts = append(w.Receipts, r)
	}
	w.Answer = out
	return w.Writes, nil
}

// deliver delivers the input to the open run of the workflow ID.
func (c *withStart) deliver(
	rows store.Rows, existing protocol.StartResponse, now time.Time,
) (store.Writes, startedWith, error) {
	run := rows.Run(existing.RunID)
	out := startedWith{Start: existing, Chain: run.Chain}
	later, err := c.startInput.check(&run.Head)
	if err != nil || later {
		return store.Writes{}, out, err
	}
	if err := quotaRefusal(run.Namespace, rows.Quotas(run.Namespace).NewBytes()); err != nil {
		return store.Writes{}, out, err
	}
	w, d, err := transaction.Decide(rows, run, c.input, now)
	if err != nil {
		return store.Writes{}, out, err
	}
	out.Command = c.commandReceipt(&run.Head, run.LastSeq+1, d.Answer)
	return w, out, nil
}

// begin adds the new run to w, with the input in its history.
func (c *withStart) begin(rows store.Rows, w *startWrites, now time.Time) (startedWith, error) {
	start := c.start
	start.Reuses = w.reuses
	later, err := c.startInput.check(&engine.Head{
		Namespace: start.Request.Namespace, WorkflowID: start.Request.WorkflowID, ID: start.RunID,
		Type: start.Request.WorkflowType, Queue: start.Request.TaskQueue, Status: protocol.RunRunning,
	})
	if err != nil {
		return startedWith{}, err
	}
	if !later {
		start.First = c.input
	}
	d := transaction.StartRun(rows, start, now)
	w.add(d)
	out := startedWith{Start: startResponse(start.Request, &d.Next.Head, "started_new"), Chain: d.Next.Chain}
	if !later {
		out.Command = c.commandReceipt(&d.Next.Head, d.Next.LastSeq, d.Answer)
	}
	return out, nil
}

// commandReceipt returns the receipt of the input, which is the event seq of a run.
func (c *withStart) commandReceipt(run *engine.Head, seq int64, a engine.Answer) *protocol.CommandReceipt {
	r := protocol.CommandReceipt{
		Outcome: a.Outcome, WorkflowID: run.WorkflowID, RunID: run.ID, WorkflowType: run.Type, Status: "accepted",
		CommandID: engine.StepID(run.ID, seq), UpdateID: a.Update,
	}
	if c.fill != nil {
		c.fill(&r)
	}
	return &r
}

// repeated returns the stored response to a request with the same Idempotency-Key.
func (c *withStart) repeated(r *store.Receipt) (store.Writes, error) {
	if r.Hash != c.hash {
		return store.Writes{}, protocol.Refuse(
			protocol.ReasonRequestConflict, "Idempotency-Key %s was already used for a different request to workflow %s",
			c.start.Request.IdempotencyKey, c.start.Request.WorkflowID,
		)
	}
	var out startedWith
	if err := json.Unmarshal(r.Body, &out); err != nil {
		return store.Writes{}, err
	}
	if out.Command != nil {
		out.Command.Retained = true
	}
	return store.Writes{Answer: out}, nil
}
