package filter

import (
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// What a word means is what runs are shown with: the bucket of ?status=, the status of a filter; a stored status that
// is neither stands for itself.
func TestStatusWordsMeanWhatRunsAreShownWith(t *testing.T) {
	for _, s := range []protocol.RunStatus{
		protocol.RunRunning, protocol.RunCompleted, protocol.RunFailed, protocol.RunCancelled, protocol.RunTerminated,
		protocol.RunTimedOut,
		protocol.RunContinued,
	} {
		shown, bucket, _ := protocol.PublicRun(s, true, true)
		for word, meant := range statusWords {
			if want := word == bucket || word == string(s); slices.Contains(meant.bucket, s) != want {
				t.Errorf("?status=%s lists %s: %t, want %t", word, s, !want, want)
			}
			if want := word == shown || word == string(s); slices.Contains(meant.shown, s) != want {
				t.Errorf("Status = '%s' means %s: %t, want %t", word, s, !want, want)
			}
		}
	}
}
