package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// FleetTarget names the workers that an operator speaks of, by exactly one of its members.
type FleetTarget struct {
	WorkerID string `json:"worker_id,omitempty" maxLength:"255"`
	Group    string `json:"group,omitempty" maxLength:"255"` // of the token they registered with
	BuildID  string `json:"build_id,omitempty" maxLength:"255"`
	Release  string `json:"release,omitempty" maxLength:"255"`
}

// Text is the target as "kind name"; empty for none.
func (t FleetTarget) Text() string {
	switch {
	case t.WorkerID != "":
		return "worker " + t.WorkerID
	case t.Group != "":
		return "group " + t.Group
	case t.BuildID != "":
		return "build " + t.BuildID
	case t.Release != "":
		return "release " + t.Release
	}
	return ""
}

// The verbs on a fleet. A drain gives its workers nothing more, and lets them end what they have; evicting has them
// leave as well; resuming ends either.
const (
	FleetDrain  = "drain"
	FleetResume = "resume"
	FleetEvict  = "evict"
)

// FleetRequest is an operator's word about workers.
type FleetRequest struct {
	Namespace string `json:"-"`
	FleetTarget
	Verb     string `json:"-"`
	Identity string `json:"-"`
	// Deadline is for a drain: workers that have something left then are told to leave; 0: there is none.
	Deadline int64  `json:"deadline_seconds,omitempty" minimum:"0" maximum:"315360000"`
	Reason   string `json:"reason,omitempty" maxLength:"1000"`
}

// How a drained worker, or all that a drain is about, stand: something is left to end, or nothing is.
const (
	DrainRuns  = "draining"
	DrainEnded = "drained"
)

// FleetDrainState is a drain, and how far it is.
type FleetDrainState struct {
	Namespace string `json:"namespace"`
	FleetTarget
	Outcome string `json:"outcome,omitempty"` // of a verb: draining, evicting or resumed
	// State is draining while any of its workers has something, drained when none has: also when there is no worker.
	State      string       `json:"state" enum:"draining,drained"`
	Reason     string       `json:"reason,omitempty"`
	By         string       `json:"by,omitempty"`
	Since      history.Time `json:"since"`
	DeadlineAt history.Time `json:"deadline_at"` // null: none
	Evict      bool         `json:"evict"`       // its workers are told to leave
	Workers    int          `json:"worker_count"`
	Drained    int          `json:"drained_worker_count"` // of these, those that have nothing left
	Leases     int          `json:"active_leases"`
	Sessions   int          `json:"held_sessions"`
	// Members are the workers, those with most left first, at most 1000.
	Members []DrainedWorker `json:"workers"`
}

// DrainedWorker is a worker that is given nothing, and what it has left.
type DrainedWorker struct {
	WorkerID      string       `json:"worker_id"`
	State         string       `json:"state" enum:"draining,drained"`
	Status        WorkerStatus `json:"status"`
	Leases        int          `json:"active_leases"`
	WorkflowTasks int          `json:"active_workflow_tasks"` // of these
	Sessions      int          `json:"held_sessions"`
}

// FleetDrains are the drains of a namespace, the oldest first.
type FleetDrains struct {
	Namespace string            `json:"namespace"`
	Drains    []FleetDrainState `json:"drains"`
}

// WorkerDrain is why a worker is given nothing, at an operator's word.
type WorkerDrain struct {
	FleetTarget
	Since      history.Time `json:"since"`
	DeadlineAt history.Time `json:"deadline_at"`
	Evict      bool         `json:"evict"`
	By         string       `json:"by,omitempty"`
	Reason     string       `json:"reason,omitempty"`
}

// Intent is what an app wants of a worker.
type Intent string

// The intents. A worker that was told to pause ends what it has and stays; one that was told to leave ends.
const (
	IntentWork  Intent = ""
	IntentPause Intent = "pause"
	IntentLeave Intent = "leave"
)

// FleetSettings are what an operator sets for all workers of a namespace while they run. A member that is empty or 0
// leaves each worker its own.
type FleetSettings struct {
	LogLevel    string `json:"log_level,omitempty" enum:"trace,debug,info,warn,error"`
	Concurrency int    `json:"worker_concurrency,omitempty" minimum:"0" maximum:"10000"` // activities at once
	// IsolationMin is the floor: a worker whose executors are weaker offers nothing that needs them.
	IsolationMin string `json:"isolation_min_level,omitempty" enum:"none,process,confined"`
	// Fresh has each call of a handler outside sessions run in an executor that no call ran in before.
	Fresh bool `json:"fresh,omitempty"`
}

// FleetSettingsRequest sets all of them: what is absent is each worker's own again.
type FleetSettingsRequest struct {
	Namespace string `json:"-"`
	Identity  string `json:"-"`
	FleetSettings
	// Revision is the one that the caller saw: another by now refuses the request. Absent: whatever it is.
	Revision *int64 `json:"revision,omitempty" minimum:"0"`
}

// FleetSettingsState are the settings and how far they came.
type FleetSettingsState struct {
	Namespace string `json:"namespace"`
	Revision  int64  `json:"revision"` // one more with each change; 0: nothing was ever set
	FleetSettings
	UpdatedAt history.Time `json:"updated_at"`
	By        string       `json:"by,omitempty"`
	// Workers counts those that say which revision they run with and are not silent, Applied those of them that said
	// this one. Pending names the others, at most 100. Unaware ones say nothing of settings.
	Workers int      `json:"worker_count"`
	Applied int      `json:"applied_worker_count"`
	Unaware int      `json:"unaware_worker_count"`
	Pending []string `json:"pending"`
}

// PauseNotice tells a worker why it is given nothing more.
type PauseNotice struct {
	Reason     string       `json:"reason,omitempty"`
	DeadlineAt history.Time `json:"deadline_at"` // then it is told to leave, if it has anything left; null: never
}
