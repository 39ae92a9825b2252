package invariants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/session"
)

// memory is the session state of one process. Package worker/session decides when to suspend, resume and drop it.
// memory checks two invariants: the process starts no work under an epoch whose state it dropped, and the epochs of the
// tasks that it receives never decrease within a session.
type memory struct {
	*proc
	sessions *session.Sessions

	mu       sync.Mutex // guards the fields below
	built    map[epochOf]*state
	highest  map[string]int64 // session → highest epoch of a task that the process received
	released map[string]int64 // session → highest epoch whose release an app confirmed
}

var errCut = errors.New("the network is cut")

type epochOf struct {
	session string
	epoch   int64
}

// state is the fake state of an activity in a session.
type state struct{ closed atomic.Bool }

func (s *state) Close() { s.closed.Store(true) }

func newMemory(p *proc, seed uint64) *memory {
	m := &memory{proc: p, built: map[epochOf]*state{}, highest: map[string]int64{}, released: map[string]int64{}}
	var random sync.Mutex
	r := rand.New(rand.NewPCG(seed, 4))
	var err error
	m.sessions, err = session.New(session.Options{
		Lease: p.lease, Buffer: 5 * time.Millisecond, Idle: time.Hour,
		NewState: func() session.State { return &state{} },
		GiveUp: func(_ context.Context, id string, epoch, known int64) error {
			random.Lock()
			defer random.Unlock()
			return m.releaseByVerb(id, epoch, known, r)
		},
	}, time.Second)
	if err != nil {
		p.fail(err)
	}
	return m
}

// confirmed returns a copy of released.
func (m *memory) confirmed() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.released)
}

// enters makes a received task enter its session. It returns nil if the process returned the task. released is the
// result of confirmed before the poll.
func (m *memory) enters(
	task *protocol.ActivityTask, released map[string]int64, sent time.Time, r *rand.Rand,
) *session.Holding {
	s := task.Session
	m.mu.Lock()
	if s.Epoch < m.highest[s.SessionID] {
		m.fail(fmt.Errorf("process %s received a task of session %s under epoch %d after one under %d",
			m.incarnation, s.SessionID, s.Epoch, m.highest[s.SessionID]))
	}
	m.highest[s.SessionID] = max(m.highest[s.SessionID], s.Epoch)
	if s.Epoch <= released[s.SessionID] {
		m.fail(fmt.Errorf("process %s received a task of session %s under epoch %d, which it had given up",
			m.incarnation, s.SessionID, s.Epoch))
	}
	m.mu.Unlock()
	h, err := m.sessions.Enter(s, session.Lease{Sent: sent})
	if err != nil {
		m.sessions.Refused(context.Background(), s, err)
		_, b := m.app(r)
		finish(context.Background(), b, m.ns, task, func(item *protocol.CompleteItem) { item.Returned = "session_given_up" })
		m.count(func(s *schedule) { s.returned++ })
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at, built := epochOf{s.SessionID, s.Epoch}, h.State.(*state)
	if former := m.built[at]; former != nil && former != built {
		m.fail(fmt.Errorf("process %s built state twice for session %s under epoch %d", m.incarnation, s.SessionID, s.Epoch))
	}
	m.built[at] = built
	if built.closed.Load() {
		m.fail(fmt.Errorf("process %s started work of session %s under epoch %d, whose state it had dropped",
			m.incarnation, s.SessionID, s.Epoch))
	}
	return h
}

// releaseByVerb sends a release request for an epoch whose state the process has dropped.
func (m *memory) releaseByVerb(id string, epoch, known int64, r *rand.Rand) error {
	i, b := m.app(r)
	c, at := m.names(giveUp, id, epoch, i)
	_, err := b.ReleaseSession(context.Background(), protocol.SessionVerb{
		WorkerID: m.name, Namespace: m.ns, SessionID: id, Epoch: epoch, Known: known, Reason: protocol.ReasonGivenUp,
	})
	if err != nil && protocol.ReasonOf(err) == "" {
		return err
	}
	m.recordRelease(c, at)
	return nil
}

// recordRelease records that an app confirmed the release of an epoch whose state the process had dropped.
func (m *memory) recordRelease(c call, at int64) {
	m.record(c, reply{ok: true, after: m.now()}, at)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released[c.session] = max(m.released[c.session], c.epoch)
}

func (m *memory) names(k kind, id string, epoch int64, app int) (call, int64) {
	return call{
		kind: k, worker: m.name, incarnation: m.incarnation, session: id, epoch: epoch, app: app, before: m.now(),
		lease: m.lease.Microseconds(),
	}, m.at()
}

// beats sends heartbeats with the renewals, resumes and releases that package worker/session requests. At random, and
// more often while the network is down, it drops the state of a session as under memory pressure.
func (m *memory) beats(ctx context.Context, r *rand.Rand) {
	for m.resume(ctx) {
		time.Sleep(time.Duration(1+r.IntN(4)) * time.Millisecond)
		if m.pass(m.some(r, 0, 1) / 4); !m.resume(ctx) {
			return
		}
		if r.IntN(12) == 0 || m.cut.Load() && r.IntN(3) == 0 {
			m.evicts(r)
		}
		if !m.heartbeat(r) {
			return
		}
	}
}

// heartbeat sends one heartbeat, unless no session needs one. It returns false if the process is no longer registered.
func (m *memory) heartbeat(r *rand.Rand) bool {
	sent := time.Now()
	asked, _ := m.sessions.Due(sent)
	if len(asked) == 0 {
		return true
	}
	if m.cut.Load() {
		m.sessions.Renewed(sent, time.Time{}, asked, nil, errCut)
		if r.IntN(3) == 0 {
			m.pass(m.some(r, 0, 4)) // polls may reach an app before the next heartbeat
		}
		return true
	}
	i, b := m.app(r)
	calls := make([]call, len(asked))
	var at int64
	for k, s := range asked {
		what := renew
		if s.Resume {
			what = resume
		} else if s.GivenUp {
			what = giveUp
		}
		calls[k], at = m.names(what, s.SessionID, s.Epoch, i)
	}
	a, err := b.WorkerHeartbeat(context.Background(), protocol.WorkerHeartbeat{
		WorkerID: m.name, Namespace: m.ns, Incarnation: m.incarnation, Sessions: asked,
	})
	m.sessions.Renewed(sent, a.StoreTime.Time, asked, a.Sessions, err)
	switch {
	case protocol.ReasonOf(err) == protocol.ReasonStaleRegistration:
		return false
	case err != nil:
		m.fail(fmt.Errorf("heartbeat: %w", err))
		return false
	}
	for k, s := range a.Sessions {
		switch c := calls[k]; {
		case c.kind == giveUp && !s.Held:
			m.recordRelease(c, at)
		case c.kind == giveUp: // the release was not stored
		case s.Held:
			m.record(c, m.granted(s.Epoch, s.LeaseExpiresAt), at)
		default:
			m.record(c, reply{reason: s.Reason, after: m.now()}, at)
		}
	}
	return true
}

// evicts drops the state of one session, unless a task runs in it or an app refuses the release.
func (m *memory) evicts(r *rand.Rand) {
	id := m.schedule.sessions[r.IntN(len(m.schedule.sessions))]
	for _, h := range m.sessions.List() {
		if h.SessionID != id {
			continue
		}
		m.sessions.Evict(id, h.Epoch, "memory", func() error {
			if m.cut.Load() {
				return errCut
			}
			i, b := m.app(r)
			c, at := m.names(release, id, h.Epoch, i)
			_, err := b.ReleaseSession(context.Background(), protocol.SessionVerb{
				WorkerID: m.name, Namespace: m.ns, SessionID: id, Epoch: h.Epoch, Reason: "memory",
			})
			if err == nil {
				m.record(c, reply{ok: true, after: m.now()}, at)
			} else if reason := protocol.ReasonOf(err); reason != "" {
				m.record(c, reply{reason: string(reason), after: m.now()}, at)
			}
			return err
		})
	}
}
