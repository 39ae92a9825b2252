package querytask

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An app alone on its database keeps query tasks in memory. They are lost with the process, as are the connections of
// their callers.

// memoryQueue holds the query tasks of an app alone on its database.
type memoryQueue struct {
	backlog func(queueKey)

	mu    sync.Mutex // guards the fields below
	all   map[string]*waiter
	ready map[queueKey][]*waiter // waiting tasks in order of arrival
}

// waiter is a query task in memory, guarded by mu of memory.
type waiter struct {
	store.Question
	answer chan store.Reply // holds one reply
}

func newMemoryQueue(backlog func(queueKey)) *memoryQueue {
	return &memoryQueue{backlog: backlog, all: map[string]*waiter{}, ready: map[queueKey][]*waiter{}}
}

func (m *memoryQueue) add(_ context.Context, q store.Question, timeout time.Duration, most int) error {
	in := queueKeyOf(&q)
	q.Until = time.Now().Add(timeout)
	m.mu.Lock()
	if len(m.ready[in]) >= most {
		m.mu.Unlock()
		return store.ErrFull
	}
	l := &waiter{Question: q, answer: make(chan store.Reply, 1)}
	m.all[q.ID] = l
	m.ready[in] = append(m.ready[in], l)
	m.mu.Unlock()
	m.backlog(in)
	return nil
}

func (m *memoryQueue) waiting(_ context.Context, in queueKey, limit int) (list []store.Question, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.ready[in][:min(limit, len(m.ready[in]))] {
		list = append(list, l.Question)
	}
	return list, nil
}

func (m *memoryQueue) lease(_ context.Context, q store.Question) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.all[q.ID]
	if l == nil || l.Over || l.Owner != "" || l.Attempt != q.Attempt-1 {
		return false, nil
	}
	l.Owner, l.Incarnation, l.Attempt = q.Owner, q.Incarnation, q.Attempt
	m.unready(l)
	return true, nil
}

func (m *memoryQueue) unready(l *waiter) {
	in := queueKeyOf(&l.Question)
	m.ready[in] = slices.DeleteFunc(m.ready[in], func(o *waiter) bool { return o == l })
	if len(m.ready[in]) == 0 {
		delete(m.ready, in)
	}
}

func (m *memoryQueue) get(_ context.Context, id string) (store.Question, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.all[id]; l != nil {
		return l.Question, nil
	}
	return store.Question{}, store.ErrNotFound
}

func (m *memoryQueue) requeue(_ context.Context, id string, attempt int64) error {
	m.mu.Lock()
	l := m.all[id]
	if l == nil || l.Over || l.Owner == "" || attempt != 0 && attempt != l.Attempt {
		m.mu.Unlock()
		return nil
	}
	l.Owner, l.Incarnation = "", ""
	in := queueKeyOf(&l.Question)
	m.ready[in] = slices.Insert(m.ready[in], 0, l)
	m.mu.Unlock()
	m.backlog(in)
	return nil
}

func (m *memoryQueue) complete(_ context.Context, q store.Question, r store.Reply) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.all[q.ID]
	if l == nil || l.Over || l.Owner != q.Owner || l.Attempt != q.Attempt || !time.Now().Before(l.Until) {
		return false, nil
	}
	l.Over = true
	l.answer <- r
	return true, nil
}

func (m *memoryQueue) reply(ctx context.Context, id string) (store.Reply, error) {
	m.mu.Lock()
	l := m.all[id]
	m.mu.Unlock()
	if l == nil {
		return store.Reply{}, store.ErrNotFound
	}
	select {
	case r := <-l.answer:
		return r, nil
	case <-ctx.Done():
		return store.Reply{}, context.Cause(ctx)
	}
}

func (m *memoryQueue) count(
	_ context.Context, namespace string, kind protocol.TaskKind,
) (map[string]protocol.QueryTally, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]protocol.QueryTally{}
	for _, l := range m.all {
		if l.Namespace != namespace || l.Kind != kind || l.Over {
			continue
		}
		t := counts[l.Queue]
		if l.Owner == "" {
			t.Ready++
		} else {
			t.Leased++
		}
		counts[l.Queue] = t
	}
	return counts, nil
}

func (m *memoryQueue) remove(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.all[id]; l != nil {
		delete(m.all, id)
		m.unready(l)
	}
	return nil
}
