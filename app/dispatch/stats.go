package dispatch

import (
	"cmp"
	"slices"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These counts are about events between a poll and a commit, which no table records: how many polls wait, how many
// claims were empty, how many tasks were released. They help operators find out why tasks of a queue are not
// dispatched. They cover only this process; monitoring adds them up over all apps.

// Counts are totals since the start of the process, for metrics.
type Counts struct {
	Handovers    int64 // tasks that were delivered through a reservation
	Undone       int64 // reservations whose commit failed
	Claims       int64 // claims sent
	Claimed      int64 // tasks that claims delivered
	NoMemory     int64 // polls refused because the app had no memory for their tasks
	EmptyClaims  int64 // claims without a task, including failed ones
	FailedClaims int64
	Throttled    int64 // claims in which a limit delayed tasks
	EmptyPolls   int64 // polls that ended without a task
	Returned     int64 // tasks released because their poll had ended
	Waiting      int   // polls that wait now
}

// Counts returns the totals.
func (d *Dispatch) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.count
	c.Waiting = len(d.waiters)
	return c
}

// QueueWaiters counts the polls that wait for one kind of task of one queue.
type QueueWaiters struct {
	Namespace, Queue string
	Kind             protocol.TaskKind
	Waiting          int
}

// Waiting returns the number of waiting polls per queue of a namespace, for the kind of task with most polls. One poll
// may wait for several kinds, so the kinds are not added up.
func (d *Dispatch) Waiting(namespace string) map[string]int {
	m := map[string]int{}
	for _, q := range d.Queues() {
		if q.Namespace == namespace {
			m[q.Queue] = max(m[q.Queue], q.Waiting)
		}
	}
	return m
}

// Queues lists the queues with waiting polls, by name and kind.
func (d *Dispatch) Queues() []QueueWaiters {
	d.mu.Lock()
	var all []QueueWaiters
	for k, l := range d.pollQueues {
		if l.size > 0 {
			all = append(all, QueueWaiters{k.namespace, k.queue, kindNames[k.kind], l.size})
		}
	}
	d.mu.Unlock()
	slices.SortFunc(all, func(a, b QueueWaiters) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}
