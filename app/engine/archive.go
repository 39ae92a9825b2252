package engine

import "github.com/sojourn-run/sojourn/shared/protocol"

// ArchiveRun marks a closed run as archived. The history and the status do not change, because no event follows the end
// of a run; the mark is stored in the run's row. Archiving a run twice has no further effect.
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
