package engine

import "github.com/sojourn-run/sojourn/shared/protocol"

// ArchiveRun marks a closed run as dealt with. Its history and its status stay what they are, since nothing follows the
// end of a run: the mark stands next to them. Archiving again changes nothing.
type ArchiveRun struct{ Reason string }

func (in ArchiveRun) decide(st *step) error {
	switch {
	case st.Status.Open():
		return protocol.Refuse(protocol.ReasonRunNotClosed, "run %s is open; a run is archived when it has closed", st.ID).
			With("outcome", "rejected_run_not_closed")
	case !st.ArchivedAt.IsZero():
		st.d.Answer.Outcome = "archive_not_needed"
	default:
		st.ArchivedAt, st.ArchiveReason = st.now, in.Reason
		st.d.Answer.Outcome = "archived"
	}
	return nil
}
