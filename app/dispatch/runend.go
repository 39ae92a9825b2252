package dispatch

import (
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// A request that waits for the result of a workflow needs no reads until the last run of its chain has closed: the
// notification of a closed run contains the ID of the run that continues it.

// RunEnds collects the closed runs of one workflow ID, from [Hub.WatchRunEnds] until Stop.
type RunEnds struct {
	// C receives a value when the result of Last may have changed.
	C <-chan struct{}
	// Open is the run that was open when the subscription began, if this app committed it; otherwise empty. If another
	// app has closed the run, it is open here until that app's notification arrives.
	Open string

	hub *Hub
	c   chan struct{}
	run string // set if the subscription is to a run instead of a workflow ID
	key engine.WorkflowKey
	// The fields below are guarded by hub.mu.
	closed map[string]store.RunChange // by run ID, until Last has passed them
	missed bool
}

// maxRunEnds is the maximum number of closed runs that RunEnds stores. It stores a closed run until the preceding run
// of the chain is reported as closed, because notifications of different apps may arrive in another order than their
// commits.
const maxRunEnds = 100

// WatchRunEnds subscribes to the closed runs of the workflow ID in the key or, if the key is empty, of the workflow ID
// of the run. If this app does not know the workflow ID of the run, it subscribes only to the end of the run; see
// Extend. If the subscription begins before the run is read, no end is missed. If run is empty, Open is the current
// run.
func (h *Hub) WatchRunEnds(k engine.WorkflowKey, run string) *RunEnds {
	c := make(chan struct{}, 1)
	w := &RunEnds{C: c, c: c, hub: h, key: k, closed: map[string]store.RunChange{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	of, known := h.ends.open[run]
	switch {
	case run == "":
		w.Open = h.ends.current[k]
	case known && of.Namespace == k.Namespace && (k.ID == "" || of.ID == k.ID):
		w.Open, w.key = run, of
	}
	if w.key.ID == "" {
		w.run = run
	}
	h.ends.add(w)
	return w
}

// Extend changes a subscription to one run into a subscription to all runs of its workflow ID.
func (w *RunEnds) Extend(workflow string) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.run == "" {
		return
	}
	w.hub.ends.remove(w)
	w.run, w.key.ID = "", workflow
	w.hub.ends.add(w)
	w.missed = w.missed || len(w.closed) > 0 // the next run may have closed before this call
}

// Stop ends the subscription.
func (w *RunEnds) Stop() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.hub.ends.remove(w)
}

// Last follows a chain of runs from one of its runs to the last run that is known to this app. The returned Closed is
// false if that run is open as far as this app knows. missed reports, once, that notifications may have been lost, so
// the run must be read.
func (w *RunEnds) Last(run string) (last store.RunChange, missed bool) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	missed, w.missed = w.missed, false
	for {
		c, ok := w.closed[run]
		switch {
		case !ok:
			return store.RunChange{RunID: run}, missed
		case c.ContinuedTo == "":
			return c, missed
		}
		delete(w.closed, run)
		run = c.ContinuedTo
	}
}

// runEnds contains the subscribers to ends of runs, and the open runs that are known. It is guarded by Hub.mu.
type runEnds struct {
	byRun      map[string]map[*RunEnds]struct{}
	byWorkflow map[engine.WorkflowKey]map[*RunEnds]struct{}
	open       map[string]engine.WorkflowKey // runs that this app committed and that have not been reported as closed
	current    map[engine.WorkflowKey]string // run IDs by workflow: the inverse of open
	// runs closed by other apps, for which a notification of an earlier commit may still arrive
	remote map[string]struct{}
}

// maxOpenRuns is the maximum number of known open runs, and of runs that other apps closed.
const maxOpenRuns = 10_000

func (e *runEnds) add(w *RunEnds) {
	if w.run != "" {
		subscribe(&e.byRun, w.run, w)
	} else {
		subscribe(&e.byWorkflow, w.key, w)
	}
}

func (e *runEnds) remove(w *RunEnds) {
	if w.run != "" {
		unsubscribe(e.byRun, w.run, w)
	} else {
		unsubscribe(e.byWorkflow, w.key, w)
	}
}

func subscribe[K comparable](m *map[K]map[*RunEnds]struct{}, k K, w *RunEnds) {
	if *m == nil {
		*m = map[K]map[*RunEnds]struct{}{}
	}
	if (*m)[k] == nil {
		(*m)[k] = map[*RunEnds]struct{}{}
	}
	(*m)[k][w] = struct{}{}
}

func unsubscribe[K comparable](m map[K]map[*RunEnds]struct{}, k K, w *RunEnds) {
	delete(m[k], w)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

// changed notifies the subscribers of closed runs, and updates the known open runs.
func (e *runEnds) changed(c *store.Changed) {
	for i := range c.Runs {
		r := &c.Runs[i]
		k := engine.WorkflowKey{Namespace: r.Namespace, ID: r.WorkflowID}
		switch {
		case !r.Closed && !c.Remote:
			e.opened(r.RunID, k)
		case r.Closed:
			e.closed(r.RunID, k, c.Remote)
			for w := range e.byRun[r.RunID] {
				w.add(r)
			}
			for w := range e.byWorkflow[k] {
				w.add(r)
			}
		}
	}
}

func (e *runEnds) opened(run string, k engine.WorkflowKey) {
	_, open := e.open[run]
	_, remote := e.remote[run]
	if open || remote {
		return
	}
	if e.open == nil {
		e.open, e.current = map[string]engine.WorkflowKey{}, map[engine.WorkflowKey]string{}
	}
	if len(e.open) >= maxOpenRuns {
		for other, of := range e.open { // the map is full: remove an arbitrary entry
			e.forget(other, of)
			break
		}
	}
	e.open[run], e.current[k] = k, run
}

func (e *runEnds) closed(run string, k engine.WorkflowKey, remote bool) {
	e.forget(run, k)
	if !remote {
		return
	}
	if e.remote == nil {
		e.remote = map[string]struct{}{}
	}
	if len(e.remote) >= maxOpenRuns {
		for other := range e.remote { // the map is full: remove an arbitrary entry
			delete(e.remote, other)
			break
		}
	}
	e.remote[run] = struct{}{}
}

func (e *runEnds) forget(run string, k engine.WorkflowKey) {
	delete(e.open, run)
	if e.current[k] == run {
		delete(e.current, k)
	}
}

func (w *RunEnds) add(r *store.RunChange) {
	if len(w.closed) >= maxRunEnds {
		clear(w.closed)
		w.missed = true
	}
	c := *r
	// the run was closed before: for example, an archived run is reported again
	if c.Cancelled = nil; c.Closing == nil {
		c.Closing = w.closed[r.RunID].Closing
	}
	w.closed[r.RunID] = c
	nudge(w.c)
}

// missed reports to all subscribers that notifications were lost, and clears the known open runs.
func (e *runEnds) missed() {
	clear(e.open)
	clear(e.current)
	clear(e.remote)
	for _, all := range e.byRun {
		missedAll(all)
	}
	for _, all := range e.byWorkflow {
		missedAll(all)
	}
}

func missedAll(all map[*RunEnds]struct{}) {
	for w := range all {
		w.missed = true
		nudge(w.c)
	}
}
