package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Lessee is a worker about to be given a task, as it was when it polled.
type Lessee struct {
	Worker  *Worker
	PollID  string
	BuildID string
	// Sessions is how many sessions the worker holds; only a claim that counted them under the worker's lock sets it, and only such a claim may
	// give it a session it does not hold yet.
	Sessions int
	Counted  bool
}

// WorkflowLease is how long a workflow task is leased.
const WorkflowLease = 300 * time.Second

// Leased returns the run with its ready workflow task leased: a fork of s.
func (s *Run) Leased(l Lessee, now time.Time) *Run {
	f := s.Fork()
	t := f.Task
	t.State = LeasedState
	t.Delivery++
	t.Attempt++
	t.Shown = f.LastSeq
	t.Lease = l.lease(WorkflowLease, now)
	t.Lease.Sessions = slices.Contains(l.Worker.Capabilities, CapSessions)
	f.LeasedEver = true
	return f
}

// LeaseActivity leases a ready activity, claiming or touching its session in the same step. sess is nil for a plain activity. floor is the highest
// epoch clean-up removed. The caller has asked Admit. The last result says that the lease claimed the session.
func LeaseActivity(a Activity, sess *Session, l Lessee, floor int64, now time.Time) (Activity, *SessionChange, bool) {
	a.State = LeasedState
	a.Delivery++
	a.Attempt++
	a.Cancel, a.New = false, false
	a.HeartbeatAt, a.Progress, a.Rebuild = history.Time{}, nil, nil
	a.Lease = l.lease(time.Duration(l.Worker.AttemptLease)*time.Microsecond, now)
	if sess == nil {
		return a, nil, false
	}
	c := SessionChange{Session: *sess}
	s := &c.Session
	claimed := !sess.HeldBy(l.Worker.ID, now) || sess.Incarnation != l.Worker.Incarnation
	if claimed {
		c.Timeline = s.claim(l, floor, now, StepID(a.RunID, a.Seq))
	}
	s.touch(now)
	s.Active++
	s.Ran++
	s.Ready = max(0, s.Ready-1)
	s.taken()
	s.watch(a.LeasedAt)
	a.Epoch, a.New = s.Epoch, s.Fresh
	s.Fresh = false
	return a, &c, claimed
}

// claim makes the worker the owner under a higher epoch. One that held the session until now has let go of it with that: an older process of its own, or
// a holder that left the session's tasks waiting for too long.
func (s *Session) claim(l Lessee, floor int64, now time.Time, task string) (timeline []protocol.SessionEvent) {
	why := ""
	switch {
	case s.HeldBy(l.Worker.ID, now):
		timeline = append(timeline, s.ended(history.At(now), "released", s.Owner, ReasonRestarted))
	case s.Held(now):
		why = fmt.Sprintf("%s: a task waited for worker %s since %s", ReasonFallback, s.Owner, s.WaitingSince.UTC().Format(time.RFC3339))
		timeline = append(timeline, s.ended(history.At(now), "released", l.Worker.ID, ReasonFallback))
		s.leaveBehind()
	}
	s.taken()
	what := "claimed"
	if s.Claimed {
		what = "reclaimed"
	}
	s.Epoch = max(s.Epoch+1, floor+1, now.UnixMicro())
	s.Status = protocol.SessionActive
	s.Owner, s.Incarnation, s.Release = l.Worker.ID, l.Worker.Incarnation, l.Worker.Release
	s.Active, s.Reason, s.Claimed, s.LeaseUntil = 0, "", true, history.Time{}
	s.Claims, s.Ran, s.Renewals, s.Moving = s.Claims+1, 0, 0, ""
	s.Fresh, s.FirstRenewal, s.LastRenewal = true, history.Time{}, history.Time{}
	s.For, s.ForUntil, s.PinnedUntil = "", history.Time{}, history.Time{}
	if s.Door != DoorWorker {
		s.Lease = l.Worker.SessionLease
	}
	if s.Door == DoorImplicit {
		s.Idle = l.Worker.SessionIdle
	}
	if s.TTL > 0 && s.TTLUntil.IsZero() {
		s.TTLUntil = plus(history.At(now), seconds(s.TTL))
	}
	return append(timeline, protocol.SessionEvent{
		At: history.At(now), What: what, Worker: s.Owner, Epoch: s.Epoch, By: s.Owner, Why: why, Task: task, Release: s.Release,
	})
}

// touch moves the idle clock and renews the lease.
func (s *Session) touch(now time.Time) {
	s.LastActivity = history.At(now)
	s.renew(now, time.Duration(s.Lease)*time.Microsecond)
}

// renew moves the lease forward by a length, never back from what its holder was promised, never beyond the TTL.
func (s *Session) renew(now time.Time, length time.Duration) {
	at := history.At(now)
	s.RenewedAt = at
	s.LeaseUntil = latest(s.LeaseUntil, plus(at, length))
	if !s.TTLUntil.IsZero() {
		s.LeaseUntil = earliest(s.LeaseUntil, s.TTLUntil)
	}
	s.UpdatedAt = at
}

func (l Lessee) lease(length time.Duration, now time.Time) Lease {
	at := history.At(now)
	return Lease{
		Owner: l.Worker.ID, Incarnation: l.Worker.Incarnation, Release: l.Worker.Release, BuildID: l.BuildID, PollID: l.PollID,
		LeasedAt: at, Until: plus(at, length), Length: length.Microseconds(),
	}
}

// Serves says whether the worker registered for a queue.
func (w *Worker) Serves(queue string) bool { return slices.Contains(w.Queues, queue) }

// Runs says whether the worker registered this type of task.
func (w *Worker) Runs(kind protocol.TaskKind, typ string) bool {
	if kind == protocol.KindActivity {
		return w.AnyActivity || slices.Contains(w.ActivityTypes, typ)
	}
	return slices.Contains(w.WorkflowTypes, typ)
}
