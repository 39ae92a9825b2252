package protocol

import (
	"strings"

	"github.com/sojourn-run/sojourn/shared/history"
)

// QueueList requests task queues by name.
type QueueList struct {
	Namespace string
	PageSize  int // 0: no limit
	PageToken string
}

// QueuePage is one page of task queues.
type QueuePage struct {
	Namespace     string       `json:"namespace"`
	Queues        []QueueState `json:"task_queues"`
	NextPageToken *string      `json:"next_page_token"`
}

// QueueState is the state of one task queue. Only the detail has Waiting, Leases, Pollers and BuildIDs.
type QueueState struct {
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Stats     QueueTally     `json:"stats"`
	Admission QueueAdmission `json:"admission"`
	Promoted  *string        `json:"promoted_build_id"` // new runs are pinned to it
	// Group is the only group whose workers receive the queue's tasks; absent: every worker that serves the queue.
	// FromNamespace reports that the group is set for the namespace and not for the queue.
	Group         string `json:"group,omitempty"`
	FromNamespace bool   `json:"group_of_namespace,omitempty"`
	// the ready tasks of each kind that have waited longest, with the reasons
	Waiting  []TaskWhy         `json:"waiting,omitempty"`
	Leases   []QueueLease      `json:"current_leases,omitempty"`
	Pollers  []QueuePoller     `json:"pollers,omitempty"`
	BuildIDs []BuildCohort     `json:"build_ids,omitempty"`
	Limits   map[string]Budget `json:"limits,omitempty"` // the queue's budgets, by workflow_tasks, activity_tasks
}

// QueueTally counts a queue's tasks and its pollers.
type QueueTally struct {
	Backlog    int        `json:"approximate_backlog_count"` // ready tasks of all kinds
	BacklogAge *string    `json:"approximate_backlog_age"`   // age of the oldest ready task, such as "45s"; null: none
	Workflow   TaskTally  `json:"workflow_tasks"`
	Activity   TaskTally  `json:"activity_tasks"`
	Query      QueryTally `json:"query_tasks"`
	Pollers    struct {
		Active  int `json:"active_count"`
		Stale   int `json:"stale_count"`
		Waiting int `json:"waiting_count"` // polls that wait at this app now
	} `json:"pollers"`
}

// TaskTally counts tasks of one kind.
type TaskTally struct {
	Ready       int          `json:"ready_count"`
	Leased      int          `json:"leased_count"`
	Expired     int          `json:"expired_lease_count"`
	Delayed     int          `json:"delayed_count"` // tasks that wait for their backoff
	OldestReady history.Time `json:"oldest_ready_at"`
}

// QueryTally counts the queries that wait for a worker, and the queries leased to a worker.
type QueryTally struct {
	Ready  int `json:"ready_count"`
	Leased int `json:"leased_count"`
}

// QueueAdmission has the limits of a queue and their usage.
type QueueAdmission struct {
	Workflow TaskAdmission  `json:"workflow_tasks"`
	Activity TaskAdmission  `json:"activity_tasks"`
	Query    QueryAdmission `json:"query_tasks"`
}

// The statuses of an admission.
const (
	AdmissionUnlimited = "unlimited" // no budget
	AdmissionAccepting = "accepting"
	AdmissionThrottled = "throttled" // a budget is used up
	AdmissionFull      = "full"      // of queries
)

// TaskAdmission has the limits of one kind of task and their usage; a limit that is not set is null.
type TaskAdmission struct {
	Status         string  `json:"status"`
	WaitReason     string  `json:"wait_reason,omitempty"` // throttled: the reason
	Wait           *Wait   `json:"wait,omitempty"`        // throttled: the exceeded limit, for programs
	BudgetSource   string  `json:"budget_source"`
	ServerSource   *string `json:"server_budget_source"` // limit that is reached first
	ActiveWorkers  int     `json:"active_worker_count"`
	Slots          int     `json:"configured_slot_count"`
	AvailableSlots int     `json:"available_slot_count"`
	Leased         int     `json:"leased_count"`
	Ready          int     `json:"ready_count"`

	LeaseCount         int  `json:"server_active_lease_count"`
	MaxLeases          *int `json:"server_max_active_leases_per_queue"`
	RemainingLeases    *int `json:"server_remaining_active_lease_capacity"`
	AllLeaseCount      int  `json:"server_namespace_active_lease_count"`
	MaxAllLeases       *int `json:"server_max_active_leases_per_namespace"`
	RemainingAllLeases *int `json:"server_remaining_namespace_active_lease_capacity"`

	DispatchCount         int  `json:"server_dispatch_count_this_minute"`
	MaxDispatches         *int `json:"server_max_dispatches_per_minute"`
	RemainingDispatches   *int `json:"server_remaining_dispatch_capacity"`
	AllDispatchCount      int  `json:"server_namespace_dispatch_count_this_minute"`
	MaxAllDispatches      *int `json:"server_max_dispatches_per_minute_per_namespace"`
	RemainingAllDispatchs *int `json:"server_remaining_namespace_dispatch_capacity"`

	LockRequired  bool `json:"server_lock_required"`
	LockSupported bool `json:"server_lock_supported"`
}

// QueryAdmission has the limit of waiting queries and its usage.
type QueryAdmission struct {
	Status        string `json:"status"`
	BudgetSource  string `json:"budget_source"`
	Pending       int    `json:"approximate_pending_count"`
	MaxPending    int    `json:"max_pending_per_queue"`
	Remaining     int    `json:"remaining_pending_capacity"`
	LockRequired  bool   `json:"lock_required"`
	LockSupported bool   `json:"lock_supported"`
}

// QueueLease is a leased task of a queue.
type QueueLease struct {
	TaskID          string       `json:"task_id"`
	Kind            TaskKind     `json:"task_type"`
	WorkflowID      string       `json:"workflow_id"`
	RunID           string       `json:"run_id"`
	Owner           string       `json:"lease_owner"`
	ExpiresAt       history.Time `json:"lease_expires_at"`
	Expired         bool         `json:"is_expired"`
	WorkflowAttempt int64        `json:"workflow_task_attempt,omitempty"`
	AttemptID       string       `json:"activity_attempt_id,omitempty"`
	SessionID       string       `json:"session_id,omitempty"`
}

// QueuePoller is a worker that serves a queue.
type QueuePoller struct {
	WorkerID        string       `json:"worker_id"`
	Runtime         string       `json:"runtime"`
	SDKVersion      string       `json:"sdk_version"`
	BuildID         *string      `json:"build_id"`
	LastHeartbeatAt history.Time `json:"last_heartbeat_at"`
	Status          WorkerStatus `json:"status"`
	Stale           bool         `json:"is_stale"`
}

// BuildRollout lists the build ids of a queue.
type BuildRollout struct {
	Namespace  string        `json:"namespace"`
	Queue      string        `json:"task_queue"`
	StaleAfter int64         `json:"stale_after_seconds"`
	BuildIDs   []BuildCohort `json:"build_ids"`
}

// BuildCohort has the workers of one build ID that serve a queue, and the operator's decisions about the build. A null
// build ID means workers without one.
type BuildCohort struct {
	BuildID         *string      `json:"build_id"`
	Rollout         string       `json:"rollout_status"`
	ActiveWorkers   int          `json:"active_worker_count"`
	DrainingWorkers int          `json:"draining_worker_count"`
	StaleWorkers    int          `json:"stale_worker_count"`
	TotalWorkers    int          `json:"total_worker_count"`
	Runtimes        []string     `json:"runtimes"`
	SDKVersions     []string     `json:"sdk_versions"`
	LastHeartbeatAt history.Time `json:"last_heartbeat_at"`
	FirstSeenAt     history.Time `json:"first_seen_at"`
	Intent          string       `json:"drain_intent" enum:"active,draining"`
	DrainedAt       history.Time `json:"drained_at"`
	PromotedAt      history.Time `json:"promoted_at"`
	Selected        bool         `json:"new_start_selected"`
}

// The rollout statuses of a cohort, and the intents.
const (
	RolloutActive     = "active"
	RolloutMixed      = "active_with_draining"
	RolloutDraining   = "draining"
	RolloutStale      = "stale_only"
	RolloutNoWorkers  = "no_workers"
	IntentActive      = "active"
	IntentDraining    = "draining"
	BuildDrain        = "drain"
	BuildResume       = "resume"
	BuildPromote      = "promote"
	BuildRollback     = "rollback"
	WorkflowTaskLimit = "workflow_tasks"
	ActivityTaskLimit = "activity_tasks"
)

// TaskLimits maps the kinds of tasks with budgets to the members for their budgets.
var TaskLimits = map[TaskKind]string{KindWorkflow: WorkflowTaskLimit, KindActivity: ActivityTaskLimit}

// BuildRequest is an operator's decision about a build ID of a queue.
type BuildRequest struct {
	Namespace, Queue string
	Verb             string  // drain, resume, promote or rollback
	BuildID          *string // nil: workers without one
	Identity         string
}

// BuildState has the decisions about a build ID.
type BuildState struct {
	Namespace  string       `json:"namespace"`
	Queue      string       `json:"task_queue"`
	BuildID    *string      `json:"build_id"`
	Intent     string       `json:"drain_intent"`
	DrainedAt  history.Time `json:"drained_at"`
	PromotedAt history.Time `json:"promoted_at"`
	Selected   bool         `json:"new_start_selected"`
	Warning    string       `json:"warning,omitempty"` // the decision is probably a mistake; text for display
}

// Unversioned is the build in the deployment name of workers without a build ID.
const Unversioned = "unversioned"

// DeploymentName returns NAMESPACE/QUEUE@BUILD, the name for the workers of one build on one queue.
func DeploymentName(namespace, queue, build string) string {
	if build == "" {
		build = Unversioned
	}
	return namespace + "/" + queue + "@" + build
}

// ParseDeployment parses the name of a deployment: NAMESPACE/QUEUE@BUILD, or …@unversioned for workers without a build
// ID.
func ParseDeployment(name string) (BuildRequest, error) {
	ns, rest, slash := strings.Cut(name, "/")
	at := strings.LastIndexByte(rest, '@')
	if !slash || ns == "" || at < 1 || at == len(rest)-1 {
		return BuildRequest{}, Invalid(
			"deployment", "must be NAMESPACE/QUEUE@BUILD, or end in @%s", Unversioned,
		)
	}
	in := BuildRequest{Namespace: ns, Queue: rest[:at]}
	if build := rest[at+1:]; build != Unversioned {
		in.BuildID = &build
	}
	return in, nil
}

// Deployment is a cohort of workers with its name.
type Deployment struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Queue     string `json:"task_queue"`
	BuildCohort
}

// DeploymentList lists the deployments of a namespace. In each queue the deployment for new runs is first.
type DeploymentList struct {
	Namespace   string       `json:"namespace"`
	Deployments []Deployment `json:"deployments"`
}

// DeploymentState is the state of a deployment after an operation. After a rollback NewRuns names its replacement.
type DeploymentState struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"` // promoted, drained, resumed or rolled_back
	BuildState
	NewRuns *string `json:"selected_deployment"` // deployment of new runs of the queue
}

// Budget limits one kind of task; null means no limit.
type Budget struct {
	MaxLeases    *int `json:"max_active_leases" minimum:"1" maximum:"1000000000"`
	MaxPerMinute *int `json:"max_dispatches_per_minute" minimum:"1" maximum:"1000000000"`
}

// LimitRequest sets the budgets of a queue, or of a namespace if Queue is empty. Absent budgets do not change.
type LimitRequest struct {
	Namespace string  `json:"-"`
	Queue     string  `json:"-"`
	Workflow  *Budget `json:"workflow_tasks,omitempty"`
	Activity  *Budget `json:"activity_tasks,omitempty"`
	Identity  string  `json:"-"`
}

// LimitState has the current budgets.
type LimitState struct {
	Namespace string       `json:"namespace"`
	Queue     string       `json:"task_queue,omitempty"`
	Workflow  Budget       `json:"workflow_tasks"`
	Activity  Budget       `json:"activity_tasks"`
	UpdatedAt history.Time `json:"updated_at"`
}

// RouteRequest restricts the tasks of a queue, or of all queues of a namespace without a group, to the workers of a
// group; "" removes the restriction.
type RouteRequest struct {
	Namespace string `json:"-"`
	Queue     string `json:"-"`
	Identity  string `json:"-"`
	Group     string `json:"group" maxLength:"255"`
}

// RouteState is the group to which the tasks of a queue or namespace are restricted.
type RouteState struct {
	Namespace string `json:"namespace"`
	Queue     string `json:"task_queue,omitempty"`
	Group     string `json:"group"` // "": no restriction
	// FromNamespace reports that the group is set for the namespace and not for the queue.
	FromNamespace bool `json:"group_of_namespace,omitempty"`
	// Workers counts the live workers of the group that serve the queue and to which the app dispatches.
	Workers   int          `json:"worker_count"`
	UpdatedAt history.Time `json:"updated_at"`
}

// QueueOrder is the order in which the ready tasks of a queue are dispatched: by priority, fairness class and age.
type QueueOrder struct {
	Namespace string        `json:"namespace"`
	Queue     string        `json:"task_queue"`
	Priority  PriorityRange `json:"priority"`
	Fairness  FairnessRules `json:"fairness"`
	Tiers     []OrderTier   `json:"tiers"` // priorities with ready tasks, in order
}

// PriorityRange has the valid values of a priority.
type PriorityRange struct {
	Min        int  `json:"min"`
	Max        int  `json:"max"`
	Default    int  `json:"default"`
	LowerFirst bool `json:"lower_first"`
}

// FairnessRules are the valid values of fairness keys and weights.
type FairnessRules struct {
	Enabled      bool   `json:"enabled"` // a task of this queue ever had a fairness key
	DefaultClass string `json:"default_class"`
	MaxKey       int    `json:"max_key_length"`
	MinWeight    int    `json:"min_weight"`
	MaxWeight    int    `json:"max_weight"`
}

// OrderTier has the ready tasks of one kind and priority.
type OrderTier struct {
	Kind     TaskKind     `json:"kind"`
	Priority int          `json:"priority"`
	Ready    int          `json:"ready_count"`
	Classes  []OrderClass `json:"classes"` // classes, the next one first, at most 100
}

// OrderClass has the ready tasks of one fairness class.
type OrderClass struct {
	Key    string `json:"fairness_key"`
	Weight int    `json:"fairness_weight"` // weight of its next task
	Ready  int    `json:"ready_count"`
}
