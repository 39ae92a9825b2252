package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A workflow ID addresses the newest run that was started with it. A start with the ID of an existing run returns that
// run, ends it, begins a new chain under the same ID or is refused, by the policies of the request. Runs of a chain and
// of the chains before it share nothing but the ID: sessions, signals, updates and children belong to their chain.

// StartKey is the Idempotency-Key of a start and the run that the start began.
type StartKey struct {
	Key  string `json:"key"`
	Run  string `json:"run"`
	Hash string `json:"hash"` // of the request
}

// Receipt returns the request ID under which the store keeps the response to the start after the chain was replaced by
// a later chain of the workflow ID. It is a hash, so that no request ID of a client equals it.
func (k *StartKey) Receipt() string {
	sum := sha256.Sum256([]byte("start " + k.Key))
	return "start " + hex.EncodeToString(sum[:])
}

// ExistingStart is the effect of a start whose workflow ID has a run.
type ExistingStart int

// The effects of a start whose workflow ID has a run.
const (
	ReturnRun    ExistingStart = iota // return the open run
	TerminateRun                      // terminate the open run and begin a new chain in the same step
	ReuseID                           // begin a new chain: the newest run is closed
)

// ReasonReplaced is the reason of the termination of a run by a start with the conflict policy terminate-existing.
const ReasonReplaced = "replaced by a new start of the workflow ID"

// DecideExisting returns the effect of a start whose workflow ID is in use. run is the newest run of the ID; nil if its
// row is deleted. The error is a refusal that names the policies which allow the start; no policy allows it while the
// parent of a closed child run has not received the end of the run.
func DecideExisting(r *protocol.StartRequest, flow *Workflow, run *Run) (ExistingStart, error) {
	if run != nil && run.Status.Open() {
		switch cmp.Or(r.ConflictPolicy, r.DuplicatePolicy) {
		case protocol.ConflictUseExisting:
			return ReturnRun, nil
		case protocol.ConflictTerminateExisting:
			return TerminateRun, nil
		}
		return 0, duplicateStart(
			flow, run, "conflict_policy", protocol.ConflictUseExisting, protocol.ConflictTerminateExisting,
		)
	}
	if run != nil && run.owesParentReport() {
		// A retry by the parent would replace the new chain as the run that the workflow ID addresses.
		return 0, protocol.Refuse(
			protocol.ReasonDuplicateStart,
			"workflow ID %q is used by a child run that its parent may retry, until it has received its end; try again later",
			flow.ID,
		).With("workflow_id", flow.ID).With("run_id", flow.RunID).With("outcome", "rejected_duplicate")
	}
	failed := run != nil && slices.Contains([]protocol.RunStatus{
		protocol.RunFailed, protocol.RunTimedOut, protocol.RunCancelled, protocol.RunTerminated,
	}, run.Status)
	switch {
	case r.ReusePolicy == protocol.ReuseAllow, r.ReusePolicy == protocol.ReuseAfterFailure && failed:
		return ReuseID, nil
	case failed:
		return 0, duplicateStart(flow, run, "reuse_policy", protocol.ReuseAfterFailure, protocol.ReuseAllow)
	}
	return 0, duplicateStart(flow, run, "reuse_policy", protocol.ReuseAllow)
}

// duplicateStart refuses a start. allowing are the values of the policy with which the start would be accepted.
func duplicateStart(flow *Workflow, run *Run, policy string, allowing ...string) *protocol.Error {
	return protocol.Refuse(
		protocol.ReasonDuplicateStart, "%s; %s %s allows the start", WorkflowIDInUse(flow, run), policy,
		strings.Join(allowing, " or "),
	).With("workflow_id", flow.ID).With("run_id", flow.RunID).With("outcome", "rejected_duplicate").
		With("allowed_by", map[string][]string{policy: allowing})
}

// WorkflowIDInUse explains that a workflow ID is in use. run is the newest run of the ID; nil if its row is deleted.
func WorkflowIDInUse(flow *Workflow, run *Run) string {
	switch {
	case run == nil:
		return fmt.Sprintf("workflow ID %q was used by run %s", flow.ID, flow.RunID)
	case run.Status.Open():
		return fmt.Sprintf("workflow ID %q is used by a run that is still open", flow.ID)
	}
	ended := map[protocol.RunStatus]string{
		protocol.RunCancelled: "was cancelled", protocol.RunTerminated: "was terminated", protocol.RunTimedOut: "timed out",
		protocol.RunContinued: "continued as new",
	}
	return fmt.Sprintf(
		"workflow ID %q was used by a run that %s at %s", flow.ID, cmp.Or(ended[run.Status], string(run.Status)),
		run.ClosedAt.UTC().Format(time.RFC3339),
	)
}

// OrderRuns orders the runs of one workflow ID from the oldest to the newest: by chain, and in a chain by number. Times
// of runs do not order them, because the runs of an imported chain were stored in another order.
func OrderRuns(heads []Head) {
	began := map[string]int64{}
	for i := range heads {
		h := &heads[i]
		if at, ok := began[h.Chain]; !ok || h.StartedAt.Micros() < at {
			began[h.Chain] = h.StartedAt.Micros()
		}
	}
	slices.SortStableFunc(heads, func(a, b Head) int {
		if a.Chain == b.Chain {
			return cmp.Compare(a.Number, b.Number)
		}
		if a.Chain == "" || b.Chain == "" { // the first chain of the ID
			return cmp.Compare(a.Chain, b.Chain)
		}
		return cmp.Or(cmp.Compare(began[a.Chain], began[b.Chain]), cmp.Compare(a.Chain, b.Chain))
	})
}
