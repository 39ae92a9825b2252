package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// FleetTarget selects workers by exactly one of its members.
type FleetTarget struct {
	WorkerID string `json:"worker_id,omitempty" maxLength:"255"`
	Group    string `json:"group,omitempty" maxLength:"255"` // group of the workers' token
	BuildID  string `json:"build_id,omitempty" maxLength:"255"`
	Release  string `json:"release,omitempty" maxLength:"255"`
}

// Text returns the target as "kind name"; empty for none.
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

// The verbs on a fleet. Drain stops dispatching to the workers; running tasks finish. Evict also ends the workers.
// Resume reverts both.
const (
	FleetDrain  = "drain"
	FleetResume = "resume"
	FleetEvict  = "evict"
)

// FleetRequest is an operator's request about workers.
type FleetRequest struct {
	Namespace string `json:"-"`
	FleetTarget
	Verb     string `json:"-"`
	Identity string `json:"-"`
	// Deadline is for a drain: workers that still have tasks or sessions then are ended; 0: no deadline.
	Deadline int64  `json:"deadline_seconds,omitempty" minimum:"0" maximum:"315360000"`
	Reason   string `json:"reason,omitempty" maxLength:"1000"`
}

// The states of a drain and of its workers: drained if no task and no session is left.
const (
	DrainRuns  = "draining"
	DrainEnded = "drained"
)

// FleetDrainState is a drain and its progress.
type FleetDrainState struct {
	Namespace string `json:"namespace"`
	FleetTarget
	Outcome string `json:"outcome,omitempty"` // in the response to a request: draining, evicting or resumed
	// State is draining while one of the drain's workers has a task or a session, else drained, also if there is no
	// worker.
	State      string       `json:"state" enum:"draining,drained"`
	Reason     string       `json:"reason,omitempty"`
	By         string       `json:"by,omitempty"`
	Since      history.Time `json:"since"`
	DeadlineAt history.Time `json:"deadline_at"` // null: none
	Evict      bool         `json:"evict"`       // the workers are evicted
	Workers    int          `json:"worker_count"`
	Drained    int          `json:"drained_worker_count"` // workers without tasks and sessions
	Leases     int          `json:"active_leases"`
	Sessions   int          `json:"held_sessions"`
	// Members are the workers, those with the most remaining work first, at most 1000.
	Members []DrainedWorker `json:"workers"`
}

// DrainedWorker is a worker to which the app does not dispatch, with the tasks and sessions that it still has.
type DrainedWorker struct {
	WorkerID      string       `json:"worker_id"`
	State         string       `json:"state" enum:"draining,drained"`
	Status        WorkerStatus `json:"status"`
	Leases        int          `json:"active_leases"`
	WorkflowTasks int          `json:"active_workflow_tasks"` // of these, workflow tasks
	Sessions      int          `json:"held_sessions"`
}

// FleetDrains are the drains of a namespace, the oldest first.
type FleetDrains struct {
	Namespace string            `json:"namespace"`
	Drains    []FleetDrainState `json:"drains"`
}

// WorkerDrain is the operator's drain because of which the app does not dispatch to a worker.
type WorkerDrain struct {
	FleetTarget
	Since      history.Time `json:"since"`
	DeadlineAt history.Time `json:"deadline_at"`
	Evict      bool         `json:"evict"`
	By         string       `json:"by,omitempty"`
	Reason     string       `json:"reason,omitempty"`
}

// Intent is the state that the app requests of a worker.
type Intent string

// The intents. A worker with the intent pause finishes its tasks and continues to run; with leave its process ends.
const (
	IntentWork  Intent = ""
	IntentPause Intent = "pause"
	IntentLeave Intent = "leave"
)

// FleetSettings are settings that an operator changes for all running workers of a namespace. An empty or 0 member does
// not change the worker's own setting.
type FleetSettings struct {
	LogLevel string `json:"log_level,omitempty" enum:"trace,debug,info,warn,error"`
	// activities that run at the same time
	Concurrency int `json:"worker_concurrency,omitempty" minimum:"0" maximum:"10000"`
	// IsolationMin is a minimum: a worker with weaker executors does not accept tasks that need an executor.
	IsolationMin string `json:"isolation_min_level,omitempty" enum:"none,process,confined"`
	// Fresh runs each call of a handler outside sessions in a new executor.
	Fresh bool `json:"fresh,omitempty"`
	// Rebalance "off": sessions do not move to new workers that hold fewer of them. Absent: on.
	Rebalance string `json:"rebalance,omitempty" enum:"on,off"`
}

// Values of FleetSettings.Rebalance.
const (
	RebalanceOn  = "on"
	RebalanceOff = "off"
)

// FleetSettingsRequest replaces all settings: an absent member restores the worker's own setting.
type FleetSettingsRequest struct {
	Namespace string `json:"-"`
	Identity  string `json:"-"`
	FleetSettings
	// Revision is the revision that the caller has read. The app rejects the request if the stored revision differs.
	// Absent: it is not compared.
	Revision *int64 `json:"revision,omitempty" minimum:"0"`
}

// FleetSettingsState are the settings, and how many workers applied them.
type FleetSettingsState struct {
	Namespace string `json:"namespace"`
	Revision  int64  `json:"revision"` // incremented by each change; 0: never changed
	FleetSettings
	UpdatedAt history.Time `json:"updated_at"`
	By        string       `json:"by,omitempty"`
	Workers   int          `json:"worker_count"`         // number of live workers that report a revision
	Applied   int          `json:"applied_worker_count"` // number of live workers that report this revision
	Unaware   int          `json:"unaware_worker_count"` // number of live workers that report no revision
	Pending   []string     `json:"pending"`              // live workers that report another revision, at most 100
}

// PauseNotice notifies a worker that the app stops dispatching to it, with the reason.
type PauseNotice struct {
	Reason string `json:"reason,omitempty"`
	// time at which the worker must have ended its tasks and sessions, else it is evicted; null: no deadline
	DeadlineAt history.Time `json:"deadline_at"`
}
