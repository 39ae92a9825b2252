package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// spawn starts runs of children in the same change. Their workflow ids belong to the run that starts them, so nobody else can have taken one.
func spawn(rows store.Rows, starts []engine.Start, now time.Time, w *store.Writes) {
	for _, s := range starts {
		w.Runs = append(w.Runs, begin(rows, s, now))
		w.Workflows = append(w.Workflows, engine.Workflow{
			Namespace: s.Request.Namespace, ID: s.Request.WorkflowID, RunID: s.RunID, Runs: s.Number,
		})
	}
}

// written is the run as the change leaves it so far: the place of its decision in w, or -1 when the change has none of it.
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
		if d, err := engine.DecideRun(target, world(rows, target), m.Input(), now); err == nil {
			put(rows, d, at, w)
		}
	}
}

// report gives a parent the news of its child in the same change, when the parent is at hand; else the news stays owed and the sweeper brings it. What
// becomes of a child when its parent closes always goes that way, since it needs more rows than these.
func report(rows store.Rows, now time.Time, w *store.Writes) {
	for i := 0; i < len(w.Runs); i++ {
		from := w.Runs[i].Next
		for seq, m := range from.Owed.Changes() {
			if m == nil || m.Kind != engine.ChildEnded {
				continue
			}
			parent, at := written(rows, m.ToRun, w)
			if parent == nil {
				continue
			}
			d, err := engine.DecideRun(parent, world(rows, parent), m.Input(), now)
			if err == nil {
				put(rows, d, at, w)
				spawn(rows, d.Spawn, now, w)
			}
			from.Owed.Delete(seq)
		}
	}
}

// owed brings one message to its target and takes it off the run that owed it, in one change: once, whoever else tries.
func (b *Broker) owed(ctx context.Context, due store.Due) error {
	var m engine.Message
	err := b.store.View(ctx, func(r store.Reader) error {
		run, err := r.Run(ctx, due.Run)
		if err != nil {
			return err
		}
		var ok bool
		if m, ok = run.Owed.Get(due.Seq); !ok {
			return store.ErrNotFound
		}
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	key := engine.WorkflowKey{Namespace: m.Namespace, ID: m.WorkflowID}
	needs := store.Keys{Runs: []string{due.Run}}
	if m.ToRun != "" {
		needs.Runs = append(needs.Runs, m.ToRun)
	} else {
		needs.Workflows, needs.Current, needs.AllTasks, needs.Chain = []engine.WorkflowKey{key}, true, true, true
	}
	_, err = b.store.Commit(ctx, store.Change{Needs: needs, Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
		from := rows.Run(due.Run)
		if from == nil {
			return store.Writes{}, nil
		}
		m, ok := from.Owed.Get(due.Seq)
		if !ok {
			return store.Writes{}, nil
		}
		w := store.Writes{Runs: []engine.Decision{from.Delivered(due.Seq)}}
		id := m.ToRun
		if id == "" {
			if flow := rows.Workflow(key); flow != nil {
				id = flow.RunID
			}
		}
		target := rows.Run(id)
		if target == nil {
			return w, nil
		}
		more, _, err := decide(rows, target, m.Input(), now)
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
