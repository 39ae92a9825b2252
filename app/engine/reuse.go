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

// A workflow ID refers to the newest run that was started with it. The policies of a start decide what happens if the
// ID is in use: the start returns the existing run, terminates it, begins a new chain under the same ID, or is refused.
// Chains with the same ID share nothing but the ID: sessions, signals, updates and children belong to one chain.

// StartKey is the Idempotency-Key of a start, with the run that the start created.
type StartKey struct {
	Key  string `json:"key"`
	Run  string `json:"run"`
	Hash string `json:"hash"` // hash of the request
}

// Receipt returns the request ID under which the response to the start is stored after a later chain of the workflow ID
// has replaced the chain. It is a hash, so that it differs from all request IDs of clients.
func (k *StartKey) Receipt() string {
	sum := sha256.Sum256([]byte("start " + k.Key))
	return "start " + hex.EncodeToString(sum[:])
}

// ExistingStart says what a start does if its workflow ID is in use.
type ExistingStart int

// These are the possible effects of such a start.
const (
	ReturnRun    ExistingStart = iota // return the open run
	TerminateRun                      // terminate the open run and begin a new chain in the same step
	ReuseID                           // begin a new chain, since the newest run is closed
)

// ReasonReplaced is the reason of the termination of a run by a start with the conflict policy terminate-existing.
const ReasonReplaced = "replaced by a new start of the workflow ID"

// DecideExisting returns what a start does if its workflow ID is in use. run is the newest run of the ID, or nil if its
// row was deleted. The error is a refusal that names the policies which would allow the start. No policy allows it
// while the newest run is a closed child whose parent has not received the child's end.
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
		// If the parent retried the child, the retry would replace the new chain as the run of the workflow ID.
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

// duplicateStart returns the refusal of a start. allowing are the values of the policy that would allow it.
func duplicateStart(flow *Workflow, run *Run, policy string, allowing ...string) *protocol.Error {
	return protocol.Refuse(
		protocol.ReasonDuplicateStart, "%s; %s %s allows the start", WorkflowIDInUse(flow, run), policy,
		strings.Join(allowing, " or "),
	).With("workflow_id", flow.ID).With("run_id", flow.RunID).With("outcome", "rejected_duplicate").
		With("allowed_by", map[string][]string{policy: allowing})
}

// WorkflowIDInUse returns a message that a workflow ID is in use. run is the newest run of the ID, or nil if its row
// was deleted.
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

// OrderRuns sorts the runs of one workflow ID from the oldest to the newest: chains by the start of their first run,
// and within a chain by number. A chain without a chain ID need not be the first one, since an import may add an older
// one.
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
		return cmp.Or(cmp.Compare(began[a.Chain], began[b.Chain]), cmp.Compare(a.Chain, b.Chain))
	})
}
