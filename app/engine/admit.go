package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Only this file decides whether a worker may run a task. A poll, a dispatch after a commit, a claim by task ID and an
// eager workflow task all call Admit, and wait.go calls Admit for its explanations. If a rule existed in two places, a
// task could be dispatched to a worker and then refused, or wait for a reason that no explanation shows.

// Verdict reports whether a worker may run a task, and if not, why: the reason of the refusal, and the wait that
// follows from it.
type Verdict struct {
	OK     bool
	Reason protocol.Reason
	Wait   *protocol.Wait // nil if the worker may run the task
}

func admitted() Verdict { return Verdict{OK: true} }

// explain reports whether the caller needs the explanation of a refusal. A search for one worker among many does not
// need explanations, and building one costs more than the check.
type explain bool

// refused returns a refusal, with its wait if the caller needs an explanation.
func (e explain) refused(r protocol.Reason, why protocol.WaitReason, w protocol.Wait) Verdict {
	if !e {
		return Verdict{Reason: r}
	}
	missing := w
	missing.Reason = why
	return Verdict{Reason: r, Wait: &missing}
}

// Text returns the refusal as a readable message.
func (v Verdict) Text() string {
	if v.Wait == nil {
		return ""
	}
	return v.Wait.Why(time.UTC)
}

// CapSessions is the capability that a worker must declare to receive tasks in sessions, and workflow tasks of runs
// with session events. A worker without it would run such a task outside of its session.
const CapSessions = "worker_sessions"

// TaskRequirements holds the requirements of a task on its worker.
type TaskRequirements struct {
	Kind         protocol.TaskKind
	Type         string
	BuildID      string
	Requirements []string
	Session      *Session
	Queue        *Queue // settings of the task's queue; nil: none
}

// Admit applies all routing rules except the queue and the release gate, which the caller checks first: types, builds,
// requirements, and the rules of the session. now is the time of the store's clock.
func Admit(t TaskRequirements, l Lessee, now time.Time) Verdict { return admit(&t, &l, now, true) }

// Admits applies the rules of Admit without building the reason of a refusal. It is for callers that check many
// workers.
func Admits(t TaskRequirements, l Lessee, now time.Time) bool { return admit(&t, &l, now, false).OK }

// admit checks the rules from the most general to the most specific, so that the refusal names the first problem to
// solve: for example, the refusal of a worker in the wrong group does not mention capabilities.
func admit(t *TaskRequirements, l *Lessee, now time.Time, e explain) Verdict {
	w := l.Worker
	if s := t.Session; l.Draining && (s == nil || !s.With(w, now) || !s.served(now)) {
		return e.refused(protocol.ReasonWorkerDraining, protocol.WaitWorkerDraining, protocol.Wait{Worker: w.ID})
	}
	if t.Queue.Elsewhere(w.Group) {
		return e.refused(protocol.ReasonQueueMismatch, protocol.WaitGroupOffline, protocol.Wait{
			Queue: t.Queue.Name, Group: t.Queue.Routed(),
		})
	}
	if !w.Runs(t.Kind, t.Type) {
		kind := protocol.WaitForTask
		if t.Kind == protocol.KindActivity {
			kind = protocol.WaitForActivity
		}
		return e.refused(protocol.ReasonNotFound, protocol.WaitTypeNotServed, protocol.Wait{
			Kind: kind, Worker: w.ID, Name: t.Type,
		})
	}
	// The run is pinned to a build: other code might replay it differently.
	if t.BuildID != "" && t.BuildID != w.BuildID {
		return e.refused(protocol.ReasonVersionMismatch, protocol.WaitBuildPinned, protocol.Wait{
			Build: t.BuildID, Worker: w.ID, WorkerBuild: w.BuildID,
		})
	}
	// An operator drained the build. The task waits for another build, since this one may be faulty.
	if t.Queue.Drained(w.BuildID) {
		return e.refused(protocol.ReasonWorkerDraining, protocol.WaitBuildDrained, protocol.Wait{
			Worker: w.ID, WorkerBuild: w.BuildID, Queue: t.Queue.Name,
		})
	}
	if missing := e.missingRequirements(t.Requirements, w.Capabilities); len(missing) > 0 {
		return e.refused(protocol.ReasonSessionRequirements, protocol.WaitCapabilityMissing, protocol.Wait{
			Missing: missing, Worker: w.ID,
		})
	}
	if t.Session == nil {
		return admitted()
	}
	return admitSession(t.Session, l, now, false, e)
}

// AdmitSession checks only the rules of the session. verb is true if the worker acquires the session itself instead of
// a task in it: then the limit of concurrent activities does not apply.
func AdmitSession(s *Session, l Lessee, now time.Time, verb bool) Verdict {
	return admitSession(s, &l, now, verb, true)
}

// admitSession first checks what no worker can change (the session has ended), and last what depends on free places.
// The owner passes before the rules for acquisitions.
func admitSession(s *Session, l *Lessee, now time.Time, verb bool, e explain) Verdict {
	w := l.Worker
	if missing := e.missingRequirements(s.Requirements, w.Capabilities); len(missing) > 0 {
		return e.refused(protocol.ReasonSessionRequirements, protocol.WaitCapabilityMissing, protocol.Wait{
			Session: s.ID, Missing: missing, Worker: w.ID,
		})
	}
	if s.lacksDefinition(w) {
		return e.refused(protocol.ReasonSessionRequirements, protocol.WaitNoDefinition, protocol.Wait{
			Session: s.ID, Missing: []string{s.Definition}, Worker: w.ID,
		})
	}
	if s.Terminal {
		return e.refused(s.endedAs(), protocol.WaitSessionEnded, protocol.Wait{Session: s.ID, Detail: s.Reason})
	}
	// While the session moves to another worker, no activity starts in it; otherwise the move might never happen.
	if !verb && (s.Moving != "" && s.Held(now) || s.Drained) {
		return e.refused(protocol.ReasonSessionOwned, protocol.WaitSessionMoving, protocol.Wait{
			Session: s.ID, Worker: s.Owner, By: s.Moving,
		})
	}
	// The state of the session is in the memory of its owner.
	if s.Held(now) && s.Owner != w.ID && !s.claimableByOthers(now) {
		return e.refused(protocol.ReasonSessionOwned, protocol.WaitSessionHeld, s.waitForHolder())
	}
	own := s.HeldBy(w.ID, now)
	if own && s.Incarnation == w.Incarnation {
		if !verb && s.Full() {
			return e.refused(protocol.ReasonSessionActivityLimit, protocol.WaitSessionFull, s.activityLimitWait(""))
		}
		return admitted()
	}
	if s.lacksFailFast(w) {
		return e.refused(protocol.ReasonSessionRequirements, protocol.WaitCapabilityMissing, protocol.Wait{
			Session: s.ID, Missing: []string{protocol.CapFailFast}, Worker: w.ID,
		})
	}
	// The release policy says that only the release that built the state may use it.
	if pin := s.pin(now); pin != "" && w.Release != pin {
		return e.refused(protocol.ReasonVersionMismatch, protocol.WaitSessionRelease,
			protocol.Wait{Session: s.ID, Release: pin, Worker: w.ID, WorkerRelease: w.Release})
	}
	// An operator moved the session to a worker that has not acquired it yet.
	if s.reserved(now) && s.For != w.ID {
		return e.refused(protocol.ReasonSessionOwned, protocol.WaitSessionKept, protocol.Wait{
			Session: s.ID, Worker: s.For, Until: s.ForUntil,
		})
	}
	if s.stateLost(now) && s.NoReacquire && !own {
		return e.refused(protocol.ReasonSessionReacquire, protocol.WaitSessionLost, protocol.Wait{
			Session: s.ID, Detail: s.Reason,
		})
	}
	// Attempts that run on the former owner count, too: the session's options limit the number of concurrent
	// activities.
	if !verb && s.activityLimitReached(now) {
		return e.refused(
			protocol.ReasonSessionActivityLimit, protocol.WaitSessionFull,
			s.activityLimitWait("they still run on its previous owner"),
		)
	}
	if w.MaxSessions == 0 && !w.knowsSessions() {
		return e.refused(protocol.ReasonSessionLimit, protocol.WaitCapabilityMissing, protocol.Wait{
			Session: s.ID, Missing: needsSessions, Worker: w.ID,
		})
	}
	if w.MaxSessions == 0 {
		return e.refused(protocol.ReasonSessionLimit, protocol.WaitWorkerWithout, protocol.Wait{
			Session: s.ID, Worker: w.ID,
		})
	}
	// Only a claim that counted the worker's sessions under the worker's lock may check the maximum number of sessions.
	// Otherwise two concurrent claims could both take the last place.
	if !l.Counted {
		return e.refused(protocol.ReasonSessionOwned, protocol.WaitSessionUnclaimed, protocol.Wait{Session: s.ID})
	}
	// Checked before the places: for a session that the worker can never hold, no other session may be evicted.
	short, lacks := w.shortage(s.resourcesAt(w), s.UsedBy(w, now), l.Used)
	if lacks && short.Never {
		return e.refusedFor(s, w, short)
	}
	// If an older process of the worker held the session, acquiring it again needs no additional place.
	if !own && l.Sessions >= w.MaxSessions {
		return e.refused(protocol.ReasonSessionLimit, protocol.WaitWorkerSessionsFull,
			protocol.Wait{Session: s.ID, Worker: w.ID, Used: l.Sessions, Limit: w.MaxSessions})
	}
	if lacks {
		return e.refusedFor(s, w, short)
	}
	return admitted()
}

// waitForHolder returns the wait reason for a session that a worker holds: the end of the lease, and the time at which
// other workers may acquire the session.
func (s *Session) waitForHolder() protocol.Wait {
	return protocol.Wait{Session: s.ID, Worker: s.Owner, Until: s.LeaseUntil, FallbackAt: s.OpensAt()}
}

// activityLimitWait returns the wait reason for a session whose activity limit is reached. Attempts of earlier epochs
// may count, too.
func (s *Session) activityLimitWait(detail string) protocol.Wait {
	return protocol.Wait{Session: s.ID, Worker: s.Owner, Used: s.running(), Limit: s.maxActivities(), Detail: detail}
}

// Reasons for the end of a session's last epoch, as stored in its row, its timeline and receipts.
const (
	ReasonReleased    = "released"
	ReasonLeaseLost   = protocol.EndedLeaseExpired
	ReasonOrphaned    = protocol.EndedHeartbeatStale
	ReasonTTL         = "ttl_expired"
	ReasonClosed      = "closed"
	ReasonRestarted   = "worker_restarted"
	ReasonFallback    = "fallback"    // tasks waited for the owner longer than the soft affinity allows
	ReasonOtherQueue  = "other_queue" // tasks wait in a queue that the owner does not poll
	ReasonEndedByFlow = "ended_by_workflow"
	// the session was idle, its owner held its maximum number of sessions, and another session waited for it
	ReasonEvictedCap      = "evicted_cap"
	ReasonEvictedIdle     = "evicted_idle"      // the owner did not renew the lease of the idle session
	ReasonEvictedPressure = "evicted_pressure"  // the worker is short of memory
	ReasonShutdown        = "shutdown"          // the worker drains
	ReasonRestored        = "database_restored" // an operator released all sessions after a restore
	ReasonSetUpFailed     = protocol.ReturnedSetUpFailed
	ReasonDeleted         = "deleted" // the owner released the session with a DELETE request that named no reason
)

// Release policies decide what happens to a session when the release changes. With PolicyMigrate, the default, a worker
// of any release may acquire the session once its owner has released it. With PolicyFinish, it is reserved for workers
// of its release while an app of that release is alive. With PolicyFail, its waiting tasks fail (or else its next task)
// with the lost state as their error.
const (
	PolicyMigrate = "migrate"
	PolicyFinish  = "finish"
	PolicyFail    = "fail"
)

// pin returns the only release whose workers may acquire the session; "" means any release. It applies to a session
// without an owner, and to one whose soft affinity has ended.
func (s *Session) pin(now time.Time) string {
	if s.ReleasePolicy == PolicyFinish && (!s.Held(now) || s.claimableByOthers(now)) {
		return s.Release
	}
	return ""
}

// reserved reports whether a session without an owner is reserved for one worker.
func (s *Session) reserved(now time.Time) bool {
	return !s.Held(now) && s.For != "" && s.ForUntil.After(now)
}

// stateLost reports whether the session's last epoch ended without a release by its owner, so that its state may be
// lost.
func (s *Session) stateLost(now time.Time) bool {
	return s.EverAcquired && !s.Held(now) && s.Reason != ReasonReleased
}

// endedAs returns the reason for which requests to an ended session are refused. Clients distinguish a lost lease from
// a close: after a lost lease they may start a new session.
func (s *Session) endedAs() protocol.Reason {
	if s.Status == protocol.SessionClosed {
		return protocol.ReasonSessionClosed
	}
	return protocol.ReasonSessionReacquire
}

// RoutingWord returns the routing word of a session's ready tasks:
//
// - "+": no worker holds the session.
// - "+RELEASE": no worker holds it, and only workers of that release may run the tasks.
// - "=WORKER": only that worker may run them.
// - "~WORKER~RELEASE": that worker, or any other worker of that release (of any release, if it is empty).
// - "-": no worker may run them now, because the session has ended or moves to another worker.
//
// The rows of the tasks contain the word, so a poll finds its tasks by an index and never reads tasks of other workers.
// The word does not depend on the session's activity limit; StoredRoutingWord adds that. RoutingWord returns the
// previous word if it is still correct, which avoids an allocation in most steps.
func (s *Session) RoutingWord(now time.Time, previous string) string {
	switch {
	case s.Terminal:
		return "-"
	case s.Moving != "" && s.Held(now), s.Drained:
		return "-"
	case s.reserved(now) && !s.activityLimitReached(now):
		return "=" + s.For
	case s.activityLimitReached(now):
		return "-"
	case !s.Held(now):
		return "+" + s.pin(now)
	// The owner may run the tasks, and so may other workers of the release to which the session is pinned.
	case s.claimableByOthers(now):
		return "~" + s.Owner + "~" + s.pin(now)
	case len(previous) == 1+len(s.Owner) && previous[0] == '=' && previous[1:] == s.Owner:
		return previous
	default:
		return "=" + s.Owner
	}
}

// StoredRoutingWord returns the routing word under which the ready tasks of a session are stored: "-", which no poll
// reads, while the session's activity limit is reached.
func (s *Session) StoredRoutingWord(word string) string {
	if (word[0] == '=' || word[0] == '~') && s.Owner != "" && s.Full() {
		return "-"
	}
	return word
}
