package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A lease guarantees that no other worker runs the task until the lease expires. This file creates all leases, with the
// store's clock, so that all apps agree on their expiry. A response must not promise the worker a longer lease than the
// stored one.

// Lessee is a worker that may receive a task, in the state in which it polled.
type Lessee struct {
	Worker  *Worker
	PollID  string
	BuildID string
	// App is the app that grants the lease, if the worker does not report its leases in heartbeats; otherwise "".
	App string
	// Sessions is the number of sessions that the worker holds. Counted is set only by a claim that counted them under
	// the worker's lock. Only such a claim may acquire a session for the worker: otherwise two concurrent claims could
	// exceed the worker's maximum.
	Sessions int
	Counted  bool
	// Used is the sum of the resources of the worker's sessions, if Counted is set.
	Used Amounts
	// Draining: the worker drains and receives only tasks of sessions that a successor prepares.
	Draining bool
}

// WorkflowLease is the lease of a workflow task for a client of the HTTP API, and the longest lease for any worker.
// Such a client may run its code for this time without renewing.
const WorkflowLease = 300 * time.Second

// flowLease returns the length of the lease of a workflow task. A worker renews all its leases together, so the shorter
// lease of its attempts applies to workflow tasks, too: after the death of the worker, its workflow task is requeued as
// soon as its attempts.
func (w *Worker) flowLease() time.Duration {
	if w.Explicit && w.AttemptLease > 0 {
		return min(WorkflowLease, time.Duration(w.AttemptLease)*time.Microsecond)
	}
	return WorkflowLease
}

// Leased returns a fork of s in which the ready workflow task is leased. Leases are not part of history, so there is no
// decision with events. It sets Shown, the last event that the worker receives; completions are checked against it.
func (s *Run) Leased(l Lessee, now time.Time) *Run {
	f := s.Fork()
	t := f.Task
	t.State = LeasedState
	t.Delivery++
	t.Attempt++
	t.Shown, t.Settled, t.Size = f.LastSeq, f.Settled, f.Bytes
	t.Lease = l.lease(l.Worker.flowLease(), now)
	t.Lease.Sessions = l.Worker.knowsSessions()
	t.Suspect = t.Suspect.leased()
	f.LeasedEver = true
	return f
}

// knowsSessions reports whether the worker declared that it can replay histories with sessions.
func (w *Worker) knowsSessions() bool { return slices.Contains(w.Capabilities, CapSessions) }

// EpochWatermark returns the highest epoch of sessions that clean-up removed from a namespace. It is a function because
// only acquisitions need the value, and it may have to be read from the database.
type EpochWatermark func(namespace string) int64

// LeaseActivity leases a ready activity. In the same step it acquires the activity's session or renews the session's
// idle timeout: with two steps, a worker could get the task while another worker acquires the session. s is nil for an
// activity without a session, otherwise the caller's copy of the session, which LeaseActivity changes; watermark is
// called if the lease acquires the session. The caller must have called Admit. The other results are the new entries of
// the session's timeline, and whether the lease acquired the session.
func LeaseActivity(
	a Activity, s *Session, l Lessee, watermark EpochWatermark, now time.Time,
) (_ Activity, timeline []protocol.SessionEvent, acquired bool) {
	a.State = LeasedState
	a.Delivery++
	a.Attempt++
	a.Cancel, a.New = false, false
	if a.FirstReady.IsZero() {
		a.FirstReady = a.ReadyAt
	}
	a.ReadyAt, a.HeartbeatAt, a.Progress, a.Rebuild = history.Time{}, history.Time{}, nil, nil
	a.SetUpAt = history.Time{}
	a.Lease = l.lease(time.Duration(l.Worker.AttemptLease)*time.Microsecond, now)
	a.Suspect = a.Suspect.leased()
	if s == nil {
		return a, nil, false
	}
	if acquired = !s.With(l.Worker, now); acquired {
		if s.resumable(l.Worker, now) {
			timeline = append(timeline, s.resume(l.Worker, now))
		} else {
			timeline = s.acquire(l, watermark(s.Namespace), now, StepID(a.RunID, a.Seq))
		}
	}
	s.Yielding = false
	s.stateUsed()
	s.touch(now)
	s.Active++
	s.subtractReady()
	if acquired {
		s.acquired(l.Worker, now)
	}
	s.resetWait()
	s.recordWaiting(a.LeasedAt)
	if s.FailFast {
		a.Lease = l.lease(failFastLength(time.Duration(l.Worker.AttemptLease)*time.Microsecond), now)
	}
	a.Epoch, a.New = s.Epoch, s.Fresh
	s.Fresh = false
	return a, timeline, acquired
}

// With reports whether this process of a worker owns the session. Another process with the same worker ID does not: the
// session's state was in the memory of the former process.
func (s *Session) With(w *Worker, now time.Time) bool {
	return s.HeldBy(w.ID, now) && s.Incarnation == w.Incarnation
}

// acquire makes the worker the owner under a higher epoch. It ends the ownership of a previous owner: an older process
// of the same worker, or an owner for which the session's tasks have waited too long.
func (s *Session) acquire(l Lessee, watermark int64, now time.Time, task string) (timeline []protocol.SessionEvent) {
	why := ""
	switch {
	case s.HeldBy(l.Worker.ID, now):
		timeline = append(timeline, s.ended(history.At(now), "released", s.Owner, ReasonRestarted))
		s.Reason, s.GivenUp = ReasonRestarted, ""
	case s.Held(now):
		why = fmt.Sprintf(
			"%s: a task waited for worker %s since %s", ReasonFallback, s.Owner, s.WaitingSince.UTC().Format(time.RFC3339),
		)
		timeline = append(timeline, s.ended(history.At(now), "released", l.Worker.ID, ReasonFallback))
		s.Reason, s.GivenUp = ReasonFallback, ""
	case s.Yielding: // the lease has expired, and no app has recorded that yet
		timeline = append(timeline, s.ended(history.At(now), "released", "", ReasonEvictedCap))
		s.Reason, s.GivenUp, s.EvictedAt = ReasonReleased, ReasonEvictedCap, history.At(now)
	// the lease has expired, and the sweeper has not ended it yet
	case s.Status == protocol.SessionActive && s.Owner != "":
		s.Reason, s.GivenUp = ReasonLeaseLost, ""
		if s.idle(s.LeaseUntil.Time) {
			s.GivenUp = ReasonEvictedIdle
		}
	}
	// The session was evicted and is needed again soon after. The timeline shows that, so that operators can detect a
	// maximum of sessions that is too low.
	if ago := now.Sub(s.EvictedAt.Time); !s.EvictedAt.IsZero() && ago < EvictedLately {
		why = fmt.Sprintf("%s %d s before", ReasonEvictedCap, int(ago.Seconds()))
	}
	s.EvictedAt = history.Time{}
	// Attempts under the old epoch still run on the former owner; from now on they are counted separately.
	s.moveRunningToOtherEpochs()
	s.resetWait()
	adopted := s.ready(now) && s.Prepare.by(l.Worker, s.Epoch)
	var prepared protocol.Resources
	if adopted {
		prepared = s.Prepare.Resources
	}
	former := s.Epoch
	if s.Prepare != nil && !adopted {
		timeline = append(timeline, s.endPreparation(history.At(now), "another worker acquired the session"))
	}
	what := "claimed"
	if s.EverAcquired {
		what = "reclaimed"
	}
	// The store's time makes the epoch increase even if the session's row was deleted; the other two terms do so if the
	// clock was set back.
	s.Epoch = max(s.Epoch+1, watermark+1, now.UnixMicro())
	s.Status = protocol.SessionActive
	s.Owner, s.Incarnation, s.Release = l.Worker.ID, l.Worker.Incarnation, l.Worker.Release
	s.Before, s.Reason, s.GivenUp, s.EverAcquired, s.LeaseUntil = s.lastEnd(), "", "", true, history.Time{}
	s.Acquisitions, s.Renewals, s.Moving, s.Leaving, s.Yielding = s.Acquisitions+1, 0, "", false, false
	s.OtherAt = history.Time{}
	s.Fresh, s.FirstRenewal, s.LastRenewal = true, history.Time{}, history.Time{}
	s.For, s.ForUntil, s.PinnedUntil = "", history.Time{}, history.Time{}
	s.UnpreparedBy = nil
	if s.PreparedFor = 0; adopted { // the new owner has the state already
		s.Prepare, s.PreparedFor, s.SetUpEpoch, s.Before, s.Fresh = nil, former, s.Epoch, "", false
	}
	timeline = append(timeline, s.passSnapshot(l.Worker, former, now)...)
	s.applyRequestedLimits()
	// Implicit and workflow sessions have no separate lengths, so the lengths of the owner apply: the owner has to
	// renew in time.
	if s.Origin != OriginWorker {
		s.Lease = l.Worker.SessionLease
	}
	s.DefaultMaxActivities = l.Worker.DefaultMaxActivities
	if s.Origin == OriginImplicit {
		s.Idle = l.Worker.SessionIdle
	}
	if adopted {
		s.use(l.Worker, prepared)
	} else {
		s.use(l.Worker, s.resourcesAt(l.Worker))
	}
	// The TTL counts from the first acquisition, since no worker could use the session before it.
	if s.TTL > 0 && s.TTLUntil.IsZero() {
		s.TTLUntil = plus(history.At(now), seconds(s.TTL))
	}
	return append(timeline, protocol.SessionEvent{
		At: history.At(now), What: what, Worker: s.Owner, Epoch: s.Epoch, By: s.Owner, Why: why, Task: task,
		Release: s.Release,
	})
}

// lagging is the fraction of the idle time by which the stored last activity may lag behind, so that not every step in
// the session writes the session's row.
const lagging = 10

// touch updates the last activity and renews the lease in one write. It does so only if the last activity lags by a
// tenth of the idle time (by unidled if there is none), or if less than two thirds of the lease remain and it can be
// renewed. Otherwise it does not write the row, and the stored lease stays correct. So most steps in a session cost as
// much as any other step.
func (s *Session) touch(now time.Time) {
	left, lease := s.LeaseUntil.Sub(now), s.LeaseLength()
	spent := 3*left < 2*lease && (s.TTLUntil.IsZero() || s.LeaseUntil.Before(s.TTLUntil.Time))
	most := unidled
	if s.Idle > 0 {
		most = time.Duration(s.Idle) * time.Microsecond / lagging
	}
	if spent || now.Sub(s.LastActivity.Time) >= most {
		s.move(now)
	}
}

// unidled is the lag of the last activity after which touch updates a session that has no idle time.
const unidled = 30 * time.Second

// move sets the last activity to now and renews the lease.
func (s *Session) move(now time.Time) {
	s.LastActivity = history.At(now)
	s.renew(now, s.LeaseLength())
}

// renew extends the lease to length from now: never to an earlier time than promised to the owner, and never beyond the
// TTL.
func (s *Session) renew(now time.Time, length time.Duration) {
	at := history.At(now)
	s.RenewedAt = at
	s.LeaseUntil = latest(s.LeaseUntil, plus(at, length))
	if !s.TTLUntil.IsZero() {
		s.LeaseUntil = earliest(s.LeaseUntil, s.TTLUntil)
	}
	s.UpdatedAt = at
}

// lease returns a lease of the given length that begins now.
func (l Lessee) lease(length time.Duration, now time.Time) Lease {
	at := history.At(now)
	return Lease{
		Owner: l.Worker.ID, Incarnation: l.Worker.Incarnation, Release: l.Worker.Release, BuildID: l.BuildID,
		PollID: l.PollID, App: l.App,
		LeasedAt: at, Until: plus(at, length), Length: length.Microseconds(),
	}
}

// LeaseOf returns the lease under which a report about a task of s was made, or the zero value if in is not a
// report.
func LeaseOf(s *Run, in Input) Lease {
	attempt := func(seq int64) Lease {
		a, _ := s.Activities.Get(seq)
		return a.Lease
	}
	switch in := in.(type) {
	case CompleteActivity:
		return attempt(in.Seq)
	case FailActivity:
		return attempt(in.Seq)
	case PendActivity:
		return attempt(in.Seq)
	case HeartbeatActivity:
		return attempt(in.Seq)
	case ReleaseActivity:
		return attempt(in.Seq)
	case CompleteTask, FailTask, HeartbeatTask, ReleaseTask:
		if s.Task != nil {
			return s.Task.Lease
		}
	}
	return Lease{}
}

// Serves reports whether the worker registered for a queue.
func (w *Worker) Serves(queue string) bool { return slices.Contains(w.Queues, queue) }

// Runs reports whether the worker registered this workflow or activity type.
func (w *Worker) Runs(kind protocol.TaskKind, typ string) bool {
	if kind == protocol.KindActivity {
		return typ != protocol.BorrowActivity && (w.AnyActivity || slices.Contains(w.ActivityTypes, typ))
	}
	return slices.Contains(w.WorkflowTypes, typ)
}
