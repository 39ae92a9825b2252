package sqldb

import (
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// A poller that found a queue empty waits for a notice. So every batch must report the ready tasks that it leaves, with
// their requirements; otherwise all pollers of the queue would claim in vain.

// backlog holds the requirements of a queue's ready tasks that no poller leased: these lanes, or any worker.
type backlog struct {
	anything bool
	lanes    []store.Lane
}

// mostTold is the maximum number of lanes of a queue that are reported separately; with more lanes, all pollers are
// notified.
const mostTold = 64

func (l *backlog) has(lane store.Lane) bool {
	k := l.like(lane)
	return k != nil && k.Priority <= lane.Priority || l.anything
}

// like returns the lane in the backlog with the same requirements, or nil.
func (l *backlog) like(lane store.Lane) *store.Lane {
	for i := len(l.lanes) - 1; i >= 0; i-- { // most tasks are like the one before
		k := &l.lanes[i]
		if k.Type == lane.Type && k.BuildID == lane.BuildID && slices.Equal(k.Requirements, lane.Requirements) {
			return k
		}
	}
	return nil
}

func (l *backlog) add(lane store.Lane) {
	switch k := l.like(lane); {
	case l.anything:
	case k != nil:
		k.Priority = min(k.Priority, lane.Priority)
	case lane.Type == "" || len(l.lanes) == mostTold:
		*l = backlog{anything: true}
	default:
		l.lanes = append(l.lanes, lane)
	}
}

// leave records that ready tasks of these lanes were left in a queue. Without any lane, tasks of all of them may
// have been.
func (b *batch) leave(q QueueKey, lanes ...store.Lane) {
	l := b.backlog[q]
	if l == nil {
		l = &backlog{}
		b.backlog[q] = l
	}
	if len(lanes) == 0 {
		*l = backlog{anything: true}
	}
	for _, lane := range lanes {
		l.add(lane)
	}
}

// laneOf returns the requirements of a task, without those of its session, and its priority. For a task that does not
// exist it returns a lane without a type, which matches all.
func (b *batch) laneOf(t taskKey) store.Lane {
	r := b.runs[t.run]
	switch {
	case r.Run == nil:
	case t.seq == 0:
		w := r.Wanted()
		return store.Lane{Type: w.Type, BuildID: w.BuildID, Requirements: w.Requirements, Priority: r.Priority}
	default:
		if a, ok := r.Activities.Get(t.seq); ok {
			return activityAsks(&a)
		}
	}
	return store.Lane{}
}

func activityAsks(a *engine.Activity) store.Lane {
	return store.Lane{Type: a.Type, Requirements: a.Requirements, Priority: a.Priority}
}
