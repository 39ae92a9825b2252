package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// deleteTries is how often a deletion is tried if the rows of the run change between read and commit.
const deleteTries = 10

// errRunChanged means that a run, or its position among the runs of its workflow ID, has changed since it was read.
var errRunChanged = errors.New("the run has changed since it was read")

// runDeletion contains the rows that the deletion of a run reads before its transaction.
type runDeletion struct {
	run     *engine.Run
	current bool
	// previous is the latest other run of the workflow ID, if the deleted run is the current one; zero: there is no
	// other run.
	previous engine.Head
	sessions []engine.SessionKey
}

// DeleteRun removes one closed run with its history, logs and search attributes, and the ended sessions that its code
// started. If it is the current run of its workflow ID, the latest other run becomes the current one; without another
// run the ID is unused again. One transaction removes everything and writes the audit entry.
//
// A closed run may have undelivered messages to other runs, for example its result for its parent. They are delivered
// first. Abandoned activities of the run end first; their workers are notified.
func (b *Broker) DeleteRun(ctx context.Context, in protocol.RunDeletion) (protocol.DeletedRun, error) {
	return b.commitRunDeletion(ctx, in, nil)
}

func (b *Broker) commitRunDeletion(
	ctx context.Context, in protocol.RunDeletion, wrap transactionWrapper,
) (protocol.DeletedRun, error) {
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.DeletedRun{}, err
	}
	for range deleteTries {
		out, err := b.tryDeleteRun(ctx, in, wrap)
		if !errors.Is(err, errRunChanged) {
			return out, err
		}
	}
	return protocol.DeletedRun{}, fmt.Errorf(
		"run %s changed in each of %d tries: %w", in.RunID, deleteTries, store.ErrUnavailable,
	)
}

func (b *Broker) tryDeleteRun(
	ctx context.Context, in protocol.RunDeletion, wrap transactionWrapper,
) (protocol.DeletedRun, error) {
	var d runDeletion
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		d, err = readDeletion(ctx, r, in.Target)
		return err
	})
	if err != nil {
		return protocol.DeletedRun{}, err
	}
	for seq := range d.run.Undelivered.All() {
		if err := b.deliverMessage(ctx, store.Due{Kind: store.DueMessage, Run: d.run.ID, Seq: seq}); err != nil {
			return protocol.DeletedRun{}, err
		}
	}
	if d.run.Activities.Len() > 0 {
		if err := b.endAbandoned(ctx, d.run.ID); err != nil {
			return protocol.DeletedRun{}, err
		}
	}
	runs := []string{d.run.ID}
	if d.previous.ID != "" {
		runs = append(runs, d.previous.ID)
	}
	return transaction.Commit[protocol.DeletedRun](ctx, b.store, wrap.apply(store.Transaction{
		Needs:  store.Keys{Runs: runs, Chain: true, Sessions: d.sessions},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) { return d.decide(rows, in, now) },
	}))
}

// readDeletion reads the run, the run that becomes the current one, and the keys of the sessions to remove.
func readDeletion(ctx context.Context, r store.Reader, t protocol.Target) (d runDeletion, err error) {
	var flow engine.Workflow
	if d.run, flow, err = transaction.Find(ctx, r, t); err != nil {
		return d, err
	}
	if d.run.Status.Open() {
		return d, notClosed(d.run.ID)
	}
	if d.current = flow.RunID == d.run.ID; d.current {
		all, err := r.RunsOf(ctx, flow.Key())
		if err != nil {
			return d, err
		}
		others := slices.DeleteFunc(all, func(h engine.Head) bool { return h.ID == d.run.ID })
		if len(others) > 0 {
			d.previous = others[len(others)-1]
		}
	}
	if !d.run.HasSessions {
		return d, nil
	}
	if d.sessions, err = startedSessions(ctx, r, d.run); err != nil || !d.current || d.previous.ID != "" {
		return d, err
	}
	// These are sessions that earlier, deleted runs of the workflow ID started.
	list, err := r.Sessions(
		ctx, store.SessionQuery{Namespace: flow.Namespace, Workflow: flow.ID, Limit: transaction.MaxPage},
	)
	for i := range list {
		if k := list[i].Key(); !slices.Contains(d.sessions, k) {
			d.sessions = append(d.sessions, k)
		}
	}
	return d, err
}

// startedSessions lists the sessions that the code of a run started. Their IDs contain the ID of the run.
func startedSessions(ctx context.Context, r store.Reader, run *engine.Run) (keys []engine.SessionKey, err error) {
	for after := int64(0); after < run.LastSeq; {
		events, err := r.Events(ctx, run.ID, after, run.LastSeq, transaction.MaxPage, transaction.MaxPageSize)
		if err != nil || len(events) == 0 {
			return keys, err
		}
		for i := range events {
			if s, ok := events[i].Data.(*history.SessionStarted); ok {
				keys = append(keys, engine.SessionKey{Namespace: run.Namespace, ID: s.SessionID})
			}
		}
		after = events[len(events)-1].Seq
	}
	return keys, nil
}

func notClosed(run string) error {
	return protocol.Refuse(
		protocol.ReasonRunNotClosed, "run %s is open; cancel or terminate it before its deletion", run,
	)
}

// decide returns the writes of the deletion. It fails with errRunChanged if the locked rows differ from the rows that
// readDeletion read.
func (d *runDeletion) decide(rows store.Rows, in protocol.RunDeletion, now time.Time) (store.Writes, error) {
	run := rows.Run(d.run.ID)
	if run == nil {
		return store.Writes{}, transaction.RunNotFound(d.run.ID)
	}
	if run.Status.Open() {
		return store.Writes{}, notClosed(run.ID)
	}
	flow := rows.Workflow(engine.WorkflowKey{Namespace: run.Namespace, ID: run.WorkflowID})
	if run.Undelivered.Len() > 0 || run.Activities.Len() > 0 || d.current != (flow != nil && flow.RunID == run.ID) {
		return store.Writes{}, errRunChanged
	}
	out := protocol.DeletedRun{
		WorkflowID: run.WorkflowID, RunID: run.ID, WorkflowType: run.Type, Outcome: "deleted", HistoryLength: run.LastSeq,
	}
	w := store.Writes{DropRuns: []string{run.ID}}
	if d.previous.ID != "" {
		if rows.Run(d.previous.ID) == nil {
			return store.Writes{}, errRunChanged
		}
		w.Workflows = []engine.Workflow{{
			Namespace: run.Namespace, ID: run.WorkflowID, RunID: d.previous.ID, Runs: d.previous.Number,
		}}
		out.CurrentRunID = &d.previous.ID
	} else if flow != nil && !d.current {
		out.CurrentRunID = &flow.RunID
	}
	for _, k := range d.sessions {
		s := rows.Session(k)
		if s != nil && !s.Terminal { // a later run of the workflow ID uses the session
			continue
		}
		w.DropTimelines = append(w.DropTimelines, k)
		if s != nil {
			w.Sessions = append(w.Sessions, engine.SessionChange{Session: *s, Delete: true})
		}
		out.Sessions++
	}
	detail := run.ID
	if in.Reason != "" {
		detail += ": " + in.Reason
	}
	w.Audit = []store.Audit{{
		At: history.At(now), Identity: in.Identity, Action: "workflow.delete", Namespace: run.Namespace,
		Target: run.WorkflowID, Detail: detail,
	}}
	w.Answer = out
	return w, nil
}
