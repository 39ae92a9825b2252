package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Some commands need rows besides their run. A decision function cannot read, so the transaction names these rows in
// advance, and data that only histories contain (arguments, signals, ends of children) is read before the transaction.

// workerDeclarations returns the runtime and the declared signals of the worker whose run continues as new. It is empty
// if the worker's registration no longer exists.
func (b *Broker) workerDeclarations(ctx context.Context, in protocol.CompleteItem) engine.Code {
	if last := len(in.Commands) - 1; last < 0 || in.Commands[last].Type != protocol.ContinueAsNew {
		return engine.Code{}
	}
	key := engine.WorkerKey{Namespace: in.Namespace, ID: in.Owner}
	w := b.workers.Get(key)
	if w == nil {
		var err error
		if w, err = b.workers.Stored(ctx, key); err != nil {
			return engine.Code{}
		}
	}
	return engine.Code{Runtime: w.Runtime, Signals: w.Declares("signals")}
}

// copyArguments copies the arguments of the run's first event to a continue-as-new command that names none.
func (b *Broker) copyArguments(ctx context.Context, run string, in *protocol.CompleteItem) error {
	last := len(in.Commands) - 1
	if last < 0 || in.Commands[last].Type != protocol.ContinueAsNew || !in.Commands[last].Arguments.IsZero() {
		return nil
	}
	var started []history.Event
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		started, err = r.Events(ctx, run, 0, 1, 1, 0)
		return err
	})
	if err != nil || len(started) == 0 {
		return err // the run does not exist: the decision refuses the command
	}
	if d, ok := started[0].Data.(*history.WorkflowStarted); ok {
		in.Commands = slices.Clone(in.Commands)
		in.Commands[last].Arguments.Blob = d.Arguments
	}
	return nil
}

// unreceivedSignals reads the signals that a continue-as-new command passes to the next run because the workflow has
// not received them. Only the history contains their payloads, so they are read before the transaction. For signals
// that the run inherited by an inbox it reads only the sizes, since the next run inherits them in the same way.
func (b *Broker) unreceivedSignals(
	ctx context.Context, run string, commands []protocol.Command,
) (list []engine.Signal, inbox engine.InboxSignals, err error) {
	last := len(commands) - 1
	if last < 0 || commands[last].Type != protocol.ContinueAsNew ||
		len(commands[last].Unreceived) == 0 && commands[last].UnreceivedRange == nil {
		return nil, inbox, nil
	}
	err = b.store.View(ctx, func(r store.Reader) error {
		h, err := r.Step(ctx, run, 0)
		if errors.Is(err, store.ErrNotFound) {
			return nil // the decision refuses the command
		}
		if err != nil {
			return err
		}
		inherited, want := h.Inbox.Unreceived(&commands[last])
		if h.Inbox != nil && len(inherited) > 0 {
			numbers := engine.Boundaries(h.Inbox.Numbers(inherited))
			if inbox.Sizes, err = r.InboxSizes(ctx, h.Inbox.ID, numbers); err != nil {
				return err
			}
		}
		if len(want) == 0 {
			return nil
		}
		for after := want[0] - 1; len(want) > 0; {
			events, err := r.Events(ctx, run, after, want[len(want)-1], 1000, 8<<20)
			if err != nil || len(events) == 0 {
				return err // the decision refuses the missing signals
			}
			for _, e := range events {
				if d, ok := e.Data.(*history.SignalReceived); ok && len(want) > 0 && e.Seq == want[0] {
					list, want = append(list, engine.SignalOf(d)), want[1:]
				}
				after = e.Seq
			}
		}
		return nil
	})
	return list, inbox, err
}

// inboxSignals reads all signals that a run inherited by an inbox.
func (b *Broker) inboxSignals(ctx context.Context, run string) (signals engine.InboxSignals, err error) {
	err = b.store.View(ctx, func(r store.Reader) error {
		h, err := r.Step(ctx, run, 0)
		if err != nil || h.Inbox == nil {
			return err
		}
		signals, err = r.InboxSignals(ctx, h.Inbox)
		return err
	})
	return signals, err
}

// attachedChildEnds reads how the children ended to which the commands attach. Only the histories of the children
// contain their results.
func (b *Broker) attachedChildEnds(
	ctx context.Context, ns string, commands []protocol.Command,
) (ends map[string]engine.Message, err error) {
	for i := range commands {
		if commands[i].Type != protocol.AttachChildWorkflow {
			continue
		}
		id := commands[i].WorkflowID
		end, ended, err := b.childEnd(ctx, engine.WorkflowKey{Namespace: ns, ID: id})
		if err != nil {
			return nil, err
		}
		if ended {
			if ends == nil {
				ends = map[string]engine.Message{}
			}
			ends[id] = end
		}
	}
	return ends, nil
}

// childEnd returns how the current run of a workflow ID ended, if that run is a child and has closed.
func (b *Broker) childEnd(ctx context.Context, k engine.WorkflowKey) (end engine.Message, ended bool, err error) {
	err = b.store.View(ctx, func(r store.Reader) error {
		flow, err := r.Workflow(ctx, k)
		if err != nil {
			return err
		}
		run, err := r.Step(ctx, flow.RunID, 0)
		// A run without a parent is not a child; the decision refuses the command.
		if err != nil || run.Status.Open() || run.Parent == nil {
			return err
		}
		last, err := r.LastEvent(ctx, run.ID)
		if err != nil {
			return err
		}
		end, ended = engine.ChildEnd(run, last.Data), true
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return end, ended, err
}

// reusableIDs returns the workflow IDs that children may use again, by the policies of their commands.
func reusableIDs(ns string, commands []protocol.Command) (keys []engine.WorkflowKey) {
	for i := range commands {
		c := &commands[i]
		if c.Type == protocol.StartChildWorkflow && c.WorkflowID != "" && (c.ReusePolicy != "" || c.ConflictPolicy != "") {
			keys = append(keys, engine.WorkflowKey{Namespace: ns, ID: c.WorkflowID})
		}
	}
	return keys
}

// commandNeeds adds the rows that a command needs. It refuses invalid payloads.
func (b *Broker) commandNeeds(ns string, c protocol.Command, i int, needs *store.Keys) error {
	for _, p := range []struct{ field, blob string }{
		{"arguments", c.Arguments.Blob},
		{"result", c.Result.Blob},
		{"entries", c.Entries.Blob},
		{"session_definition.arguments", c.SessionDefinition.Blob()},
	} {
		if p.blob == "" {
			continue
		}
		if err := payload.Valid(p.blob); err != nil {
			return badPayload(fmt.Sprintf("commands.%d.%s", i, p.field), err)
		}
	}
	if id := c.Session(); id != "" {
		needs.Sessions = append(needs.Sessions, engine.SessionKey{Namespace: ns, ID: id})
	}
	switch {
	// A step that closes the run may have to end everything that is open in it: attempts in sessions, the sessions of
	// its chain, and children with a close policy. A decision function cannot read, so these rows are loaded in
	// advance. Children stay open if the run continues as new.
	case c.Type.Terminal():
		needs.AllTasks, needs.Chain, needs.Bound = true, true, c.Type != protocol.ContinueAsNew
	case c.Type == protocol.EndSession:
		needs.AllTasks = true
	case c.Type == protocol.CancelActivity:
		needs.Activities = append(needs.Activities, c.Target)
	case c.Type == protocol.CancelChildWorkflow:
		needs.Attached = true
	// A given workflow ID of a child may be in use; a generated one is not.
	case c.Type == protocol.StartChildWorkflow && c.WorkflowID != "":
		needs.Workflows = append(needs.Workflows, engine.WorkflowKey{Namespace: ns, ID: c.WorkflowID})
		if c.ReusePolicy != "" || c.ConflictPolicy != "" {
			needs.Current = true
		}
		switch c.ConflictPolicy {
		case protocol.ConflictUseExisting:
			needs.Inherited = append(needs.Inherited, c.WorkflowID)
		case protocol.ConflictTerminateExisting:
			needs.AllTasks, needs.Chain, needs.Bound = true, true, true
			needs.Inherited = append(needs.Inherited, c.WorkflowID)
		}
	case c.Type == protocol.AttachChildWorkflow:
		needs.Workflows, needs.Current = append(needs.Workflows, engine.WorkflowKey{Namespace: ns, ID: c.WorkflowID}), true
		needs.Inherited = append(needs.Inherited, c.WorkflowID)
	// Load the target too, so that the step that sends the signal also delivers it.
	case c.Type == protocol.SignalWorkflow:
		needs.Workflows, needs.Current = append(needs.Workflows, engine.WorkflowKey{Namespace: ns, ID: c.WorkflowID}), true
	}
	return nil
}
