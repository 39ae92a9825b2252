package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A caller outside of Sojourn resolves an awakeable, and may repeat the request if the response is lost. The run keeps
// open awakeables only, so the app recognizes a repetition by the hash in the event that ended the awakeable.

// ResolveAwakeable completes or fails an awakeable. A request with the content of the accepted one gets the same
// response; any other request is refused once the awakeable has ended.
func (b *Broker) ResolveAwakeable(
	ctx context.Context, in protocol.AwakeableRequest,
) (protocol.AwakeableReceipt, error) {
	ns := transaction.NamespaceOrDefault(in.Namespace)
	run, seq, ok := engine.ParseStepID(in.AwakeableID)
	if !ok {
		return protocol.AwakeableReceipt{}, awakeableNotFound(in.AwakeableID)
	}
	out, err := b.externalOutcome(ctx, ns, in.ExternalOutcome)
	if err != nil {
		return protocol.AwakeableReceipt{}, err
	}
	resolve := engine.ResolveAwakeable{
		Seq: seq, ID: in.AwakeableID, Result: out.result, Failure: out.failure, Hash: out.hash, Identity: in.Identity,
	}
	// A run that began by a reset has the awakeables of the reset run, with their IDs.
	for runs := []string{run}; ; runs = append(runs, run) {
		o, err := transaction.Commit[transaction.Outcome](
			ctx, b.store, transaction.UpdateRun(ns, run, store.Keys{Runs: []string{run}}, resolve),
		)
		switch {
		case protocol.ReasonOf(err) == protocol.ReasonTaskNotFound:
			return protocol.AwakeableReceipt{}, awakeableNotFound(in.AwakeableID)
		case err == nil:
			return protocol.AwakeableReceipt{
				AwakeableID: in.AwakeableID, WorkflowID: o.Run.WorkflowID, RunID: run, Outcome: o.Outcome,
			}, nil
		case !errors.Is(err, engine.ErrAwakeableNotOpen):
			return protocol.AwakeableReceipt{}, err
		}
		head, err := b.headOf(ctx, protocol.Target{Namespace: ns, RunID: run})
		if err != nil || head.ResetTo == "" {
			return b.endedAwakeable(ctx, ns, runs, in.AwakeableID, resolve.Hash)
		}
		run = head.ResetTo
	}
}

// externalOutcome is a result, or a failure, of a caller outside of Sojourn in the form that history stores, with its
// hash.
type externalOutcome struct {
	result  string
	failure *protocol.Failure
	hash    string
}

// externalOutcome checks and encodes an outcome. It waits if the namespace's quota for large payloads is exhausted.
func (b *Broker) externalOutcome(
	ctx context.Context, ns string, in protocol.ExternalOutcome,
) (externalOutcome, error) {
	if in.Failure == nil {
		p, err := in.Envelope()
		if err == nil {
			err = Blob("result", p.Blob)
		}
		if err == nil {
			err = b.delayLargePayload(ctx, ns, len(p.Blob))
		}
		return externalOutcome{result: p.Blob, hash: hashResult(p.Blob)}, err
	}
	f, err := in.CleanedFailure()
	if err != nil {
		return externalOutcome{}, err
	}
	var details payload.Payload
	if len(f.Details) > 0 {
		if err := json.Unmarshal(f.Details, &details); err != nil {
			return externalOutcome{}, badPayload("failure.details", err)
		}
	}
	if err := Blob("failure.details", details.Blob); err != nil {
		return externalOutcome{}, err
	}
	size := len(f.Message) + len(f.Details) + len(f.StackTrace)
	return externalOutcome{failure: f, hash: hashOf(f)}, b.delayLargePayload(ctx, ns, size)
}

// endedAwakeable returns the first response if a request with this hash ended the awakeable, and a refusal otherwise.
// The newest of the runs that had the awakeable decides.
func (b *Broker) endedAwakeable(
	ctx context.Context, ns string, runs []string, id, hash string,
) (out protocol.AwakeableReceipt, err error) {
	for _, run := range slices.Backward(runs) {
		out, err = b.awakeableEnd(ctx, ns, run, id, hash)
		if protocol.ReasonOf(err) != protocol.ReasonAwakeableNotFound {
			break
		}
	}
	return out, err
}

// awakeableEnd is endedAwakeable for one run.
func (b *Broker) awakeableEnd(
	ctx context.Context, ns, run, id, hash string,
) (out protocol.AwakeableReceipt, err error) {
	_, seq, _ := engine.ParseStepID(id)
	var ended history.Event
	err = b.store.View(ctx, func(r store.Reader) error {
		head, err := transaction.FindHead(ctx, r, protocol.Target{Namespace: ns, RunID: run})
		if err != nil {
			return err
		}
		// A run without awakeables, or with fewer commands, does not need a search of its history.
		if !head.NeedsAwakeables || seq > head.CommandSeq {
			return store.ErrNotFound
		}
		out = protocol.AwakeableReceipt{AwakeableID: id, WorkflowID: head.WorkflowID, RunID: run}
		ended, err = r.Completion(ctx, run, seq)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || protocol.ReasonOf(err) == protocol.ReasonRunNotFound {
		return out, awakeableNotFound(id)
	} else if err != nil {
		return out, err
	}
	var stored string
	same := false // the event may concern another awakeable, which the run opened with the same command number
	switch d := ended.Data.(type) {
	case *history.AwakeableCompleted:
		out.Outcome, stored, same = "completed", d.BodyHash, d.AwakeableID == id
	case *history.AwakeableFailed:
		out.Outcome, stored, same = "failed", d.BodyHash, d.AwakeableID == id
	case *history.AwakeableTimedOut:
		if same = d.AwakeableID == id; same {
			return out, awakeableClosed(id, "timed_out", "its timeout elapsed")
		}
	case *history.AwakeableClosed:
		if same = d.AwakeableID == id; same {
			return out, awakeableClosed(id, "closed", cmp.Or(d.Reason, "its run closed"))
		}
	}
	if !same {
		return out, awakeableNotFound(id)
	}
	if stored != hash {
		return out, protocol.Refuse(
			protocol.ReasonConflictingCompletion, "awakeable %s was already resolved with other content", id,
		).With("awakeable_id", id).With("outcome", out.Outcome)
	}
	return out, nil
}

func awakeableClosed(id, outcome, why string) error {
	return protocol.Refuse(protocol.ReasonAwakeableClosed, "awakeable %s ended without an outcome: %s", id, why).
		With("awakeable_id", id).With("outcome", outcome)
}

func awakeableNotFound(id string) error {
	return protocol.Refuse(
		protocol.ReasonAwakeableNotFound, "awakeable %s not found; the ID is RUN_ID-SEQUENCE, as the workflow code received it",
		id,
	).With("awakeable_id", id)
}
