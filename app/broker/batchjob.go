package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// CreateBatchJob creates a batch job and returns it. The job is executed in the background, also if this app ends. A
// request with the request ID of an existing job returns that job.
func (b *Broker) CreateBatchJob(ctx context.Context, in protocol.BatchJobRequest) (protocol.BatchJobView, error) {
	if err := b.checkBatchJob(ctx, &in); err != nil {
		return protocol.BatchJobView{}, err
	}
	k, hash := engine.BatchJobKey{Namespace: in.Namespace, ID: "batch-" + strings.ToLower(ulid.Make().String())}, ""
	if in.RequestID != "" {
		sum := sha256.Sum256([]byte(in.RequestID))
		k.ID, hash = "batch-"+hex.EncodeToString(sum[:16]), hashOf(in)
	}
	j, err := transaction.Commit[engine.BatchJob](ctx, b.store, store.Transaction{
		Needs: store.Keys{BatchJobs: []engine.BatchJobKey{k}, Namespaces: []string{k.Namespace}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			if had := rows.BatchJob(k); had != nil {
				if had.Hash != hash {
					return store.Writes{}, protocol.Refuse(
						protocol.ReasonRequestConflict, "request ID %s was already used for a different batch job", in.RequestID,
					)
				}
				return store.Writes{Answer: *had}, nil
			}
			n := rows.Namespace(k.Namespace)
			if n == nil || n.Leaving {
				return store.Writes{}, namespaceNotFound(k.Namespace)
			}
			if n.OpenBatchJobs >= protocol.MaxBatchJobs {
				return store.Writes{}, protocol.Refuse(
					protocol.ReasonBatchJobLimit, "namespace %s has %d open batch jobs, which is the maximum; wait for one to "+
						"complete, or stop one", k.Namespace, n.OpenBatchJobs,
				).With("limit", protocol.MaxBatchJobs)
			}
			counted := *n
			counted.OpenBatchJobs++
			j := engine.BatchJob{
				Namespace: k.Namespace, ID: k.ID, CreatedAt: history.At(now), State: protocol.BatchCollecting,
				Query: in.Query, Action: in.Action, Limit: in.Limit, Rate: in.RatePerSecond, Reason: in.Reason,
				Identity: in.Identity, Signal: in.SignalName, Input: in.Input, Hash: hash,
				ResetTo: in.ResetTo, Reapply: in.Reapply,
			}
			return store.Writes{
				BatchJobs: []engine.BatchJob{j}, Namespaces: []store.Namespace{counted}, Answer: j,
				Audit: []store.Audit{batchAudit(&j, "batch_job.create", in.Identity, fmt.Sprintf(
					"%s up to %d runs matching %s%s", j.Action, j.Limit, j.Query, reasonSuffix(j.Reason),
				), now)},
			}, nil
		},
	})
	if err != nil {
		return protocol.BatchJobView{}, err
	}
	b.batchJobs.signal()
	return view.BatchJobView(&j), nil
}

// checkBatchJob checks a request and fills in the defaults.
func (b *Broker) checkBatchJob(ctx context.Context, in *protocol.BatchJobRequest) error {
	if err := protocol.CheckLimits(*in); err != nil {
		return err
	}
	in.Namespace, in.Reason = transaction.NamespaceOrDefault(in.Namespace), strings.TrimSpace(in.Reason)
	if in.Limit == 0 {
		in.Limit = protocol.DefaultBatchRuns
	}
	if in.RatePerSecond == 0 {
		in.RatePerSecond = protocol.DefaultBatchRate
	}
	switch signal := in.Action == protocol.BatchSignal; {
	case in.Action == "":
		return protocol.Invalid("action", "is needed")
	case signal && in.SignalName == "":
		return protocol.Invalid("signal_name", "is needed for the action signal")
	case !signal && in.SignalName != "":
		return protocol.Invalid("signal_name", "is only allowed for the action signal")
	case !signal && len(in.Input) > 0:
		return protocol.Invalid("input", "is only allowed for the action signal")
	}
	switch reset := in.Action == protocol.BatchReset; {
	case reset && in.ResetTo != protocol.ResetToFirstTask && in.ResetTo != protocol.ResetToLastTask:
		return protocol.Invalid("reset_to", "must be %s or %s", protocol.ResetToFirstTask, protocol.ResetToLastTask)
	case !reset && in.ResetTo != "":
		return protocol.Invalid("reset_to", "is only allowed for the action reset")
	case !reset && in.Reapply != nil:
		return protocol.Invalid("reapply", "is only allowed for the action reset")
	}
	if len(in.Input) > protocol.MaxBatchInput {
		return protocol.Refuse(
			protocol.ReasonPayloadTooLarge, "input of %d bytes: the signal of a batch job may have %d", len(in.Input),
			protocol.MaxBatchInput,
		).With("limit", protocol.MaxBatchInput)
	}
	if _, err := Arguments("input", in.Input); err != nil {
		return err
	}
	types, err := b.AttributeTypes(ctx, in.Namespace)
	if err != nil {
		return err
	}
	_, err = view.BatchQuery(in.Namespace, in.Query, in.Action, types)
	return err
}

// batchAudit returns an audit entry about a batch job.
func batchAudit(j *engine.BatchJob, action, identity, detail string, now time.Time) store.Audit {
	return store.Audit{
		At: history.At(now), Identity: identity, Action: action, Namespace: j.Namespace, Target: j.ID, Detail: detail,
	}
}

func reasonSuffix(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// StopBatchJob closes an open batch job. Its remaining runs do not change.
func (b *Broker) StopBatchJob(ctx context.Context, in protocol.BatchStopRequest) (protocol.BatchJobView, error) {
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.BatchJobView{}, err
	}
	k := engine.BatchJobKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.JobID}
	reason := strings.TrimSpace(in.Reason)
	j, err := transaction.Commit[engine.BatchJob](ctx, b.store, store.Transaction{
		Needs: store.Keys{BatchJobs: []engine.BatchJobKey{k}, Namespaces: []string{k.Namespace}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			j := rows.BatchJob(k)
			switch {
			case j == nil:
				return store.Writes{}, view.BatchJobNotFound(k.ID)
			case j.State == protocol.BatchStopped: // the request was repeated
				return store.Writes{Answer: *j}, nil
			case !j.Open():
				return store.Writes{}, protocol.Refuse(
					protocol.ReasonBatchJobClosed, "batch job %s is closed: %s", k.ID, j.State,
				).With("job_id", k.ID).With("state", j.State)
			}
			w := closeBatchJob(rows, j.Close(protocol.BatchStopped, in.Identity, reason, now))
			w.Audit = []store.Audit{batchAudit(j, "batch_job.stop", in.Identity, reason, now)}
			return w, nil
		},
	})
	if err != nil {
		return protocol.BatchJobView{}, err
	}
	return view.BatchJobView(&j), nil
}

// closeBatchJob returns the writes that store a closed job and reduce the namespace's number of open jobs. The row of
// the namespace must be loaded.
func closeBatchJob(rows store.Rows, closed engine.BatchJob) store.Writes {
	w := store.Writes{BatchJobs: []engine.BatchJob{closed}, Answer: closed}
	if n := rows.Namespace(closed.Namespace); n != nil {
		counted := *n
		counted.OpenBatchJobs = max(0, n.OpenBatchJobs-1)
		w.Namespaces = []store.Namespace{counted}
	}
	return w
}

// dropBatchJobs deletes the batch jobs of a namespace that closed before a time, with their results.
func (b *Broker) dropBatchJobs(ctx context.Context, namespace string, before time.Time) error {
	return b.dropBatchJobsOf(ctx, func(r store.Reader) ([]engine.BatchJobKey, error) {
		return r.ClosedBatchJobs(ctx, namespace, before, deleteBatchSize)
	})
}

// dropAllBatchJobs deletes all batch jobs of a namespace. The apps that execute them find their rows missing.
func (b *Broker) dropAllBatchJobs(ctx context.Context, namespace string) error {
	return b.dropBatchJobsOf(ctx, func(r store.Reader) (keys []engine.BatchJobKey, err error) {
		list, err := r.BatchJobs(ctx, namespace, history.Time{}, "", deleteBatchSize)
		for i := range list {
			keys = append(keys, list[i].Key())
		}
		return keys, err
	})
}

func (b *Broker) dropBatchJobsOf(
	ctx context.Context, list func(store.Reader) ([]engine.BatchJobKey, error),
) error {
	for {
		var keys []engine.BatchJobKey
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			keys, err = list(r)
			return err
		})
		if err != nil || len(keys) == 0 {
			return err
		}
		for _, k := range keys {
			if err := b.dropBatchJob(ctx, k); err != nil {
				return err
			}
		}
	}
}

// dropBatchJob deletes a job and its results, at most deleteBatchSize rows per transaction. An open job is closed
// before its results are read, because the app that executes it adds results until then.
func (b *Broker) dropBatchJob(ctx context.Context, k engine.BatchJobKey) error {
	commit := func(decide func(*engine.BatchJob, time.Time) store.Writes) error {
		_, err := b.store.Commit(ctx, store.Transaction{
			Needs: store.Keys{BatchJobs: []engine.BatchJobKey{k}}, Background: true,
			Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
				return decide(rows.BatchJob(k), now), nil
			},
		})
		return err
	}
	if err := commit(func(j *engine.BatchJob, now time.Time) (w store.Writes) {
		if j != nil && j.Open() {
			w.BatchJobs = []engine.BatchJob{j.Close(protocol.BatchStopped, "", "the namespace is deleted", now)}
		}
		return w
	}); err != nil {
		return err
	}
	for {
		var runs []engine.BatchRun
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			runs, err = r.BatchRuns(ctx, k, "", 0, deleteBatchSize)
			return err
		})
		if err != nil {
			return err
		}
		w := store.Writes{}
		for i := range runs {
			w.DropBatchRuns = append(w.DropBatchRuns, engine.BatchRunKey{BatchJobKey: k, Number: runs[i].Number})
		}
		if len(runs) == 0 {
			w.DropBatchJobs = []engine.BatchJobKey{k}
		}
		err = commit(func(*engine.BatchJob, time.Time) store.Writes { return w })
		if err != nil || len(runs) == 0 {
			return err
		}
	}
}

// transactionWrapper extends the transaction of a verb; nil leaves it unchanged.
type transactionWrapper func(store.Transaction) store.Transaction

func (wrap transactionWrapper) apply(t store.Transaction) store.Transaction {
	if wrap == nil {
		return t
	}
	return wrap(t)
}

// applyBatchAction applies the action of a batch job to one run. The transaction that changes the run also stores the
// result. A refusal stores nothing.
func (b *Broker) applyBatchAction(ctx context.Context, j *engine.BatchJob, run *engine.BatchRun) error {
	wrap := b.recordingResult(j, run)
	target := protocol.Target{Namespace: j.Namespace, WorkflowID: run.WorkflowID, RunID: run.Run}
	end := protocol.EndRequest{Target: target, Reason: j.Reason, Identity: j.Identity}
	var err error
	switch j.Action {
	case protocol.BatchCancel:
		_, err = b.commitCancel(ctx, end, wrap)
	case protocol.BatchRequestCancellation:
		_, err = b.commitRequestCancellation(ctx, end, wrap)
	case protocol.BatchTerminate:
		_, err = b.commitTerminate(ctx, end, wrap)
	case protocol.BatchRepair:
		_, err = b.commitRepair(ctx, end, wrap)
	case protocol.BatchRedrive:
		_, err = b.commitRedrive(ctx, protocol.RedriveRequest{Target: target, Identity: j.Identity}, wrap)
	case protocol.BatchReset:
		_, err = b.commitReset(ctx, protocol.ResetRequest{
			Target: target, To: j.ResetTo, Reason: j.Reason, Reapply: j.Reapply, Identity: j.Identity,
		}, wrap)
	case protocol.BatchArchive:
		_, err = b.commitArchive(ctx, end, wrap)
	case protocol.BatchSignal:
		_, err = b.commitSignal(ctx, protocol.SignalRequest{
			Target: target, SignalName: j.Signal, Input: j.Input, Identity: j.Identity,
		}, wrap)
	case protocol.BatchDelete:
		_, err = b.commitRunDeletion(ctx, protocol.RunDeletion{
			Target: target, Reason: j.Reason, Identity: j.Identity,
		}, wrap)
	default: // a newer release created the job
		err = protocol.Invalid("action", "is unknown to this app: %s", j.Action)
	}
	return err
}

// recordingResult returns a wrapper that stores the result of a run in the transaction of the action, if this app still
// owns the job. The audit entry of the action names the job.
func (b *Broker) recordingResult(j *engine.BatchJob, run *engine.BatchRun) transactionWrapper {
	k, epoch := j.Key(), j.Epoch
	return func(t store.Transaction) store.Transaction {
		decide := t.Decide
		t.Needs.BatchJobs, t.Background = []engine.BatchJobKey{k}, true
		t.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
			row, err := rows.BatchJob(k).Renew(b.opt.App, epoch, batchLease, now)
			if err != nil {
				return store.Writes{}, err
			}
			w, err := decide(rows, now)
			if err != nil {
				return store.Writes{}, err
			}
			result := *run
			result.State, result.At = protocol.BatchRunDone, history.At(now)
			w.BatchJobs, w.BatchRuns = []engine.BatchJob{row.Record(result.State)}, []engine.BatchRun{result}
			w.Audit = batchRunAudit(j, run, w.Audit, now)
			return w, nil
		}
		return t
	}
}

// batchRunAudit returns the audit entries of an action on one run, which name the batch job. Signals and requests of a
// cancellation have none, since the history of the run contains them.
func batchRunAudit(j *engine.BatchJob, run *engine.BatchRun, list []store.Audit, now time.Time) []store.Audit {
	list = slices.Clone(list)
	if len(list) == 0 && j.Action != protocol.BatchSignal && j.Action != protocol.BatchRequestCancellation {
		list = []store.Audit{{
			At: history.At(now), Identity: j.Identity, Action: "workflow." + string(j.Action), Namespace: j.Namespace,
			Target: run.WorkflowID, Detail: run.Run + reasonSuffix(j.Reason),
		}}
	}
	for i := range list {
		list[i].Detail += " (batch job " + j.ID + ")"
	}
	return list
}

// refusalOf returns the result of a run that refused the action, and false for errors after which the action must be
// repeated.
func refusalOf(run engine.BatchRun, err error) (engine.BatchRun, bool) {
	var refusal *protocol.Error
	switch {
	case errors.As(err, &refusal):
		if refusal.Reason.Away() || refusal.Reason == protocol.ReasonOverloaded ||
			refusal.Reason == protocol.ReasonThrottled {
			return run, false
		}
		run.Reason, run.Message = refusal.Reason, refusal.Message
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed), errors.Is(err, engine.ErrBatchLost),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return run, false
	default: // a defect of the app: repeating the action would stop the job at this run
		run.Reason, run.Message = protocol.ReasonInternal, err.Error()
	}
	run.State = protocol.BatchRunRefused
	return run, true
}
