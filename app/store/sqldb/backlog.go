package sqldb

import (
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// A poll that found a queue empty waits for a notification. So every batch must report the ready tasks that it leaves,
// with their requirements; otherwise all polls of the queue would claim in vain.

// backlog contains the requirements of a queue's ready tasks that no poll leased: their routing keys, or that they may
// have any.
type backlog struct {
	anyKey bool
	keys   []store.RoutingKey
}

// maxAnnouncedKeys is the maximum number of routing keys of a queue that are reported separately. With more of them,
// all polls are notified.
const maxAnnouncedKeys = 64

func (l *backlog) has(key store.RoutingKey) bool {
	k := l.findSame(key)
	return k != nil && k.Priority <= key.Priority || l.anyKey
}

// findSame returns the routing key in the backlog with the same requirements, or nil.
func (l *backlog) findSame(key store.RoutingKey) *store.RoutingKey {
	for i := len(l.keys) - 1; i >= 0; i-- { // search backwards: most tasks are like the previous one
		k := &l.keys[i]
		if k.Type == key.Type && k.BuildID == key.BuildID && slices.Equal(k.Requirements, key.Requirements) {
			return k
		}
	}
	return nil
}

func (l *backlog) add(key store.RoutingKey) {
	switch k := l.findSame(key); {
	case l.anyKey:
	case k != nil:
		k.Priority = min(k.Priority, key.Priority)
	case key.Type == "" || len(l.keys) == maxAnnouncedKeys:
		*l = backlog{anyKey: true}
	default:
		l.keys = append(l.keys, key)
	}
}

// addBacklog records that ready tasks with these routing keys were left in a queue. Without routing keys, the tasks may
// have any.
func (b *batch) addBacklog(q QueueKey, keys ...store.RoutingKey) {
	l := b.backlog[q]
	if l == nil {
		l = &backlog{}
		b.backlog[q] = l
	}
	if len(keys) == 0 {
		*l = backlog{anyKey: true}
	}
	for _, key := range keys {
		l.add(key)
	}
}

// routingKeyOf returns the requirements of a task, without those of its session, and its priority. For a task that does
// not exist it returns a routing key without a type, which matches every worker.
func (b *batch) routingKeyOf(t taskKey) store.RoutingKey {
	r := b.runs[t.run]
	switch {
	case r.Run == nil:
	case t.seq == 0:
		w := r.TaskRequirements()
		return store.RoutingKey{Type: w.Type, BuildID: w.BuildID, Requirements: w.Requirements, Priority: r.Priority}
	default:
		if a, ok := r.Activities.Get(t.seq); ok {
			return activityRoutingKeyForWorkers(&a)
		}
	}
	return store.RoutingKey{}
}

func activityRoutingKeyForWorkers(a *engine.Activity) store.RoutingKey {
	return store.RoutingKey{Type: a.Type, Requirements: a.Requirements, Priority: a.Priority}
}
