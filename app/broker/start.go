package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Every workflow costs a start, so a start should cost one commit and no read. The workflow ID is assumed to be unused;
// only if it is in use, the start is decided again on the existing rows.

// Start starts a workflow. If its workflow ID has a run, the policies of the request decide: the start is refused,
// returns the open run, or begins a new chain of runs under the ID.
func (b *Broker) Start(ctx context.Context, in protocol.StartRequest) (protocol.StartResponse, error) {
	if in.Cron != "" {
		return b.startCron(ctx, in)
	}
	in, args, err := b.startRequest(in)
	if err != nil {
		return protocol.StartResponse{}, err
	}
	if err := b.checkTypes(ctx, in.Namespace, "search_attributes", in.SearchAttributes); err != nil {
		return protocol.StartResponse{}, err
	}
	if err := b.delayLargePayload(ctx, in.Namespace, len(args)+len(in.Memo)+in.Headers.Size()); err != nil {
		return protocol.StartResponse{}, err
	}
	// Names are checked only for a new run: a start of an existing workflow gets the same response as before the naming
	// rules, so its row is read first.
	badName := engine.CheckStartNames(in)
	// Decide may be called more than once and must return the same run ID each time.
	runID := ulid.Make().String()
	startKey := startKeyOf(&in, "", runID)
	out, err := commitStart(func(reads startReads) (protocol.StartResponse, error) {
		needs := startNeeds(&in, startKey, reads)
		needs.New = badName == nil && reads == (startReads{})
		return transaction.Commit[protocol.StartResponse](ctx, b.store, store.Transaction{
			Needs: needs, Recall: true,
			Class: store.Class{Namespace: in.Namespace, Key: in.FairnessKey, Weight: in.FairnessWeight},
			Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
				w, existing, err := decideStart(
					rows, &in, startKey, reads, func() error { return badName }, now,
				)
				if err != nil || existing != nil {
					return existingResponse(existing), err
				}
				w.add(transaction.StartRun(rows, engine.Start{
					RunID: runID, Number: 1, Request: in, Arguments: args, Reuses: w.reuses, StartKey: startKey,
				}, now))
				w.Answer = startResponse(in, &w.Runs[len(w.Runs)-1].Next.Head, "started_new")
				return w.Writes, nil
			},
		})
	})
	if err == nil && out.New && in.BuildID != "" {
		out.Warnings = b.unknownBuildWarning(ctx, in)
	}
	return out, b.countQuotaRefusal(in.Namespace, "start", err)
}

// unknownBuildWarning returns a warning if no worker of the queue has registered the build that a start names. A worker
// of the build may register later; if the build ID is wrong, the run waits forever. The run is already stored, so a
// failed read does not fail the start: it returns no warning.
func (b *Broker) unknownBuildWarning(ctx context.Context, in protocol.StartRequest) []protocol.Warning {
	known := false // true: this app knows such a worker, so the database need not be read
	b.workers.Each(in.Namespace, func(_ engine.WorkerKey, h *membership.TrackedWorker) {
		known = known || h.Worker.BuildID == in.BuildID && h.Worker.Serves(in.TaskQueue)
	})
	if known {
		return nil
	}
	cohort, err := b.view.Cohort(ctx, in.Namespace, in.TaskQueue, in.BuildID)
	if err != nil || cohort.TotalWorkers > 0 {
		return nil
	}
	return []protocol.Warning{{
		Code: protocol.WarnUnknownBuild, Subject: "build_id",
		Message: fmt.Sprintf(
			"no worker of queue %s has registered build %s; the run waits for such a worker", in.TaskQueue, in.BuildID,
		),
	}}
}

// The response describes the run, not the request: with use-existing they may differ.
func startResponse(in protocol.StartRequest, run *engine.Head, outcome string) protocol.StartResponse {
	status, _, _ := run.Public()
	return protocol.StartResponse{
		WorkflowID: run.WorkflowID, RunID: run.ID, WorkflowType: run.Type, Namespace: in.Namespace, Status: status,
		BusinessKey: protocol.OrNil(run.BusinessKey), PayloadCodec: payload.Codec, Outcome: outcome,
		New: outcome == "started_new",
	}
}

// startRequest validates a start and sets its defaults. It also returns the encoded arguments.
func (b *Broker) startRequest(in protocol.StartRequest) (protocol.StartRequest, string, error) {
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	if in.WorkflowID == "" {
		in.WorkflowID = ulid.Make().String()
	}
	if in.TaskQueue == "" {
		in.TaskQueue = "default"
	}
	switch {
	case in.PayloadCodec != "" && in.PayloadCodec != payload.Codec:
		return in, "", protocol.Refuse(
			protocol.ReasonUnsupportedCodec, "codec %q is not supported; use %s", in.PayloadCodec, payload.Codec,
		)
	case in.BuildID != "" && in.Compatibility != "" && in.BuildID != in.Compatibility:
		return in, "", protocol.Invalid("compatibility", "differs from build_id; send only one of them")
	case len(in.Memo) > engine.MaxStartMemo:
		return in, "", protocol.Invalid("memo", "is larger than %d KiB", engine.MaxStartMemo>>10)
	}
	if err := in.Check(); err != nil {
		return in, "", err
	}
	in.FairnessKey, in.BuildID = strings.ToLower(in.FairnessKey), cmp.Or(in.BuildID, in.Compatibility)
	if err := engine.CheckAttributes(in.SearchAttributes); err != nil {
		return in, "", err
	}
	if err := engine.CheckMemo(in.Memo); err != nil {
		return in, "", err
	}
	args, err := Arguments("input", in.Input)
	return in, args, err
}

// Arguments decodes the input of a start, signal, query or update: an envelope, a plain JSON array of arguments, which
// it encodes, or nothing. It returns the encoded argument array, or "" if there is none.
func Arguments(field string, raw json.RawMessage) (string, error) {
	trimmed := bytes.TrimSpace(raw)
	switch {
	case len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null")):
		return "", nil
	// Users of curl send a plain JSON array; SDKs send an envelope.
	case trimmed[0] == '[':
		p, err := payload.FromJSON(trimmed)
		if err != nil {
			return "", badPayload(field, err)
		}
		return p.Blob, nil
	case trimmed[0] == '{':
		var p payload.Payload
		if err := json.Unmarshal(trimmed, &p); err != nil {
			return "", badPayload(field, err)
		}
		return p.Blob, Blob(field, p.Blob)
	}
	return "", protocol.Invalid(field, "must be an array of arguments or an envelope {codec, blob}")
}

// Blob refuses text that is not a payload. It is checked on input, because every replay of a history with an invalid
// payload would fail.
func Blob(field, blob string) error {
	if blob == "" {
		return nil
	}
	if err := payload.Valid(blob); err != nil {
		return badPayload(field, err)
	}
	return nil
}

// badPayload returns an error with the field and the position in it, so that a caller finds the invalid part of a
// nested argument.
func badPayload(field string, err error) error {
	switch {
	case errors.Is(err, payload.ErrTooLarge):
		return protocol.Refuse(protocol.ReasonPayloadTooLarge, "%s: %v", field, err).With("limit", payload.MaxBytes)
	case errors.Is(err, payload.ErrUnsupportedCodec):
		return protocol.Refuse(protocol.ReasonUnsupportedCodec, "%s: %v", field, err)
	}
	field, err = payload.Place(field, err)
	e := protocol.Invalid(field, "%v", err)
	if r := payload.Reason(err); r != "" {
		e.With("payload_reason", r)
	}
	return e
}
