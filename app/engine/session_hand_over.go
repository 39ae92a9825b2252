package engine

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A hand-over moves a session to another worker without a set-up for which tasks wait: make before break. The app
// reserves a place at a successor, which runs the set-up while the owner still runs tasks of the session. The prepared
// state has a lease and no epoch, so it serves no attempt. One decision on the session's row ends the ownership of the
// former owner and acquires the session for the successor under the next epoch. Anything else that ends the epoch for
// which the state was prepared discards it.

// Preparation is a successor's set-up of a session that another worker owns. It has what the acquisition for the
// successor needs, since the decision that hands the session over does not read the row of the successor.
type Preparation struct {
	Worker      string `json:"worker"`
	Incarnation string `json:"incarnation"`
	Release     string `json:"release,omitempty"`
	// Epoch is the epoch of the session while the state is prepared. A later epoch makes the state useless.
	Epoch int64        `json:"epoch"`
	Until history.Time `json:"until"` // end of the lease, which the successor's heartbeats renew
	// StartedAt is when the app chose the successor; zero in rows of apps that did not store it.
	StartedAt history.Time `json:"started_at,omitzero"`
	// PreparedAt is when the successor reported the end of its set-up; zero: the set-up still runs.
	PreparedAt history.Time `json:"prepared_at,omitzero"`
	// Operator is the operator who drains the owner, or the owner if it drains itself.
	Operator string   `json:"operator,omitempty"`
	Queues   []string `json:"queues,omitempty"`
	// Length is the length of the preparation's lease, and of the lease of the session unless the session has its own.
	Length int64 `json:"length"` // in microseconds
	Idle   int64 `json:"idle,omitempty"`
	// DefaultMaxActivities is the maximum that the successor registered; 0: its slots.
	DefaultMaxActivities int `json:"together,omitempty"`
	// Balance: the owner does not drain. The session moves because the successor holds fewer sessions, and only while no
	// activity runs in it.
	Balance bool `json:"balance,omitempty"`
	// Resources are the resources that the session uses at the successor.
	Resources protocol.Resources `json:"resources,omitempty"`
	// Resumes: the successor suspends the state of sessions whose lease has ended.
	Resumes bool `json:"resumes,omitempty"`
	// Snapshots: the successor can restore snapshots of the session's definition.
	Snapshots bool `json:"snapshots,omitempty"`
	Restored  bool `json:"restored,omitempty"` // the successor has restored the owner's snapshot
}

func (p *Preparation) same(o *Preparation) bool {
	if p == nil || o == nil || p == o {
		return p == o
	}
	return p.Worker == o.Worker && p.Incarnation == o.Incarnation && p.Release == o.Release && p.Epoch == o.Epoch &&
		p.Until == o.Until && p.StartedAt == o.StartedAt && p.PreparedAt == o.PreparedAt && p.Operator == o.Operator &&
		p.Length == o.Length && p.Idle == o.Idle && p.DefaultMaxActivities == o.DefaultMaxActivities &&
		p.Balance == o.Balance && p.Resumes == o.Resumes && p.Snapshots == o.Snapshots && p.Restored == o.Restored &&
		p.Resources.Equal(o.Resources) &&
		slices.Equal(p.Queues, o.Queues)
}

// worker returns the successor's registration, as far as an acquisition reads it.
func (p *Preparation) worker() *Worker {
	return &Worker{
		ID: p.Worker, Incarnation: p.Incarnation, Release: p.Release, Queues: p.Queues, SessionLease: p.Length,
		SessionIdle: p.Idle, DefaultMaxActivities: p.DefaultMaxActivities, ResumesSessions: p.Resumes,
	}
}

// by reports whether this process of a worker prepares the session under the session's epoch.
func (p *Preparation) by(w *Worker, epoch int64) bool {
	return p != nil && p.Worker == w.ID && p.Incarnation == w.Incarnation && p.Epoch == epoch
}

// continues reports whether p is the preparation that was read as o: the same process prepares for the same epoch. Its
// lease and progress may have changed.
func (p *Preparation) continues(o *Preparation) bool {
	return p.Worker == o.Worker && p.Incarnation == o.Incarnation && p.Epoch == o.Epoch
}

// Preparing returns the session's preparation if its lease is valid, else nil.
func (s *Session) Preparing(now time.Time) *Preparation {
	if p := s.Prepare; p != nil && p.Epoch == s.Epoch && p.Until.After(now) {
		return p
	}
	return nil
}

// PreparedBy returns the worker whose preparation counts towards its maximum number of sessions, and until when.
func (s *Session) PreparedBy() (worker string, until history.Time) {
	if s.Prepare == nil {
		return "", history.Time{}
	}
	return s.Prepare.Worker, s.Prepare.Until
}

// prepared reports whether a successor's state is ready and its lease is valid.
func (s *Session) prepared(now time.Time) bool {
	p := s.Preparing(now)
	return p != nil && !p.PreparedAt.IsZero()
}

// served reports whether a drained owner still receives tasks of the session: a successor sets it up.
func (s *Session) served(now time.Time) bool { return s.Moving == "" && s.Preparing(now) != nil }

// maxUnprepared is the maximum number of successors that try to prepare a session in one epoch.
const maxUnprepared = 4

// MayPrepare reports whether a worker has a session definition with a hand-over.
func (w *Worker) MayPrepare() bool {
	return slices.ContainsFunc(w.Capabilities, func(c string) bool {
		return strings.HasPrefix(c, protocol.PrepareCapability(""))
	})
}

// MayStoreSnapshots reports whether a worker has registered a session definition with snapshots.
func (w *Worker) MayStoreSnapshots() bool {
	return slices.ContainsFunc(w.Capabilities, func(c string) bool {
		return strings.HasPrefix(c, protocol.SnapshotCapability(""))
	})
}

// HandsOver reports whether a worker may prepare the session while the owner holds it. Both have registered the
// session's definition with a hand-over, and the release policy admits the worker's release.
func (s *Session) HandsOver(owner, to *Worker) bool {
	may := protocol.PrepareCapability(s.Definition)
	switch {
	case slices.Contains(s.UnpreparedBy, to.ID) || len(s.UnpreparedBy) >= maxUnprepared:
		return false
	case s.Definition == "" || s.NoReacquire || s.ReleasePolicy == PolicyFail || s.NeedsSetUp():
		return false
	case !slices.Contains(owner.Capabilities, may) || !slices.Contains(to.Capabilities, may):
		return false
	case s.ReleasePolicy == PolicyFinish && to.Release != s.Release:
		return false
	case s.Snapshots && !to.mayRestore(s.Definition):
		return false
	}
	return len(Missing(s.NeededCapabilities(), to.Capabilities)) == 0 &&
		!slices.ContainsFunc(s.QueuesWith(owner.Queues), func(q string) bool { return !to.Serves(q) })
}

// QueuesWith returns the queues from which the session's owner receives its tasks: the session's own queue, or the
// queues of the owner.
func (s *Session) QueuesWith(owner []string) []string {
	if s.Queue != "" {
		return []string{s.Queue}
	}
	return owner
}

// PrepareSession reserves a place for a session at a successor, which then sets the session up. The caller has counted
// the sessions and reservations of the successor under the lock of the successor's row.
type PrepareSession struct {
	Owner     *Worker
	Successor Lessee
	Operator  string
	Balance   bool // the owner does not drain: only an idle session moves
}

func (in PrepareSession) decide(s *Session, now history.Time) (SessionChange, error) {
	w := in.Successor.Worker
	if s == nil || s.Terminal || !s.HeldBy(in.Owner.ID, now.Time) || s.Moving != "" || s.Yielding ||
		s.Preparing(now.Time) != nil || w.ID == in.Owner.ID || !in.Successor.Counted ||
		in.Successor.Sessions >= w.MaxSessions || !s.HandsOver(in.Owner, w) || in.Balance && !s.unused() {
		return SessionChange{}, errNotDue
	}
	resources := s.resourcesAt(w)
	if _, short := w.shortage(resources, nil, in.Successor.Used); short {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	p := s.preparationBy(w, resources, now)
	p.Operator, p.Balance = in.Operator, in.Balance
	c.Session.Prepare = p
	c.Session.UpdatedAt = now
	c.Timeline = append(c.Timeline, protocol.SessionEvent{
		At: now, What: protocol.SessionPreparing, Worker: w.ID, Epoch: s.Epoch, By: in.Operator, Release: w.Release,
		Why: c.Session.Prepare.Why(),
	})
	return c, nil
}

// preparationBy returns a new preparation of the session by a worker.
func (s *Session) preparationBy(w *Worker, resources protocol.Resources, now history.Time) *Preparation {
	return &Preparation{
		Worker: w.ID, Incarnation: w.Incarnation, Release: w.Release, Epoch: s.Epoch, Queues: w.Queues,
		Until: plus(now, time.Duration(w.SessionLease)*time.Microsecond), Length: w.SessionLease,
		Idle: w.SessionIdle, DefaultMaxActivities: w.DefaultMaxActivities, StartedAt: now,
		Resources: resources, Resumes: w.ResumesSessions, Snapshots: w.mayRestore(s.Definition),
	}
}

// EndPreparation discards the preparation of a successor that is lost or drains, so that another one can be chosen.
type EndPreparation struct {
	Preparation Preparation
	Why         string
}

func (in EndPreparation) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || s.Prepare == nil || !s.Prepare.continues(&in.Preparation) {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	c.Session.notPrepared()
	c.Timeline = append(c.Timeline, c.Session.endPreparation(now, in.Why))
	c.Session.UpdatedAt = now
	return c, nil
}

// RenewPreparation renews the lease of a preparation with a heartbeat of the successor, which also reports the end of
// the set-up.
type RenewPreparation struct {
	Worker   *Worker
	Epoch    int64 // the epoch for which the state is prepared
	Prepared bool
	Restored string // checksum of the snapshot that the successor has restored; empty: none
	Failed   string // why the successor ended the preparation; empty: it did not
	Seconds  float64
}

func (in RenewPreparation) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil {
		return SessionChange{}, protocol.Refuse(protocol.ReasonSessionNotFound, "session not found")
	}
	if s.Preparing(now.Time) == nil || in.Epoch != s.Epoch || !s.Prepare.by(in.Worker, s.Epoch) {
		return SessionChange{}, protocol.Refuse(
			protocol.ReasonSessionOwner, "session %s is not prepared by %s for epoch %d", s.ID, in.Worker.ID, in.Epoch,
		)
	}
	c := SessionChange{Session: *s}
	n := &c.Session
	n.UpdatedAt = now
	if in.Failed != "" {
		n.notPrepared()
		c.Timeline = append(c.Timeline, n.endPreparation(now, in.Failed))
		return c, nil
	}
	p := *s.Prepare
	n.Prepare = &p
	p.Until = latest(p.Until, plus(now, time.Duration(p.Length)*time.Microsecond))
	if !in.Prepared {
		return c, nil
	}
	if p.PreparedAt.IsZero() {
		p.PreparedAt = now
		c.Timeline = append(c.Timeline, protocol.SessionEvent{
			At: now, What: protocol.SessionPrepared, Worker: p.Worker, Epoch: s.Epoch, By: p.Worker, Seconds: in.Seconds,
		})
	}
	if in.Restored != "" && s.hasSnapshot(now.Time) && s.Snapshot.Checksum == in.Restored {
		p.Restored = true
	}
	if s.Active == 0 {
		switch {
		case n.ready(now.Time):
			c.Timeline = append(c.Timeline, n.handOver(now)...)
		case s.needsSnapshot(now.Time):
			c.Timeline = append(c.Timeline, n.requestSnapshot(now, p.mover(), cmp.Or(p.Why(), ReasonShutdown), true))
		default: // the owner takes the snapshot, or the successor restores it
			n.Moving, n.Leaving = p.mover(), true
		}
		return c, nil
	}
	if p.Balance {
		if now.Sub(p.PreparedAt.Time) >= balanceWait {
			c.Timeline = append(c.Timeline, n.endPreparation(now, "an activity of the session still runs"))
		}
		return c, nil
	}
	// No task is dispatched any more. The decision that ends the last running task hands the session over.
	n.Moving, n.Leaving = p.mover(), true
	return c, nil
}

// mover returns the value of Moving while the session waits for its last running task.
func (p *Preparation) mover() string {
	if p.Operator != "" {
		return p.Operator
	}
	return p.Worker
}

// handOver ends the epoch of the owner and acquires the session for the successor, whose state is prepared.
func (s *Session) handOver(now history.Time) (timeline []protocol.SessionEvent) {
	p := s.Prepare
	switch {
	case s.Owner == "": // a member of a pool that no worker has owned yet
	case s.Held(now.Time):
		timeline = append(timeline, s.ended(now, "released", p.mover(), cmp.Or(p.Why(), protocol.EndedHandedOver)))
		s.Reason, s.GivenUp = ReasonReleased, protocol.EndedHandedOver
	default:
		timeline = append(timeline, s.ended(now, "expired", "", ReasonLeaseLost))
	}
	s.Owner, s.Incarnation, s.Drained = "", "", false
	w := p.worker()
	if p.Snapshots {
		w.Capabilities = []string{protocol.SnapshotCapability(s.Definition)}
	}
	timeline = append(timeline, s.acquire(Lessee{Worker: w}, 0, now.Time, "")...)
	timeline[len(timeline)-1].Why = protocol.EndedHandedOver
	s.move(now.Time)
	s.acquired(w, now.Time)
	return timeline
}

// notPrepared records that the successor did not prepare the session, so that the app chooses another one.
func (s *Session) notPrepared() {
	s.UnpreparedBy = append(slices.Clip(s.UnpreparedBy), s.Prepare.Worker)
}

// endPreparation discards a preparation. The successor learns it with its next heartbeat and tears the state down.
func (s *Session) endPreparation(now history.Time, why string) protocol.SessionEvent {
	p := s.Prepare
	s.Prepare = nil
	// The session waited only for the hand-over, so tasks are dispatched to the owner again.
	if !p.PreparedAt.IsZero() && s.Leaving && s.Moving == p.mover() {
		s.Moving, s.Leaving, s.SnapshotRequest = "", false, nil
	}
	return protocol.SessionEvent{
		At: now, What: protocol.SessionPreparationEnded, Worker: p.Worker, Epoch: p.Epoch, Why: why,
	}
}

// checkPreparation discards a preparation that can no longer lead to a hand-over. Every decision on a session calls it
// last, so that no rule that ends an epoch has to know of preparations.
func (s *Session) checkPreparation(now history.Time) []protocol.SessionEvent {
	p := s.Prepare
	var why string
	switch {
	case p == nil:
		return nil
	case s.Terminal:
		why = "the session has ended"
	case p.Epoch != s.Epoch || s.Owner == "" && (s.Pool == "" || s.EverAcquired) || s.Status != protocol.SessionActive:
		why = "the epoch has ended"
	case s.Yielding || s.Moving != "" && (!s.Leaving || p.PreparedAt.IsZero()):
		why = "the session moves for another reason"
	case !p.Until.After(now.Time):
		s.notPrepared()
		why = "the lease of the preparation has expired"
	default:
		return nil
	}
	return []protocol.SessionEvent{s.endPreparation(now, why)}
}
