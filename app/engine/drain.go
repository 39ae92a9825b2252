package engine

import (
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Drains, and settings for all workers of a namespace, are stored in the queue row of the whole namespace. Every app
// caches that row for dispatching.

// Drain is an operator's request to stop dispatching to workers. It may name a group, a build or a release, so it also
// covers workers that register later.
type Drain struct {
	protocol.FleetTarget
	At history.Time `json:"at"`
	// after it, workers with leased tasks are asked to exit; zero: never
	Deadline       history.Time `json:"deadline,omitzero"`
	Evict          bool         `json:"evict,omitempty"` // the workers are asked to exit
	By             string       `json:"by,omitempty"`
	Reason         string       `json:"reason,omitempty"`
	DeregisteredAt history.Time `json:"left,omitzero"` // when the drained worker last deregistered
}

// Covers reports whether the drain applies to a worker.
func (d *Drain) Covers(w *Worker) bool {
	switch {
	case d.WorkerID != "":
		return d.WorkerID == w.ID
	case d.Group != "":
		return d.Group == w.Group
	case d.BuildID != "":
		return d.BuildID == w.BuildID
	case d.Release != "":
		return d.Release == w.Release
	}
	return false
}

// DeadlinePassed reports whether the drain's deadline has passed, so that a worker with leased tasks must exit.
func (d *Drain) DeadlinePassed(now time.Time) bool {
	return d.Evict || !d.Deadline.IsZero() && !d.Deadline.After(now)
}

// hasEarlierDeadline reports whether d has an earlier deadline for a worker than o.
func (d *Drain) hasEarlierDeadline(o *Drain) bool {
	switch {
	case o == nil || d.Evict != o.Evict:
		return o == nil || d.Evict
	case d.Deadline.IsZero() || o.Deadline.IsZero():
		return o.Deadline.IsZero() && !d.Deadline.IsZero()
	}
	return d.Deadline.Before(o.Deadline.Time)
}

// DrainOf returns the drain of a worker, or nil. If several apply, it returns the one with the earliest deadline.
func (q *Queue) DrainOf(w *Worker) (of *Drain) {
	if q == nil {
		return nil
	}
	for i := range q.Drains {
		if d := &q.Drains[i]; d.Covers(w) && d.hasEarlierDeadline(of) {
			of = d
		}
	}
	return of
}

// namesWorker reports whether the drain applies to one of these workers by its ID, not by group, build or release.
func (d *Drain) namesWorker(workers []WorkerKey) bool {
	return d.WorkerID != "" && slices.ContainsFunc(workers, func(k WorkerKey) bool { return k.ID == d.WorkerID })
}

// DrainsOneOf reports whether a drain applies to one of these workers by its ID.
func (q *Queue) DrainsOneOf(workers []WorkerKey) bool {
	return q != nil && slices.ContainsFunc(q.Drains, func(d Drain) bool { return d.namesWorker(workers) })
}

// Without returns a namespace's row after these workers have deregistered.
func (q *Queue) Without(workers []WorkerKey, now time.Time) Queue {
	next := *q
	next.Drains, next.UpdatedAt = slices.Clone(q.Drains), history.At(now)
	for i := range next.Drains {
		if d := &next.Drains[i]; d.namesWorker(workers) {
			d.DeregisteredAt = next.UpdatedAt
		}
	}
	return next
}

// forgetDrain is the minimum time for which the drain of a single worker is stored after the worker deregistered: a
// drained worker that restarts must still be drained.
const forgetDrain = 24 * time.Hour

// maxDrains is the maximum number of drains in a namespace: one row contains them, and every dispatch reads it.
const maxDrains = 1000

// DrainFleet begins a drain, or changes the deadline and reason of an existing drain. Here reports which workers are
// registered: drains of other single workers are removed a day after they began or after the worker deregistered.
type DrainFleet struct {
	Drain
	Here func(worker string) bool
}

// ResumeFleet ends a drain. If the drain has already ended, it has no effect.
type ResumeFleet struct{ protocol.FleetTarget }

func (in DrainFleet) decide(q *Queue, now history.Time) error {
	drains := slices.DeleteFunc(slices.Clone(q.Drains), func(d Drain) bool {
		return d.WorkerID != "" && !in.Here(d.WorkerID) && now.Sub(d.At.Time) >= forgetDrain &&
			now.Sub(d.DeregisteredAt.Time) >= forgetDrain
	})
	next := in.Drain
	next.At = now
	i := slices.IndexFunc(drains, func(d Drain) bool { return d.FleetTarget == in.FleetTarget })
	switch {
	case i >= 0:
		next.At, next.DeregisteredAt = drains[i].At, drains[i].DeregisteredAt
		drains[i] = next
	case len(drains) >= maxDrains:
		return protocol.Invalid(
			"worker_id", "the namespace has the maximum of %d drains; resume some, or drain a group, a build or a release",
			maxDrains,
		)
	default:
		drains = append(drains, next)
	}
	q.Drains = drains
	return nil
}

func (in ResumeFleet) decide(q *Queue, _ history.Time) error {
	q.Drains = slices.DeleteFunc(slices.Clone(q.Drains), func(d Drain) bool { return d.FleetTarget == in.FleetTarget })
	return nil
}

// SetFleet changes the settings of all workers of a namespace. Saw is an optimistic lock: a request based on an older
// revision is refused.
type SetFleet struct {
	Settings protocol.FleetSettings
	By       string
	Saw      *int64 // the revision on which the request is based; nil: any
}

// FleetWide holds the settings that apply to all workers of a namespace.
type FleetWide struct {
	protocol.FleetSettings
	Revision int64        `json:"revision"`
	At       history.Time `json:"at"`
	By       string       `json:"by,omitempty"`
}

// decide increments the revision only if a setting changes, so that setting the same values again does not notify
// workers.
func (in SetFleet) decide(q *Queue, now history.Time) error {
	is := q.Fleet()
	if in.Saw != nil && *in.Saw != is.Revision {
		return protocol.Refuse(
			protocol.ReasonStaleRevision, "the settings were changed since: they are at revision %d, not %d", is.Revision,
			*in.Saw,
		).With("revision", is.Revision)
	}
	if is.FleetSettings != in.Settings {
		q.Settings = &FleetWide{FleetSettings: in.Settings, Revision: is.Revision + 1, At: now, By: in.By}
	}
	return nil
}

// Fleet returns the settings of a namespace's workers.
func (q *Queue) Fleet() FleetWide {
	if q == nil || q.Settings == nil {
		return FleetWide{}
	}
	return *q.Settings
}

// DrainSession makes a drained owner release a session, as in a shutdown: immediately if no task runs in the session,
// otherwise when its running tasks have ended. Otherwise the session would stay with a worker to which no tasks are
// dispatched.
//
// A session that a successor prepares stays, unless Deadline is set: the deadline of the drain has passed.
type DrainSession struct {
	Worker, Operator string
	Deadline         bool
}

func (in DrainSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || s.Terminal || !s.HeldBy(in.Worker, now.Time) || s.Moving != "" && s.Active > 0 ||
		!in.Deadline && (s.Preparing(now.Time) != nil || s.SnapshotRequest != nil) {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	n := &c.Session
	if s.Active == 0 && !in.Deadline && s.needsSnapshot(now.Time) {
		c.Timeline = append(c.Timeline, n.requestSnapshot(now, in.Operator, ReasonShutdown, true))
		return c, nil
	}
	if s.Active == 0 {
		c.Timeline = append(c.Timeline, n.drain(now, in.Operator)...)
		return c, nil
	}
	n.Moving, n.Leaving, n.UpdatedAt = in.Operator, true, now
	c.Timeline = append(c.Timeline, s.ended(now, "draining", in.Operator, ReasonShutdown))
	return c, nil
}

// UndrainSession undoes the drain of a session in which tasks still run or which a successor prepares: tasks are
// dispatched to its owner again.
type UndrainSession struct{ Worker string }

func (in UndrainSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || !s.HeldBy(in.Worker, now.Time) || !s.Leaving && s.Prepare == nil {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	c.Timeline = c.Session.undrain(now)
	return c, nil
}

func (s *Session) undrain(now history.Time) (timeline []protocol.SessionEvent) {
	if s.Prepare != nil {
		timeline = append(timeline, s.endPreparation(now, "the drain has ended"))
	}
	s.Moving, s.Leaving, s.SnapshotRequest, s.UpdatedAt = "", false, nil, now
	return timeline
}

// drainedByOperator reports whether the session leaves its owner, or will once a successor has prepared it, because an
// operator drained the owner.
func (s *Session) drainedByOperator() bool {
	if s.Prepare != nil {
		return s.Prepare.Operator != ""
	}
	return s.Leaving && s.Moving != s.Owner
}

// drain ends the ownership of the session by a drained worker, according to the session's release policy.
func (s *Session) drain(now history.Time, by string) []protocol.SessionEvent {
	return s.endForShutdown(now, by, ReasonShutdown)
}

// endForShutdown ends the ownership of the session by a worker that shuts down, according to the session's release
// policy. A session with no_reacquire is closed. A session with a prepared successor goes to it.
func (s *Session) endForShutdown(now history.Time, by, why string) []protocol.SessionEvent {
	if s.NoReacquire {
		e := s.ended(now, "closed", by, protocol.ReasonWorkerShutdown)
		s.endAs(protocol.SessionClosed, protocol.ReasonWorkerShutdown, now)
		return []protocol.SessionEvent{e}
	}
	if s.ready(now.Time) {
		return s.handOver(now)
	}
	s.Drained = s.ReleasePolicy == PolicyFail
	return []protocol.SessionEvent{s.release(now, by, why)}
}
