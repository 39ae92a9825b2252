package engine

import (
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Tasks may be queued in a session that ends. Each of them fails in a separate step of its run, since one decision
// changes one run.

// SessionEndedReason is the reason in history of activities that were cancelled because their workflow ended the
// session.
const SessionEndedReason = "session ended"

// sessionEndedFailure returns the failure of an activity whose session has ended. It is not retryable, because no retry
// could succeed.
func sessionEndedFailure(s *Session) history.Failure {
	return history.Failure{
		Category: "session", ExceptionType: string(protocol.ReasonSessionClosed), NonRetryable: true,
		Message: fmt.Sprintf("session %s has ended: %s", s.ID, s.Reason),
	}
}

// stateDrained returns the failure of an activity whose session lost its state because its worker was drained.
func stateDrained(s *Session) history.Failure {
	return history.Failure{
		Category: "session_lost", ExceptionType: "SessionLost", NonRetryable: true,
		Message: fmt.Sprintf("drained: the holder of session %s, epoch %d, has left", s.ID, s.Epoch),
	}
}

// EndQueued fails an activity that can no longer run in its session: the session has ended, or its release policy lets
// waiting tasks fail after a drain of the owner. Running activities continue until their leases end.
type EndQueued struct{ Seq int64 }

func (in EndQueued) decide(st *step) error {
	if err := st.mustHaveTasks(); err != nil {
		return err
	}
	a, ok := st.Activities.Get(in.Seq)
	if !ok || a.State == LeasedState || a.State == Pending || a.SessionID == "" {
		return errNotDue
	}
	s, ok := st.session(a.SessionID)
	if !ok || !s.Terminal && (!s.Drained || a.State != Ready) {
		return errNotDue
	}
	f := sessionEndedFailure(&s)
	if !s.Terminal {
		f = stateDrained(&s)
	}
	st.endActivity(a, false)
	st.fail(a, f, "")
	// The last waiting task has failed, so the next task of the session runs without a reported loss.
	if s, _ = st.session(a.SessionID); s.Drained && s.Ready == 0 {
		s.Drained = false
		st.storeSession(s)
	}
	return nil
}
