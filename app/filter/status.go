package filter

import "github.com/sojourn-run/sojourn/shared/protocol"

// A word for a status may mean several of the stored ones, and not the same everywhere: the contract has buckets where
// a listing is asked for by ?status=, and the status that a run is shown with where a filter says Status. Both meanings
// stand here, side by side.

// statusWord is what a word means of the stored statuses.
type statusWord struct {
	bucket []protocol.RunStatus // of ?status=: failed is whatever did not complete
	// of Status in a filter: a run that timed out is shown as failed, one that went on as completed
	shown []protocol.RunStatus
}

func alone(s protocol.RunStatus) statusWord {
	return statusWord{bucket: []protocol.RunStatus{s}, shown: []protocol.RunStatus{s}}
}

var statusWords = map[string]statusWord{
	"running": alone(protocol.RunRunning),
	"completed": {
		bucket: []protocol.RunStatus{protocol.RunCompleted, protocol.RunContinued},
		shown:  []protocol.RunStatus{protocol.RunCompleted, protocol.RunContinued},
	},
	"failed": {
		bucket: []protocol.RunStatus{protocol.RunFailed, protocol.RunTimedOut, protocol.RunCancelled, protocol.RunTerminated},
		shown:  []protocol.RunStatus{protocol.RunFailed, protocol.RunTimedOut},
	},
	"cancelled":  alone(protocol.RunCancelled),
	"terminated": alone(protocol.RunTerminated),
	"timed_out":  alone(protocol.RunTimedOut),
	"continued":  alone(protocol.RunContinued),
}

// Statuses is what ?status= asks for; nothing for all.
func Statuses(word string) ([]protocol.RunStatus, error) {
	if word == "" {
		return nil, nil
	}
	meant, ok := statusWords[word]
	if !ok {
		return nil, protocol.Invalid(
			"status", "must be running, completed, failed, cancelled, terminated, timed_out or continued, not %q", word,
		)
	}
	return meant.bucket, nil
}
