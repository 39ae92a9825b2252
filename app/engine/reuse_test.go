package engine

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A parent may retry a closed child run until the parent has received the child's end. Until then no start may use the
// child's workflow ID, whatever the policies: the retry would replace the new chain as the run of the ID.
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

// A run that continues as new must name each unreceived signal only once; a signal that is named twice would be
// delivered twice.
func TestCarriedSignalsIncreaseStrictly(t *testing.T) {
	carried := func(events ...int64) error {
		commands := []protocol.Command{{Type: "continue_as_new", Unreceived: events}}
		return checkCarried(commands, nil, make([]Signal, len(events)), 9)
	}
	if err := carried(2, 3, 7); err != nil {
		t.Errorf("increasing numbers: %v", err)
	}
	for _, events := range [][]int64{{2, 2}, {2, 3, 3}, {3, 2}} {
		if carried(events...) == nil {
			t.Errorf("%v is accepted", events)
		}
	}
}
