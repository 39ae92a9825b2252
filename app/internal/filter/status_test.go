package filter

import (
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A status word selects the runs that are shown with it: the bucket for ?status=, the status in a filter. A stored
// status that is neither selects itself, and ?stored_status= selects exactly one stored status.
func TestStatusesInFiltersMatchThoseInResponses(t *testing.T) {
	for _, s := range protocol.RunStatuses {
		inFilter, inBucket, closed := protocol.PublicRun(s, true, true)
		for _, of := range protocol.RunStatuses {
			word := string(of)
			listed, err := Statuses(word, "")
			if want := word == inBucket || word == string(s); slices.Contains(listed, s) != want || err != nil {
				t.Errorf("?status=%s lists %s: %t (%v), want %t", word, s, !want, err, want)
			}
			if want := word == inFilter || word == string(s); slices.Contains(statusesFor(word, shownAs), s) != want {
				t.Errorf("Status = '%s' means %s: %t, want %t", word, s, !want, want)
			}
			if listed, err = Statuses("", word); err != nil || !slices.Equal(listed, []protocol.RunStatus{of}) {
				t.Errorf("?stored_status=%s lists %v (%v)", word, listed, err)
			}
		}
		reason := &closed
		if s.Open() {
			reason = nil
		}
		for _, seen := range []struct{ ever, busy bool }{{true, true}, {true, false}, {false, false}} {
			status, _, _ := protocol.PublicRun(s, seen.ever, seen.busy)
			if back := protocol.StoredRun(status, reason); back != s {
				t.Errorf("%s, shown as %s (%v), is read as %s", s, status, closed, back)
			}
		}
	}
	for _, wrong := range [][2]string{{"lost", ""}, {"", "lost"}, {"failed", "failed"}} {
		if listed, err := Statuses(wrong[0], wrong[1]); err == nil {
			t.Errorf("status %q, stored_status %q lists %v", wrong[0], wrong[1], listed)
		}
	}
}
