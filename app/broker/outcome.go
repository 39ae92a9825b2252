package broker

import (
	"context"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An outcome becomes one transaction: of a workflow task, or of an attempt that was returned, failed or completed.

// outcomeTransaction returns the transaction of one outcome, and the hash of the outcome. withInbox adds the signals
// that the run inherited by an inbox.
func (b *Broker) outcomeTransaction(
	ctx context.Context, in protocol.CompleteItem, eager *eagerTask, withInbox bool,
) (store.Transaction, string, error) {
	if in.Kind == protocol.KindWorkflow {
		return b.workflowOutcomeTransaction(ctx, in, withInbox)
	}
	return b.activityOutcomeTransaction(in, eager)
}

// workflowOutcomeTransaction returns the transaction of a workflow task's outcome: returned, failed, or completed with
// commands. It reads in advance what the commands need besides the run (types, passed-on signals, ends of children),
// since a decision function cannot read.
func (b *Broker) workflowOutcomeTransaction(
	ctx context.Context, in protocol.CompleteItem, withInbox bool,
) (store.Transaction, string, error) {
	run, n, ok := engine.ParseTaskID(in.TaskID)
	if !ok {
		return store.Transaction{}, "", transaction.TaskNotFound(in.TaskID)
	}
	h := engine.Holder{Owner: in.Owner, Incarnation: in.Incarnation, Delivery: in.Attempt}
	needs := store.Keys{Runs: []string{run}}
	switch {
	case in.Returned != "":
		return transaction.UpdateRun(in.Namespace, run, needs, engine.ReleaseTask{
			Number: n, Delivery: in.Attempt, Owner: in.Owner, Why: in.Returned, Counts: in.LostCount,
		}), "", nil
	case in.Failure != nil:
		b.recordSticky(run, in)
		hash := hashOf(in.Failure)
		return transaction.UpdateRun(in.Namespace, run, needs, engine.FailTask{
			Number: n, Holder: h, Failure: *in.Failure, Hash: hash,
		}), hash, nil
	}
	refused := engine.CompleteTask{
		Number: n, Holder: h, Commands: in.Commands, RecordFrom: in.RecordFrom, Streams: in.StreamWaits,
		Malformed: in.Malformed,
	}
	if in.Malformed != nil || refused.Unsupported() != nil {
		// check this before any other error, because it quarantines the run
		refused.Hash, refused.PreviousHash = hashCommands(in.Commands), func() string { return hashOf(in.Commands) }
		//nolint:nilerr // the engine refuses what is unsupported, with all that this entails
		return transaction.UpdateRun(in.Namespace, run, needs, refused), refused.Hash, nil
	}
	if in.RecordFrom == 0 {
		b.recordSticky(run, in)
	}
	for i, c := range in.Commands {
		if err := b.commandNeeds(in.Namespace, c, i, &needs); err != nil {
			return store.Transaction{}, "", err
		}
	}
	types, err := b.upsertTypes(ctx, in.Namespace, in.Commands)
	if err != nil {
		return store.Transaction{}, "", err
	}
	// Hash the commands as the worker sent them, before the arguments are filled in, so that a repetition has the same
	// hash.
	hash, commands := hashCommands(in.Commands), in.Commands
	if err := b.copyArguments(ctx, run, &in); err != nil {
		return store.Transaction{}, "", err
	}
	carry, inbox, err := b.unreceivedSignals(ctx, run, in.Commands)
	if err == nil && withInbox {
		inbox, err = b.inboxSignals(ctx, run)
	}
	if err != nil {
		return store.Transaction{}, "", err
	}
	ends, err := b.attachedChildEnds(ctx, in.Namespace, in.Commands)
	if err != nil {
		return store.Transaction{}, "", err
	}
	first, err := b.firstRuns(ctx, reusableIDs(in.Namespace, in.Commands))
	if err != nil {
		return store.Transaction{}, "", err
	}
	needs.Runs = append(needs.Runs, first...)
	workers, err := b.workersFor(ctx, in.Namespace, in.Commands)
	if err != nil {
		return store.Transaction{}, "", err
	}
	c := transaction.UpdateRun(in.Namespace, run, needs, engine.CompleteTask{
		Number: n, Holder: h, Commands: in.Commands, Hash: hash, RecordFrom: in.RecordFrom,
		Types: types, Carry: carry, Inbox: inbox, Ends: ends, Workers: workers,
		Code:    b.workerDeclarations(ctx, in),
		Streams: in.StreamWaits, PreviousHash: func() string { return hashOf(commands) },
	})
	c.Recall, c.Decide = true, keepingResponses(c.Decide, first)
	return c, hash, nil
}

// activityOutcomeTransaction returns the transaction that records the outcome of an attempt.
func (b *Broker) activityOutcomeTransaction(
	in protocol.CompleteItem, eager *eagerTask,
) (store.Transaction, string, error) {
	run, seq, ok := engine.ParseStepID(in.TaskID)
	if !ok {
		return store.Transaction{}, "", transaction.TaskNotFound(in.TaskID)
	}
	delivery, ok := deliveryOf(in.TaskID, in.AttemptID)
	if !ok {
		return store.Transaction{}, "", protocol.Refuse(
			protocol.ReasonStaleAttempt, "%q is not an attempt of task %s", in.AttemptID, in.TaskID,
		).With("can_continue", false)
	}
	h := engine.Holder{Owner: in.Owner, Incarnation: in.Incarnation, Delivery: delivery}
	needs := store.Keys{Runs: []string{run}, Activities: []int64{seq}}
	switch {
	case in.Failure != nil && in.Failure.Type == protocol.TypePending:
		return transaction.UpdateRun(in.Namespace, run, needs, engine.PendActivity{
			Seq: seq, Holder: h, Epoch: in.Epoch, Recovered: in.Recovered, Version: versionOf(in),
		}), hashOf(in.Failure), nil
	case in.Returned != "":
		return transaction.UpdateRun(in.Namespace, run, needs, engine.ReleaseActivity{
			Seq: seq, Delivery: delivery, Owner: in.Owner, Why: in.Returned, Counts: in.LostCount, Executor: in.Executor,
			Began: in.Began, Recovered: in.Recovered,
		}), "", nil
	case in.Failure != nil:
		hash := hashOf(in.Failure)
		c := transaction.UpdateRun(in.Namespace, run, needs, engine.FailActivity{
			Seq: seq, Holder: h, Epoch: in.Epoch, Failure: *in.Failure, Hash: hash, Recovered: in.Recovered,
			Version: versionOf(in), Executor: in.Executor,
		})
		c.Recall = true
		return c, hash, nil
	}
	if err := Blob("result", in.Result.Blob); err != nil {
		return store.Transaction{}, "", err
	}
	hash := hashResult(in.Result.Blob)
	done := engine.CompleteActivity{
		Seq: seq, Holder: h, Epoch: in.Epoch, Result: in.Result.Blob, Hash: hash, Recovered: in.Recovered,
		Version: versionOf(in),
	}
	if eager != nil {
		return eager.transaction(in.Namespace, needs, done), hash, nil
	}
	c := transaction.UpdateRun(in.Namespace, run, needs, done)
	c.Recall = true
	return c, hash, nil
}

// maxVersion is the maximum length of a stored code version.
const maxVersion = 64

// versionOf returns the code version of a completion, or "" if it is invalid UTF-8 or longer than maxVersion.
func versionOf(in protocol.CompleteItem) string {
	if len(in.CodeVersion) > maxVersion || !utf8.ValidString(in.CodeVersion) {
		return ""
	}
	return in.CodeVersion
}

// deliveryOf returns the delivery number in an attempt ID; false if the ID does not belong to this task.
func deliveryOf(task, attempt string) (int64, bool) {
	rest, ok := strings.CutPrefix(attempt, task+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	return n, err == nil && n > 0
}
