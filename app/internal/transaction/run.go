package transaction

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// One decision may touch several runs: a child that starts, a parent that is notified of an end, the run that continues
// as new. All of them are committed in one transaction, so no reader can see only a part of the decision.

// environment returns the rows that a decision about a run may read.
func environment(rows store.Rows, run *engine.Run) engine.Environment {
	chain := engine.WorkflowKey{Namespace: run.Namespace, ID: run.WorkflowID}
	return engine.Environment{
		Session: func(id string) *engine.Session {
			return rows.Session(engine.SessionKey{Namespace: run.Namespace, ID: id})
		},
		Chain: rows.ChainSessions(chain),
		Inherited: func(id string) *engine.InheritedChild {
			return rows.InheritedChild(engine.InheritedKey{Chain: chain, Child: id})
		},
		Bound: func() []*engine.InheritedChild { return rows.BoundChildren(chain) },
		Workflow: func(id string) (*engine.Run, bool) {
			flow := rows.Workflow(engine.WorkflowKey{Namespace: run.Namespace, ID: id})
			if flow == nil {
				return nil, false
			}
			return rows.Run(flow.RunID), true
		},
	}
}

// Decide lets the engine decide about a run and returns all writes of the decision: the run, the run that continues it,
// and signals to other runs.
func Decide(rows store.Rows, run *engine.Run, in engine.Input, now time.Time) (store.Writes, engine.Decision, error) {
	d, err := engine.DecideRun(run, environment(rows, run), in, now)
	if err != nil {
		return store.Writes{}, d, err
	}
	w := store.Writes{Runs: []engine.Decision{d}}
	startChildren(rows, d.Spawn, now, &w)
	if d.Continue != nil {
		key := engine.WorkflowKey{Namespace: run.Namespace, ID: run.WorkflowID}
		if d.Continue.Request.TaskQueue != run.Queue {
			d.Continue.BuildID = promotedBuild(rows, d.Continue)
		}
		next := engine.DecideStart(*d.Continue, now)
		w.Runs = append(w.Runs, next)
		flow := engine.Workflow{Namespace: run.Namespace, ID: run.WorkflowID}
		if f := rows.Workflow(key); f != nil {
			flow = *f
		}
		flow.RunID, flow.Runs = d.Continue.RunID, flow.Runs+1
		w.Workflows = append(w.Workflows, flow)
	}
	deliverSignals(rows, d.Outbox, now, &w)
	reportChildEnds(rows, now, &w)
	return w, d, nil
}

// UpdateRun returns a transaction that lets the engine decide about one run and returns the decision. For the caller, a
// run outside namespace ns does not exist; "" means that the app itself calls, which may change every run.
func UpdateRun(ns, run string, needs store.Keys, in engine.Input) store.Transaction {
	return store.Transaction{Needs: needs, Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
		s := rows.Run(run)
		if s == nil || ns != "" && s.Namespace != ns {
			return store.Writes{}, TaskNotFound(run)
		}
		w, d, err := Decide(rows, s, in, now)
		o := Outcome{Answer: d.Answer, Run: headOf(d, s), Freed: FreedOwners(d.Sessions), By: engine.LeaseOf(s, in)}
		if d.Answer.Fused {
			o.EagerEvents = d.Events[1:]
		}
		w.Answer = o
		return w, err
	}}
}

// Outcome is the result of a step: the engine's answer and the run's row after the step.
type Outcome struct {
	engine.Answer
	Run         engine.Head
	Freed       []engine.WorkerKey // workers with room for another session now
	By          engine.Lease       // lease under which the input was reported, if any
	EagerEvents []history.Event    // events of the eager workflow task that came with a result, if it is accepted
}

func headOf(d engine.Decision, s *engine.Run) engine.Head {
	if d.Next != nil {
		return d.Next.Head
	}
	return s.Head
}

// StartRun creates a run and pins it to the build that its request names, else to the build promoted for its queue.
func StartRun(rows store.Rows, s engine.Start, now time.Time) engine.Decision {
	if s.BuildID = s.Request.BuildID; s.BuildID == "" {
		s.BuildID = promotedBuild(rows, &s)
	}
	return engine.DecideStart(s, now)
}

// promotedBuild returns the build that new runs of a queue get; empty for none.
func promotedBuild(rows store.Rows, s *engine.Start) string {
	return rows.Queue(engine.QueueKey{Namespace: s.Request.Namespace, Name: s.Request.TaskQueue}).NewRuns()
}
