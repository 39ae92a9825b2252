package engine

import (
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// SessionEndedReason is why activities of a session that its workflow ended were cancelled, as history says it.
const SessionEndedReason = "session ended"

// sessionOver is the failure of an activity whose session has ended.
func sessionOver(s *Session) history.Failure {
	return history.Failure{
		Category: "session", ExceptionType: string(protocol.ReasonSessionClosed), NonRetryable: true,
		Message: fmt.Sprintf("session %s has ended: %s", s.ID, s.Reason),
	}
}

// stateDrained is the failure of an activity whose session's state went with the worker that drained.
func stateDrained(s *Session) history.Failure {
	return history.Failure{
		Category: "session_lost", ExceptionType: "SessionLost", NonRetryable: true,
		Message: fmt.Sprintf("drained: the holder of session %s, epoch %d, has left", s.ID, s.Epoch),
	}
}

// EndQueued fails an activity that waits in a session for nothing: the session has ended, or its policy is to fail what
// waited when its holder drained. What runs is left to its own lease.
type EndQueued struct{ Seq int64 }

func (in EndQueued) decide(st *step) error {
	if err := st.mustBeOpen(); err != nil {
		return err
	}
	a, ok := st.Activities.Get(in.Seq)
	if !ok || a.State == LeasedState || a.SessionID == "" {
		return errNotDue
	}
	s, ok := st.session(a.SessionID)
	if !ok || !s.Terminal && (!s.Drained || a.State != Ready) {
		return errNotDue
	}
	f := sessionOver(&s)
	if !s.Terminal {
		f = stateDrained(&s)
	}
	st.endActivity(a, false)
	st.fail(a, f, "")
	if s, _ = st.session(a.SessionID); s.Drained && s.Ready == 0 {
		s.Drained = false
		st.keep(s)
	}
	return nil
}
