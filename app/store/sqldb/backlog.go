package sqldb

import (
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// A poller that found a queue empty does not look again by itself. So whatever a batch leaves ready must be told, and
// told with what it asks for, or all pollers of the queue would claim in vain for it.

// backlog is what ready tasks of a queue ask of workers that nobody took: these lanes, or anything.
type backlog struct {
	anything bool
	lanes    []store.Lane
}

// mostTold is how many lanes of a queue are told apart; beyond that its backlog is for anybody.
const mostTold = 64

func (l *backlog) has(lane store.Lane) bool {
	k := l.like(lane)
	return k != nil && k.Priority <= lane.Priority || l.anything
}

// like is the lane of those that asks the same, nil when there is none.
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

// leave notes that ready tasks of these lanes were left in a queue. Without any lane, tasks of all of them may
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

// laneOf is what a task of the batch's rows asks of workers, apart from what its session asks, and how urgent it is. A
// task that is not there has no type, and stands for any.
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
