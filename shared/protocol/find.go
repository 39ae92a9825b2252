package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// FindKind is the kind of object that an ID names.
type FindKind string

// These are the kinds of objects that can be found by ID.
const (
	FindWorkflow    FindKind = "workflow"     // a workflow ID, also of an activity run
	FindRun         FindKind = "run"          // a run ID
	FindBusinessKey FindKind = "business_key" // a business key: the newest run with it
	FindSession     FindKind = "session"
	FindWorker      FindKind = "worker"
	FindSchedule    FindKind = "schedule"
	FindStep        FindKind = "step" // RUN-SEQUENCE: an activity, a timer, a child or an awakeable of a run
)

// FindRequest looks for objects of any kind by ID.
type FindRequest struct {
	Namespace string `json:"-"`
	ID        string `json:"id" maxLength:"255"`
}

// FindResponse contains the objects with the requested ID, and objects whose IDs begin with it.
type FindResponse struct {
	// at most one of each kind, ordered by kind: workflow, run, business_key, session, worker, schedule, step
	Matches  []Found `json:"matches"`
	Prefixes []Found `json:"prefixes"` // at most five of each kind, in the order of the IDs, without the matches
}

// Found is an object that was found by its ID.
type Found struct {
	Kind FindKind `json:"kind"`
	ID   string   `json:"id"`
	// the run to which the object leads: the current run of a workflow ID, the newest run with a business key
	WorkflowID   string        `json:"workflow_id,omitempty"`
	RunID        string        `json:"run_id,omitempty"`
	RunKind      string        `json:"run_kind,omitempty"` // workflow or activity; only of matches
	WorkflowType string        `json:"workflow_type,omitempty"`
	Status       RunStatus     `json:"status,omitempty"`   // of the run; only of matches
	Sequence     int64         `json:"sequence,omitempty"` // of a step in its run
	At           *history.Time `json:"at,omitempty"`       // start of the run, or last change of the session or worker
}
