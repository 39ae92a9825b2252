package engine

import (
	"strings"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// When a session moves, the next worker may have to rebuild its state before the activity can continue. The worker
// rebuilds it within the attempt. The record below explains later why an attempt took so long or failed.

// maxCause is the maximum number of bytes of the reason why a session's state was missing, as stored in history.
const maxCause = 2000

// recovered records that a session's state was rebuilt, or was to be, inside an attempt that is about to end.
// It returns how often the activity was tried again. A rebuild that was still running when the attempt ended
// counts as cancelled.
func (st *step) recovered(a Activity, r *protocol.Recovered) int {
	if r == nil && a.Rebuild != nil && a.Rebuild.SetUp != nil && a.Rebuild.Rebuild == "" {
		r = a.Rebuild // workers of other SDKs report set-ups with heartbeats only
	}
	if r == nil {
		return 0
	}
	r = clipped(r)
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

// interrupted records the rebuild of an attempt that ends without an outcome from its worker, as the worker last
// reported it.
func (st *step) interrupted(a Activity) {
	if a.State == LeasedState {
		st.recovered(a, a.Rebuild)
	}
}

// clipped shortens the cause to what history keeps.
func clipped(r *protocol.Recovered) *protocol.Recovered {
	if len(r.Cause) <= maxCause {
		return r
	}
	short := *r
	short.Cause = strings.ToValidUTF8(r.Cause[:maxCause], "")
	return &short
}
