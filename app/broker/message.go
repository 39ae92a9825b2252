package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// spawn starts runs of children in the same change. Their workflow ids belong to the run that starts them, or were
// chosen and found free by the decision.
func spawn(rows store.Rows, starts []engine.Start, now time.Time, w *store.Writes) {
	for _, s := range starts {
		w.Runs = append(w.Runs, begin(rows, s, now))
		w.Workflows = append(w.Workflows, engine.Workflow{
			Namespace: s.Request.Namespace, ID: s.Request.WorkflowID, RunID: s.RunID, Runs: s.Number,
		})
	}
}

// written is the run as the change leaves it so far: the place of its decision in w, or -1 when the change has none of
// it.
func written(rows store.Rows, id string, w *store.Writes) (*engine.Run, int) {
	for i := range w.Runs {
		if w.Runs[i].Next.ID == id {
			return w.Runs[i].Next, i
		}
	}
	return rows.Run(id), -1
}

// put adds a decision to the change: one decision a run, so a second one is joined to the first.
func put(rows store.Rows, d engine.Decision, at int, w *store.Writes) {
	if at < 0 {
		w.Runs = append(w.Runs, d)
		return
	}
	first := &w.Runs[at]
	joined := first.Next
	if base := rows.Run(d.Next.ID); base != nil {
		joined = base.Fork()
		joined.Merge(first.Next)
	}
	joined.Merge(d.Next)
	first.Next, first.Events = joined, append(first.Events, d.Events...)
	first.Sessions = append(first.Sessions, d.Sessions...)
	first.Former, first.DropFormer = append(first.Former, d.Former...), first.DropFormer || d.DropFormer
}

// deliver applies signals to other workflows in the same step. A target that is gone or closed gets nothing.
func deliver(rows store.Rows, owed []engine.Message, now time.Time, w *store.Writes) {
	for _, m := range owed {
		flow := rows.Workflow(engine.WorkflowKey{Namespace: m.Namespace, ID: m.WorkflowID})
		if flow == nil {
			continue
		}
		target, at := written(rows, flow.RunID, w)
		if target == nil {
			continue
		}
		if d, err := engine.DecideRun(target, environment(rows, target), m.Input(), now); err == nil {
			put(rows, d, at, w)
		}
	}
}

// report gives a parent the news of its child in the same change, when the parent is at hand; else the news stays owed
// and the sweeper brings it. What becomes of a child when its parent closes always goes that way, since it needs more
// rows than these.
func report(rows store.Rows, now time.Time, w *store.Writes) {
	for i := 0; i < len(w.Runs); i++ {
		from := w.Runs[i].Next
		for seq, m := range from.Owed.Changes() {
			if m == nil || m.Kind != engine.ChildEnded {
				continue
			}
			parent, at := written(rows, m.ToRun, w)
			if parent == nil || parent.Status == protocol.RunContinued { // the run that goes on in its place is not at hand
				continue
			}
			d, err := engine.DecideRun(parent, environment(rows, parent), m.Input(), now)
			if err == nil {
				put(rows, d, at, w)
				spawn(rows, d.Spawn, now, w)
			}
			from.Owed.Delete(seq)
		}
	}
}

// errGoneOn says that the run a child reports to has gone on as a new one, or is kept no longer: the news belongs to
// the chain.
var errGoneOn = errors.New("the parent has gone on as a new run")

// owed brings one message to its target and takes it off the run that owed it, in one change: once, whoever else tries.
func (b *Broker) owed(ctx context.Context, due store.Due) error {
	var m engine.Message
	var parent *engine.Parent
	child := ""
	err := b.store.View(ctx, func(r store.Reader) error {
		run, err := r.Run(ctx, due.Run)
		if err != nil {
			return err
		}
		var ok bool
		if m, ok = run.Owed.Get(due.Seq); !ok {
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
	if m.ToRun == "" {
		return b.bring(ctx, due, store.Keys{
			Workflows: []engine.WorkflowKey{{Namespace: m.Namespace, ID: m.WorkflowID}}, Current: true, AllTasks: true,
			Chain: true, Bound: true,
		}, current(m.Namespace, m.WorkflowID), m.Input())
	}
	err = b.bring(ctx, due, store.Keys{Runs: []string{m.ToRun}}, func(rows store.Rows) (*engine.Run, error) {
		run := rows.Run(m.ToRun)
		if parent != nil && (run == nil || run.Status == protocol.RunContinued) {
			return nil, errGoneOn
		}
		return run, nil
	}, m.Input())
	if !errors.Is(err, errGoneOn) {
		return err
	}
	return b.bring(ctx, due, store.Keys{
		Workflows: []engine.WorkflowKey{{Namespace: m.Namespace, ID: parent.WorkflowID}}, Current: true,
		Former: []string{child},
	}, current(m.Namespace, parent.WorkflowID), engine.FormerReport{Message: m, Child: child})
}

// current finds the current run of a workflow id.
func current(namespace, workflow string) func(store.Rows) (*engine.Run, error) {
	return func(rows store.Rows) (*engine.Run, error) {
		flow := rows.Workflow(engine.WorkflowKey{Namespace: namespace, ID: workflow})
		if flow == nil {
			return nil, nil
		}
		return rows.Run(flow.RunID), nil
	}
}

// bring is the change that does it. A target that is not there, or takes nothing any more, gets nothing.
func (b *Broker) bring(
	ctx context.Context, due store.Due, needs store.Keys, find func(store.Rows) (*engine.Run, error), in engine.Input,
) error {
	needs.Runs = append(needs.Runs, due.Run)
	_, err := b.store.Commit(ctx, store.Change{Needs: needs, Decide: func(
		rows store.Rows, now time.Time,
	) (store.Writes, error) {
		from := rows.Run(due.Run)
		if from == nil {
			return store.Writes{}, nil
		}
		m, ok := from.Owed.Get(due.Seq)
		if !ok {
			return store.Writes{}, nil
		}
		w := store.Writes{Runs: []engine.Decision{from.Delivered(due.Seq)}}
		target, err := find(rows)
		if err != nil {
			return store.Writes{}, err
		}
		if target == nil ||
			m.Kind == engine.CloseChild && (target.Parent == nil || target.Parent.WorkflowID != from.WorkflowID) {
			return w, nil // it is another workflow's by now
		}
		more, _, err := decide(rows, target, in, now)
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
