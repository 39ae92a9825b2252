package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
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

// pollKey names a poll. A worker's polls for workflow tasks and for the validation of updates go one way and share their ids; those for activities,
// queries and mixed batches each have ids of their own.
type pollKey struct {
	worker engine.WorkerKey
	id     string
	way    string
}

type pollEntry struct {
	kinds   []protocol.TaskKind
	done    chan struct{} // closed when answer and err stand
	answer  protocol.PollAnswer
	err     error
	at      time.Time
	readers int // answers given with these tasks, less those that could not be delivered; guarded by the memory's mu
}

// once runs poll, or joins the open poll of that key, or repeats its answer while valid says its tasks are still leased. When they are not, the poll is
// refused, or made anew if anew says so.
func (m *pollMemory) once(
	ctx context.Context, k pollKey, kinds []protocol.TaskKind, anew bool,
	poll func() (protocol.PollAnswer, error), valid func(protocol.PollAnswer) (bool, error),
) (protocol.PollAnswer, error) {
	for {
		e, first := m.entry(k, kinds)
		if first {
			e.answer, e.err = poll()
			m.finish(k, e, e.err == nil && e.answer.Status == protocol.PollLeased)
			return m.read(k, e), e.err
		}
		if !sameKinds(e.kinds, kinds) {
			return protocol.PollAnswer{}, protocol.Refuse(protocol.ReasonPollKinds, "poll_request_id %s was sent for other kinds of tasks", k.id).
				With("poll_status", protocol.PollConflict).With("poll_request_id", k.id).With("requested_task_kinds", kinds).With("bound_task_kinds", e.kinds)
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return protocol.PollAnswer{}, context.Cause(ctx)
		}
		if e.err == nil && e.answer.Status == protocol.PollLeased && m.join(k, e) {
			switch still, err := valid(e.answer); {
			case err != nil:
				return protocol.PollAnswer{}, err
			case still:
				return m.read(k, e), nil
			case !anew:
				return protocol.PollAnswer{}, protocol.Refuse(protocol.ReasonPollExpired,
					"what poll_request_id %s was given is leased to the worker no more; poll under another id", k.id).
					With("poll_status", protocol.PollConflict).With("poll_request_id", k.id)
			}
		}
		m.forget(k, e)
	}
}

func sameKinds(a, b []protocol.TaskKind) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(k protocol.TaskKind) bool { return !slices.Contains(b, k) })
}

func (m *pollMemory) entry(k pollKey, kinds []protocol.TaskKind) (*pollEntry, bool) {
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
	if e, ok := m.polls[k]; ok && (e.at.IsZero() || time.Since(e.at) <= pollKept) {
		return e, false
	}
	e := &pollEntry{kinds: kinds, done: make(chan struct{}), readers: 1}
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

// join counts a further answer with the tasks of an entry; false means that they are given back already.
func (m *pollMemory) join(k pollKey, e *pollEntry) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.polls[k] != e {
		return false
	}
	e.readers++
	return true
}

// read is an entry's answer for one caller. Its tasks go back when no answer that carried them could be delivered.
func (m *pollMemory) read(k pollKey, e *pollEntry) protocol.PollAnswer {
	a := e.answer
	if a.Status != protocol.PollLeased {
		return a
	}
	a.Undo = sync.OnceFunc(func() {
		m.mu.Lock()
		e.readers--
		over := e.readers == 0
		if over && m.polls[k] == e {
			delete(m.polls, k)
		}
		m.mu.Unlock()
		if over {
			e.answer.Undo()
		}
	})
	return a
}

func (m *pollMemory) forget(k pollKey, e *pollEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.polls[k] == e {
		delete(m.polls, k)
	}
}

// wayOf is the way that polls for these kinds go; see pollKey.
func wayOf(kinds []protocol.TaskKind) string {
	if !slices.ContainsFunc(kinds, func(k protocol.TaskKind) bool { return k != protocol.KindWorkflow && k != protocol.KindValidation }) {
		return string(protocol.KindWorkflow)
	}
	return fmt.Sprint(kinds)
}

// leasedBefore finds what this poll was given by an app that did not remember it: another one, or this one before it restarted. The lease says which
// poll it was made for. Only for a while after the worker came from there is it worth a look.
func (b *Broker) leasedBefore(ctx context.Context, in protocol.PollRequest, w *engine.Worker) (protocol.PollAnswer, error) {
	var adopted time.Time
	b.workers.with(w.Key(), func(h *heard) { adopted = h.adopted })
	if in.PollID == "" || adopted.IsZero() || time.Since(adopted) > pollKept {
		return protocol.PollAnswer{}, nil
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return protocol.PollAnswer{}, err
	}
	var leased []store.Leased
	err = b.store.View(ctx, func(r store.Reader) error {
		refs, err := r.Owned(ctx, w.Key(), w.Incarnation)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			if ref.PollID != in.PollID || !slices.Contains(in.Kinds, ref.Kind) {
				continue
			}
			run, err := r.Run(ctx, ref.Run)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			if l, ok := stillHeld(ctx, r, run, ref, now); ok {
				leased = append(leased, l)
			}
		}
		return nil
	})
	if err != nil || len(leased) == 0 {
		return protocol.PollAnswer{}, err
	}
	return b.answer(ctx, in, leased)
}

// stillHeld is a lease that was found again, as it was given.
func stillHeld(ctx context.Context, r store.Reader, run *engine.Run, ref store.TaskRef, now time.Time) (store.Leased, bool) {
	if run == nil {
		return store.Leased{}, false
	}
	if ref.Kind == protocol.KindWorkflow {
		t := run.Task
		ok := t != nil && t.Number == ref.Seq && t.State == engine.LeasedState && t.Delivery == ref.Delivery && t.Until.After(now)
		return store.Leased{Kind: ref.Kind, Head: run.Head}, ok
	}
	a, ok := run.Activities.Get(ref.Seq)
	if !ok || a.State != engine.LeasedState || a.Delivery != ref.Delivery || !a.Until.After(now) {
		return store.Leased{}, false
	}
	l := store.Leased{Kind: ref.Kind, Head: run.Head, Activity: &a, IsNew: a.New}
	if a.SessionID != "" {
		s, err := r.Session(ctx, engine.SessionKey{Namespace: run.Namespace, ID: a.SessionID})
		if err != nil {
			return store.Leased{}, false
		}
		l.Session = &s
	}
	return l, true
}
