package transaction

import (
	"context"
	"errors"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Find returns the run that a target names, with the row of its workflow id. These are two reads, between which the run
// may continue as new. Find then repeats both reads, so that it does not return a superseded run as the current run of
// its workflow. If the second reads return the same run, that run is the result: later runs of a chain that was
// imported from its beginning may be missing.
func Find(ctx context.Context, r store.Reader, t protocol.Target) (*engine.Run, engine.Workflow, error) {
	return find(ctx, r, t, r.Run)
}

// FindHead is like FindRow without the row of the workflow ID, so a target with a run ID needs only one read.
func FindHead(ctx context.Context, r store.Reader, t protocol.Target) (*engine.Head, error) {
	if t.RunID != "" { // usually it exists
		run, err := rowOf(r)(ctx, t.RunID)
		if err == nil && matchesTarget(t, run) {
			return &run.Head, nil
		}
	}
	run, _, err := FindRow(ctx, r, t)
	return run, err
}

// FindRow is like Find, without the run's open activities, timers and signals, whose values may have many megabytes.
func FindRow(ctx context.Context, r store.Reader, t protocol.Target) (*engine.Head, engine.Workflow, error) {
	run, flow, err := find(ctx, r, t, rowOf(r))
	if err != nil {
		return nil, flow, err
	}
	return &run.Head, flow, nil
}

// rowOf loads a run's own row.
func rowOf(r store.Reader) loadRun {
	return func(ctx context.Context, id string) (*engine.Run, error) { return r.Step(ctx, id, 0) }
}

type loadRun func(ctx context.Context, id string) (*engine.Run, error)

func find(
	ctx context.Context, r store.Reader, t protocol.Target, load loadRun,
) (*engine.Run, engine.Workflow, error) {
	for before := ""; ; {
		run, flow, err := findOnce(ctx, r, t, load)
		if err != nil || run.ContinuedTo == "" || flow.RunID != run.ID || run.ID == before {
			return run, flow, err
		}
		before = run.ID
	}
}

func findOnce(
	ctx context.Context, r store.Reader, t protocol.Target, load loadRun,
) (*engine.Run, engine.Workflow, error) {
	var flow engine.Workflow
	id := t.RunID
	if t.WorkflowID != "" {
		f, err := r.Workflow(ctx, engine.WorkflowKey{Namespace: t.Namespace, ID: t.WorkflowID})
		if errors.Is(err, store.ErrNotFound) {
			return nil, flow, WorkflowNotFound(t.WorkflowID)
		}
		if err != nil {
			return nil, flow, err
		}
		flow = f
		if id == "" {
			id = f.RunID
		}
	}
	run, err := load(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !matchesTarget(t, run) {
		return nil, flow, RunNotFound(id)
	}
	if err != nil {
		return nil, flow, err
	}
	if t.WorkflowID == "" {
		flow, err = r.Workflow(ctx, engine.WorkflowKey{Namespace: run.Namespace, ID: run.WorkflowID})
	}
	return run, flow, err
}

// matchesTarget reports whether a run is in the namespace and has the workflow ID of a target.
func matchesTarget(t protocol.Target, run *engine.Run) bool {
	return run.Namespace == t.Namespace && (t.WorkflowID == "" || run.WorkflowID == t.WorkflowID)
}
