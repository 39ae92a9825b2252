package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An activity with the cancellation policy abandon does not end with its run. Its row stays with the closed run, and
// leases, heartbeats, retries and timeouts apply to it as before. Its outcome is accepted and deletes its row; neither
// the history nor the row of the closed run changes.

// staysOpenAfterClose reports whether an open activity stays open when the run closes. An activity run closes with its
// activity.
func (s *Run) staysOpenAfterClose(a Activity) bool {
	return a.Policy == protocol.CancelAbandon && s.HasCode()
}

// emitUnrecorded applies an event of an abandoned activity to the activity's row without recording the event, because
// the history of a closed run must not grow.
func (st *step) emitUnrecorded(e history.Event) {
	head := st.Head
	st.Evolve(e)
	st.Head = head
	st.d.Unrecorded = append(st.d.Unrecorded, e)
}

// EndAbandoned ends the abandoned activities of a closed run, before the run is removed. Their workers are notified.
type EndAbandoned struct{ Why string }

func (in EndAbandoned) decide(st *step) error {
	if st.Status.Open() || st.Activities.Len() == 0 {
		return errNotDue
	}
	for _, a := range st.Activities.All() {
		st.cancelled(a, in.Why)
	}
	return nil
}
