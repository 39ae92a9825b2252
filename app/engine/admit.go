package engine

import (
	"fmt"
	"slices"
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

// Wanted is what a task asks of the worker that gets it.
type Wanted struct {
	Kind         protocol.TaskKind
	Type         string
	BuildID      string
	Requirements []string
	Session      *Session
}

// Admit holds every routing rule there is, after the queue and the release gate: types, builds, requirements, then the session's. now is the
// store's clock.
func Admit(t Wanted, l Lessee, now time.Time) Verdict {
	w := l.Worker
	if !w.Runs(t.Kind, t.Type) {
		return refused(protocol.ReasonNotFound, "worker %s does not run %s", w.ID, t.Type)
	}
	if t.BuildID != "" && t.BuildID != w.BuildID {
		return refused(protocol.ReasonVersionMismatch, "pinned to build %s, worker %s has %s", t.BuildID, w.ID, w.BuildID)
	}
	if missing := Missing(t.Requirements, w.Capabilities); len(missing) > 0 {
		return refused(protocol.ReasonSessionRequirements, "needs %s, which worker %s does not offer", strings.Join(missing, ", "), w.ID)
	}
	if t.Session == nil {
		return admitted()
	}
	return AdmitSession(t.Session, l, now, false)
}

// AdmitSession judges a session alone. verb is true when a worker asks for the session itself and not for a task in it: then the activity cap does
// not count.
func AdmitSession(s *Session, l Lessee, now time.Time, verb bool) Verdict {
	w := l.Worker
	if missing := Missing(s.Requirements, w.Capabilities); len(missing) > 0 {
		return refused(protocol.ReasonSessionRequirements, "session %s needs %s, which worker %s does not offer", s.ID, strings.Join(missing, ", "), w.ID)
	}
	if s.Terminal {
		return refused(protocol.ReasonSessionClosed, "session %s has ended: %s", s.ID, s.Reason)
	}
	if s.Held(now) && s.Owner != w.ID {
		return refused(protocol.ReasonSessionOwned, "held by worker %s until %s", s.Owner, s.LeaseUntil.Format("15:04:05"))
	}
	own := s.HeldBy(w.ID, now)
	if own && s.Incarnation == w.Incarnation {
		if !verb && s.Full() {
			return refused(protocol.ReasonSessionActivityLimit, "session %s runs %d activities at once, its most", s.ID, s.Active)
		}
		return admitted()
	}
	if s.Claimed && s.NoReacquire && !own && s.Reason != ReasonReleased {
		return refused(protocol.ReasonSessionReacquire, "session %s was lost (%s) and may not be acquired again", s.ID, s.Reason)
	}
	if w.MaxSessions == 0 {
		return refused(protocol.ReasonSessionLimit, "worker %s holds no sessions", w.ID)
	}
	if !l.Counted {
		return refused(protocol.ReasonSessionOwned, "session %s is held by nobody; a claim will decide", s.ID)
	}
	if !own && l.Sessions >= w.MaxSessions {
		return refused(protocol.ReasonSessionLimit, "worker %s holds %d sessions, its most", w.ID, l.Sessions)
	}
	return admitted()
}

// Missing lists the requirements no capability covers: equality of strings.
func Missing(requirements, capabilities []string) []string {
	var missing []string
	for _, r := range requirements {
		if !slices.Contains(capabilities, r) {
			missing = append(missing, r)
		}
	}
	return missing
}

// Why the last holding of a session ended, as its row, its timeline and receipts say it.
const (
	ReasonReleased    = "released"
	ReasonLeaseLost   = "lease_expired"
	ReasonOrphaned    = "worker_heartbeat_stale"
	ReasonTTL         = "ttl_expired"
	ReasonClosed      = "closed"
	ReasonRestarted   = "worker_restarted"
	ReasonEndedByFlow = "ended_by_workflow"
)

// Word is the routing word of a session's ready tasks: "+" nobody holds it, "=WORKER" that worker may take them, "-" its activity cap is full.
func (s *Session) Word(now time.Time) string {
	switch {
	case !s.Held(now):
		return "+"
	case s.Full():
		return "-"
	default:
		return "=" + s.Owner
	}
}
