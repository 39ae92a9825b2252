package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Verdict is whether a worker may have a task, and if not, why: for programs and for people.
type Verdict struct {
	OK     bool
	Reason protocol.Reason
	Text   string
}

func admitted() Verdict { return Verdict{OK: true} }

func refused(r protocol.Reason, format string, args ...any) Verdict {
	return Verdict{Reason: r, Text: fmt.Sprintf(format, args...)}
}

// CapSessions is the capability a worker declares to be given anything of sessions: tasks in them, and workflow tasks of runs whose history has them.
const CapSessions = "worker_sessions"

// Wanted is what a task asks of the worker that gets it.
type Wanted struct {
	Kind         protocol.TaskKind
	Type         string
	BuildID      string
	Requirements []string
	Session      *Session
	Queue        *Queue // what was decided about its queue; nil: nothing
}

// Admit holds every routing rule there is, after the queue and the release gate: types, builds, requirements, then the session's. now is the
// store's clock.
func Admit(t Wanted, l Lessee, now time.Time) Verdict {
	w := l.Worker
	if !w.Runs(t.Kind, t.Type) {
		return refused(protocol.ReasonNotFound, "worker %s does not run %s", w.ID, t.Type)
	}
	if t.Queue.Drained(w.BuildID) {
		return refused(protocol.ReasonWorkerDraining, "worker %s has %s, which is drained on queue %s", w.ID, buildName(w.BuildID), t.Queue.Name)
	}
	if t.BuildID != "" && t.BuildID != w.BuildID {
		return refused(protocol.ReasonVersionMismatch, "pinned to build %s, worker %s has %s", t.BuildID, w.ID, buildName(w.BuildID))
	}
	if missing := Missing(t.Requirements, w.Capabilities); len(missing) > 0 {
		return refused(protocol.ReasonSessionRequirements, "needs %s, which worker %s does not offer", strings.Join(missing, ", "), w.ID)
	}
	if t.Session == nil {
		return admitted()
	}
	return AdmitSession(t.Session, l, now, false)
}

func buildName(id string) string {
	if id == "" {
		return "no build id"
	}
	return "build " + id
}

// AdmitSession judges a session alone. verb is true when a worker asks for the session itself and not for a task in it: then the activity cap does
// not count.
func AdmitSession(s *Session, l Lessee, now time.Time, verb bool) Verdict {
	w := l.Worker
	if missing := Missing(s.Requirements, w.Capabilities); len(missing) > 0 {
		return refused(protocol.ReasonSessionRequirements, "session %s needs %s, which worker %s does not offer", s.ID, strings.Join(missing, ", "), w.ID)
	}
	if s.Terminal {
		return refused(s.endedAs(), "session %s has ended: %s", s.ID, s.Reason)
	}
	if !verb && (s.Moving != "" && s.Held(now) || s.Drained) {
		return refused(protocol.ReasonSessionOwned, "session %s changes hands; its queued tasks wait", s.ID)
	}
	if s.Held(now) && s.Owner != w.ID && !s.open(now) {
		return refused(protocol.ReasonSessionOwned, "held by worker %s until %s%s", s.Owner, s.LeaseUntil.Format("15:04:05"), s.Fallbacks())
	}
	own := s.HeldBy(w.ID, now)
	if own && s.Incarnation == w.Incarnation {
		if !verb && s.Full() {
			return refused(protocol.ReasonSessionActivityLimit, "session %s runs %d activities at once, its most", s.ID, s.running())
		}
		return admitted()
	}
	if pin := s.pin(now); pin != "" && w.Release != pin {
		return refused(protocol.ReasonVersionMismatch, "session %s stays with release %s while that is served, worker %s is of %s", s.ID, pin, w.ID, w.Release)
	}
	if s.kept(now) && s.For != w.ID {
		return refused(protocol.ReasonSessionOwned, "kept for worker %s until %s", s.For, s.ForUntil.Format("15:04:05"))
	}
	if s.lost(now) && s.NoReacquire && !own {
		return refused(protocol.ReasonSessionReacquire, "session %s was lost (%s) and may not be acquired again", s.ID, s.Reason)
	}
	if w.MaxSessions == 0 {
		return refused(protocol.ReasonSessionLimit, "worker %s holds no sessions", w.ID)
	}
	if !l.Counted {
		return refused(protocol.ReasonSessionOwned, "session %s is for any worker; a claim will decide", s.ID)
	}
	if !own && l.Sessions >= w.MaxSessions {
		return refused(protocol.ReasonSessionLimit, "worker %s holds %d sessions, its most", w.ID, l.Sessions)
	}
	return admitted()
}

// Why the last holding of a session ended, as its row, its timeline and receipts say it.
const (
	ReasonReleased    = "released"
	ReasonLeaseLost   = "lease_expired"
	ReasonOrphaned    = "worker_heartbeat_stale"
	ReasonTTL         = "ttl_expired"
	ReasonClosed      = "closed"
	ReasonRestarted   = "worker_restarted"
	ReasonFallback    = "fallback" // its tasks waited for the holder for longer than its soft affinity allows
	ReasonEndedByFlow = "ended_by_workflow"
	ReasonShutdown    = "shutdown" // what a worker says when it releases in its drain
)

// What a change of release does to a session: PolicyMigrate, the default, lets a worker of any release claim it once its holder has released it;
// PolicyFinish keeps it for workers of its release for as long as an app of that release lives; PolicyFail fails the tasks that wait for it, or else
// the next one, with the lost state as their error.
const (
	PolicyMigrate = "migrate"
	PolicyFinish  = "finish"
	PolicyFail    = "fail"
)

// KnownPolicy says whether there is such a release policy; empty means the default.
func KnownPolicy(p string) bool {
	return p == "" || p == PolicyMigrate || p == PolicyFinish || p == PolicyFail
}

// pin is the release whose workers alone may claim a session that nobody holds, or that falls back from its holder; "" for any.
func (s *Session) pin(now time.Time) string {
	if s.ReleasePolicy == PolicyFinish && (!s.Held(now) || s.open(now)) {
		return s.Release
	}
	return ""
}

// kept says whether a session nobody holds is kept for one worker.
func (s *Session) kept(now time.Time) bool {
	return !s.Held(now) && s.For != "" && s.ForUntil.After(now)
}

// lost says whether the session's last holding ended without its holder's word.
func (s *Session) lost(now time.Time) bool {
	return s.Claimed && !s.Held(now) && s.Reason != ReasonReleased
}

// endedAs is the refusal of a session that has ended: a lease that was lost for good is another matter than a close.
func (s *Session) endedAs() protocol.Reason {
	if s.Status == protocol.SessionClosed {
		return protocol.ReasonSessionClosed
	}
	return protocol.ReasonSessionReacquire
}

// Word is the routing word of a session's ready tasks: "+" nobody holds it, "+RELEASE" nobody holds it and only workers of that release may take it,
// "=WORKER" that worker may take them, "~WORKER~RELEASE" that worker, or any other one of that release (of any, without one), "-" nobody may now: its
// activity cap is full, or it changes hands.
func (s *Session) Word(now time.Time) string {
	switch {
	case s.Moving != "" && s.Held(now), s.Drained:
		return "-"
	case s.kept(now):
		return "=" + s.For
	case !s.Held(now):
		return "+" + s.pin(now)
	case s.Full():
		return "-"
	case s.open(now):
		return "~" + s.Owner + "~" + s.pin(now)
	default:
		return "=" + s.Owner
	}
}
