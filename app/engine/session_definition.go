package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A session may have a definition: a pair of functions, set-up and tear-down, that workers register. The app never runs
// them. It admits only workers with the definition, stores the arguments of the first use in a separate row, and
// delivers them with each task until a worker has reported the set-up of the epoch.

// SetUpMargin is added, in seconds, to the timeout of a set-up before the app times out the attempt that runs it: the
// worker's timer started later, and the worker reports the timeout first.
const SetUpMargin = 30

// argumentsWarning is the warning for an activity or session with arguments other than the stored ones.
const argumentsWarning = "the session keeps the set-up arguments of its first use; the arguments of this command differ"

// NeededCapabilities returns the capabilities that the owner of the session must have: its requirements, the capability
// of its definition, and the one for fail-fast sessions.
func (s *Session) NeededCapabilities() []string {
	needed := s.Requirements
	if s.Definition != "" {
		needed = append(slices.Clone(needed), protocol.DefinitionCapability(s.Definition))
	}
	if s.FailFast {
		needed = append(slices.Clone(needed), protocol.CapFailFast)
	}
	return needed
}

// lacksDefinition reports whether the session has a definition that the worker has not registered.
func (s *Session) lacksDefinition(w *Worker) bool {
	return s.Definition != "" && !slices.Contains(w.Capabilities, protocol.DefinitionCapability(s.Definition))
}

// NeedsSetUp reports whether no worker has reported the set-up of the current epoch.
func (s *Session) NeedsSetUp() bool { return s.Definition != "" && s.SetUpEpoch != s.Epoch }

// sealedArguments is the hash of arguments that a codec encoded. Encrypted arguments differ each time they are
// encrypted, so they cannot be compared.
const sealedArguments = "encoded by a codec"

// hashArguments returns the hash of arguments; empty if there are none.
func hashArguments(blob string) string {
	if blob == "" {
		return ""
	}
	if payload.IsSealed(blob) {
		return sealedArguments
	}
	sum := sha256.Sum256([]byte(blob))
	return hex.EncodeToString(sum[:16])
}

// define applies the definition that a command names to a session that the run may use. A session keeps its first
// definition; another one is refused. A session that was acquired without a definition accepts none. Different
// arguments have no effect and cause the returned warning. store is true if the arguments must be stored.
func (s *Session) define(d *protocol.SessionDefinition) (store bool, warning string, refused *protocol.Error) {
	hash := ""
	if d != nil {
		hash = hashArguments(d.Arguments.Blob)
	}
	switch {
	case d == nil:
		return false, "", nil
	case s.Definition == d.Name:
		if s.ArgumentsHash != hash {
			warning = argumentsWarning
		}
		return false, warning, nil
	case s.EverAcquired && s.Definition == "":
		return false, "", protocol.Refuse(
			protocol.ReasonInvalidSession, "session %s exists without a definition; use another session for %s", s.ID, d.Name,
		)
	case s.Definition != "":
		return false, "", protocol.Refuse(
			protocol.ReasonInvalidSession, "session %s exists with the definition %s, not %s", s.ID, s.Definition, d.Name,
		)
	}
	s.Definition, s.OnLost, s.ArgumentsHash = d.Name, d.OnLost, hash
	return true, "", nil
}

// storeArguments adds the arguments of a session's definition to the session's change in this step.
func (st *step) storeArguments(id, blob string) {
	for i := range st.d.Sessions {
		if c := &st.d.Sessions[i]; c.Session.ID == id {
			c.Arguments = &blob
		}
	}
}

// settingUp reports whether the attempt runs the set-up of its session, according to its worker.
func (a *Activity) settingUp() bool {
	return a.Rebuild != nil && a.Rebuild.SetUp != nil && a.Rebuild.SetUp.Outcome == protocol.RebuildRunning
}

// codeSince returns the time from which the timeouts of the attempt's code count: the end of its set-up, or else the
// start of its lease.
func (a *Activity) codeSince() history.Time { return latest(a.LeasedAt, a.SetUpAt) }

// reportedSetUp applies the progress of a set-up that the worker reported with a heartbeat or an outcome. It must be
// called before the activity is stored: the timeouts of the code count from the end of the set-up, and the session's
// row records that its state exists.
func (st *step) reportedSetUp(a *Activity, r *protocol.Recovered) {
	if r == nil || r.SetUp == nil {
		return
	}
	a.SetUpAt = st.now
	if r.SetUp.RestoreFailed != "" {
		st.restoreFailed(*a, r.SetUp.RestoreFailed)
	}
	if r.SetUp.Waited || r.SetUp.Outcome == protocol.RebuildRunning {
		return
	}
	s, ok := st.session(a.SessionID)
	if !ok || s.Definition == "" || s.Epoch != a.Epoch || s.SetUpEpoch == s.Epoch {
		return
	}
	if last := a.Rebuild; last != nil && last.SetUp != nil && last.SetUp.Outcome == r.SetUp.Outcome {
		return // the worker reported it with a heartbeat
	}
	e := protocol.SessionEvent{
		At: st.now, What: "set_up", Worker: a.Owner, Epoch: a.Epoch, By: a.Owner, Task: StepID(st.ID, a.Seq),
		Seconds: r.SetUp.Seconds,
	}
	switch r.SetUp.Outcome {
	case protocol.Rebuilt:
		s.setUpDone()
	case protocol.RebuildFailed:
		e.What, e.Why = "set_up_failed", withShortCause(r).Cause
	default:
		return
	}
	st.storeSession(s, e)
}

// maxUnstartedSetUps is the maximum number of consecutive returned attempts of an activity whose set-ups have events.
// Each return of an activity that no worker can set up would otherwise add an event to the history.
const maxUnstartedSetUps = 10

// setUpWithoutOutcome appends the event of a set-up that the worker last reported in an attempt that ends without an
// outcome: the worker returned it or was lost.
func (st *step) setUpWithoutOutcome(a Activity) {
	r := a.Rebuild
	if r == nil || r.SetUp == nil {
		return
	}
	r = withShortCause(r)
	if a.UnstartedReturns < maxUnstartedSetUps {
		st.recordSetUp(a, r)
	}
}

// recordSetUp appends the event of a set-up that ran in an attempt that is about to end.
func (st *step) recordSetUp(a Activity, r *protocol.Recovered) {
	if r.SetUp.Waited {
		return
	}
	e := &history.SessionSetUp{
		CommandSequence: a.Seq, SessionID: a.SessionID, Epoch: a.Epoch, Definition: r.SetUp.Definition,
		Outcome: history.SetUpCompleted, Seconds: r.SetUp.Seconds,
	}
	if r.Rebuild == "" {
		e.Reason, e.Cause = r.Reason, r.Cause
	}
	switch r.SetUp.Outcome {
	case protocol.RebuildFailed:
		e.Outcome = history.SetUpFailed
	case protocol.RebuildCancelled, protocol.RebuildRunning:
		e.Outcome = history.SetUpCancelled
	}
	st.emit(e)
}
