package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The broker delivers a message between runs in one transaction, which deletes it from the sender's outbox and applies
// it to the target. So it is delivered exactly once, despite crashes and concurrent apps.

// errGoneOn means that the parent run of a child's message continued as a new run or was reset, or that retention
// deleted it: the message must go to the current run of the chain.
var errGoneOn = errors.New("the parent has continued as a new run")

// deliverMessage delivers one message to its target and deletes it from the sender's outbox in one transaction, so it
// is delivered once, however many apps try.
func (b *Broker) deliverMessage(ctx context.Context, due store.Due) error {
	// Read the message before the transaction: it contains the target, whose rows the transaction must name.
	var m engine.Message
	var parent *engine.Parent
	child := ""
	err := b.store.View(ctx, func(r store.Reader) error {
		run, err := r.Run(ctx, due.Run)
		if err != nil {
			return err
		}
		var ok bool
		if m, ok = run.Undelivered.Get(due.Seq); !ok {
			return store.ErrNotFound
		}
		parent, child = run.Parent, run.WorkflowID
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	// A message without a run ID goes to the current run of its workflow ID: a signal, or a request to a child. The end
	// of a child goes to the run that started the child, or to a later run of its chain.
	if m.ToRun == "" {
		return b.commitMessage(ctx, due, store.Keys{
			Workflows: []engine.WorkflowKey{{Namespace: m.Namespace, ID: m.WorkflowID}}, Current: true, AllTasks: true,
			Chain: true, Bound: true,
		}, currentRun(m.Namespace, m.WorkflowID), m.Input())
	}
	err = b.commitMessage(ctx, due, store.Keys{Runs: []string{m.ToRun}}, func(rows store.Rows) (*engine.Run, error) {
		run := rows.Run(m.ToRun)
		// The run that started the child continued as a new run or was reset, or retention deleted it: deliver the message
		// to the current run of its chain.
		if parent != nil && (run == nil || run.Superseded()) {
			return nil, errGoneOn
		}
		return run, nil
	}, m.Input())
	if !errors.Is(err, errGoneOn) {
		return err
	}
	return b.commitMessage(ctx, due, store.Keys{
		Workflows: []engine.WorkflowKey{{Namespace: m.Namespace, ID: parent.WorkflowID}}, Current: true,
		Inherited: []string{child},
	}, currentRun(m.Namespace, parent.WorkflowID), engine.InheritedReport{Message: m, Child: child})
}

// currentRun returns a function that finds the current run of a workflow ID.
func currentRun(namespace, workflow string) func(store.Rows) (*engine.Run, error) {
	return func(rows store.Rows) (*engine.Run, error) {
		flow := rows.Workflow(engine.WorkflowKey{Namespace: namespace, ID: workflow})
		if flow == nil {
			return nil, nil
		}
		return rows.Run(flow.RunID), nil
	}
}

// commitMessage commits the delivery. If the target does not exist or is closed, the message is deleted.
func (b *Broker) commitMessage(
	ctx context.Context, due store.Due, needs store.Keys, find func(store.Rows) (*engine.Run, error), in engine.Input,
) error {
	needs.Runs = append(needs.Runs, due.Run)
	_, err := b.store.Commit(ctx, store.Transaction{Needs: needs, Decide: func(
		rows store.Rows, now time.Time,
	) (store.Writes, error) {
		from := rows.Run(due.Run)
		if from == nil {
			return store.Writes{}, nil
		}
		// Look it up again under the lock: if another app has delivered it meanwhile, nothing remains to do.
		m, ok := from.Undelivered.Get(due.Seq)
		if !ok {
			return store.Writes{}, nil
		}
		w := store.Writes{Runs: []engine.Decision{from.Delivered(due.Seq)}}
		target, err := find(rows)
		if err != nil {
			return store.Writes{}, err
		}
		if target == nil ||
			m.Kind == engine.CloseChild && !m.Closes(target, &from.Head) {
			return w, nil // the ID now belongs to another workflow or a later child
		}
		more, _, err := transaction.Decide(rows, target, in, now)
		// If the target refuses the message, the message is deleted, too. After any other error it stays in the outbox
		// and is retried.
		if err != nil && protocol.ReasonOf(err) == "" {
			return store.Writes{}, err
		}
		if err == nil {
			w.Runs = append(w.Runs, more.Runs...)
			w.Workflows = append(w.Workflows, more.Workflows...)
		}
		return w, nil
	}})
	return err
}
