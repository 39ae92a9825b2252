package engine

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A closed child run may be retried by its parent until the parent has received its end. Until then no start uses its
// workflow ID again, whatever the policies: the retry would replace the new chain as the run that the ID addresses.
func TestAChildWhoseParentMayRetryItKeepsItsWorkflowID(t *testing.T) {
	flow := &Workflow{ID: "child", RunID: "R1"}
	for _, status := range []protocol.RunStatus{protocol.RunFailed, protocol.RunTimedOut, protocol.RunCompleted} {
		run := &Run{Head: Head{ID: "R1", WorkflowID: "child", Status: status}}
		run.Undelivered.Put(1, Message{Kind: ChildEnded, ToRun: "PARENT"})
		for _, conflict := range []string{
			"", protocol.ConflictFail, protocol.ConflictUseExisting, protocol.ConflictTerminateExisting,
		} {
			for _, reuse := range []string{"", protocol.ReuseReject, protocol.ReuseAfterFailure, protocol.ReuseAllow} {
				r := &protocol.StartRequest{ReusePolicy: reuse, ConflictPolicy: conflict}
				_, err := DecideExisting(r, flow, run)
				if protocol.ReasonOf(err) != protocol.ReasonDuplicateStart || !strings.Contains(err.Error(), "parent") {
					t.Errorf("%s, reuse %q, conflict %q: %v", status, reuse, conflict, err)
				}
			}
		}
		run.Undelivered.Delete(1)
		got, err := DecideExisting(&protocol.StartRequest{ReusePolicy: protocol.ReuseAllow}, flow, run)
		if got != ReuseID || err != nil {
			t.Errorf("%s, after the parent received the end: %v, %v", status, got, err)
		}
	}
}
