package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// pollKept is how long the answer to a poll_request_id is remembered.
const pollKept = 120 * time.Second

// pollMemory answers a repeated poll with what the first one got, so that a lost answer costs no lease.
type pollMemory struct {
	mu    sync.Mutex // guards polls
	polls map[pollKey]*pollEntry
	swept time.Time
}

type pollKey struct {
	worker engine.WorkerKey
	id     string
	kinds  string
}

type pollEntry struct {
	done   chan struct{} // closed when answer and err stand
	answer protocol.PollAnswer
	err    error
	at     time.Time
}

// once runs poll, or joins the open poll of that key, or repeats its answer while valid says its tasks are still leased.
func (m *pollMemory) once(
	ctx context.Context, k pollKey, poll func() (protocol.PollAnswer, error), valid func(protocol.PollAnswer) bool,
) (protocol.PollAnswer, error) {
	for {
		e, first := m.entry(k)
		if first {
			e.answer, e.err = poll()
			m.finish(k, e, e.err == nil && e.answer.Status == protocol.PollLeased)
			return e.answer, e.err
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return protocol.PollAnswer{}, context.Cause(ctx)
		}
		if e.err == nil && e.answer.Status == protocol.PollLeased && valid(e.answer) {
			again := e.answer
			again.Undo = func() {}
			return again, nil
		}
		m.forget(k, e)
	}
}

func (m *pollMemory) entry(k pollKey) (*pollEntry, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.polls == nil {
		m.polls = map[pollKey]*pollEntry{}
	}
	if now := time.Now(); now.Sub(m.swept) > pollKept/4 {
		m.swept = now
		for k, e := range m.polls {
			if !e.at.IsZero() && now.Sub(e.at) > pollKept {
				delete(m.polls, k)
			}
		}
	}
	if e, ok := m.polls[k]; ok {
		return e, false
	}
	e := &pollEntry{done: make(chan struct{})}
	m.polls[k] = e
	return e, true
}

// finish publishes the answer; only one that leased something is worth keeping.
func (m *pollMemory) finish(k pollKey, e *pollEntry, keep bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.at = time.Now()
	if !keep {
		delete(m.polls, k)
	}
	close(e.done)
}

func (m *pollMemory) forget(k pollKey, e *pollEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.polls[k] == e {
		delete(m.polls, k)
	}
}

func kindsKey(kinds []protocol.TaskKind) string { return fmt.Sprint(kinds) }
