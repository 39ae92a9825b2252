package engine

import (
	"strings"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// When a session moves, its next worker may have to rebuild the session's state before an activity can continue. It
// rebuilds the state within the attempt. History records the rebuild, to explain why an attempt took long or failed.

// maxCause is the maximum size in bytes of the stored reason why a session's state was missing.
const maxCause = 2000

// recordRebuild records the rebuild of a session's state in an attempt that is about to end, whether the rebuild
// succeeded or not. It returns how often the activity was tried again after a rebuild. A rebuild that was still running
// when the attempt ended counts as cancelled.
func (st *step) recordRebuild(a Activity, r *protocol.Recovered) int {
	if r == nil && a.Rebuild != nil && a.Rebuild.SetUp != nil && a.Rebuild.Rebuild == "" {
		r = a.Rebuild // workers of other SDKs report set-ups with heartbeats only
	}
	if r == nil {
		return 0
	}
	r = withShortCause(r)
	st.reportedSetUp(&a, r)
	if r.SetUp != nil {
		st.recordSetUp(a, r)
	}
	if r.Rebuild == "" {
		return 0
	}
	outcome := protocol.Rebuilt
	switch r.Outcome {
	case protocol.RebuildFailed, protocol.RebuildCancelled:
		outcome = r.Outcome
	case protocol.RebuildRunning:
		outcome = protocol.RebuildCancelled
	}
	st.emit(&history.SessionRecovered{
		CommandSequence: a.Seq, SessionID: a.SessionID, Epoch: a.Epoch, Rebuild: r.Rebuild, Cause: r.Cause, Reason: r.Reason,
		Retries: r.Retries,
		Outcome: outcome,
	})
	return r.Retries
}

// recordInterruptedRebuild records the rebuild, as the worker last reported it, of an attempt that ends without an
// outcome.
func (st *step) recordInterruptedRebuild(a Activity) {
	if a.State == LeasedState {
		st.recordRebuild(a, a.Rebuild)
	}
}

// withShortCause returns r with its cause shortened to maxCause.
func withShortCause(r *protocol.Recovered) *protocol.Recovered {
	if len(r.Cause) <= maxCause {
		return r
	}
	short := *r
	short.Cause = strings.ToValidUTF8(r.Cause[:maxCause], "")
	return &short
}
