package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// QueueInfo describes a task queue.
type QueueInfo struct {
	Name      string      `json:"name"`
	Namespace string      `json:"namespace"`
	Stats     QueueStats  `json:"stats"`
	Promoted  string      `json:"promoted_build_id"` // build ID that new runs are pinned to; empty: none
	Group     string      `json:"group"`             // only workers of this group receive its tasks; empty: all workers
	BuildIDs  []BuildInfo `json:"build_ids"`         // only in the result of Describe
}

// QueueStats counts the tasks of a queue.
type QueueStats struct {
	Backlog       int        `json:"approximate_backlog_count"` // ready tasks of all kinds
	WorkflowTasks TaskCounts `json:"workflow_tasks"`
	Activities    TaskCounts `json:"activity_tasks"`
}

// TaskCounts counts the tasks of one kind.
type TaskCounts struct {
	Ready       int       `json:"ready_count"`
	Leased      int       `json:"leased_count"`
	Expired     int       `json:"expired_lease_count"`
	Delayed     int       `json:"delayed_count"`   // tasks that wait for their backoff
	OldestReady time.Time `json:"oldest_ready_at"` // zero: no task is ready
}

// BuildInfo describes the workers of one build ID that serve a queue.
type BuildInfo struct {
	BuildID         string    `json:"build_id"`       // empty: workers without one
	Rollout         string    `json:"rollout_status"` // active, active_with_draining, draining, stale_only or no_workers
	ActiveWorkers   int       `json:"active_worker_count"`
	DrainingWorkers int       `json:"draining_worker_count"`
	StaleWorkers    int       `json:"stale_worker_count"`
	LastHeartbeatAt time.Time `json:"last_heartbeat_at"`
	DrainedAt       time.Time `json:"drained_at"`         // zero: not drained
	PromotedAt      time.Time `json:"promoted_at"`        // zero: never promoted
	Selected        bool      `json:"new_start_selected"` // new runs are pinned to it
}

// Queues lists the task queues of the namespace, sorted by name.
func (c *Client) Queues(ctx context.Context) iter.Seq2[QueueInfo, error] {
	return pages[QueueInfo](ctx, c, "/api/task-queues", "task_queues", 200, url.Values{})
}

// Queue returns a handle of a task queue. It sends no request and does not check that the queue exists.
func (c *Client) Queue(name string) *Queue { return &Queue{client: c, Name: name} }

// Queue is a handle of a task queue.
type Queue struct {
	client *Client
	Name   string
}

func (q *Queue) path(suffix string) string {
	return "/api/task-queues/" + url.PathEscape(q.Name) + suffix
}

// Describe returns the state of the queue. If no worker and no task ever used it, the reason of the error is
// ReasonQueueNotFound.
func (q *Queue) Describe(ctx context.Context) (v QueueInfo, err error) {
	return v, q.client.Call(ctx, http.MethodGet, q.path(""), nil, &v)
}

// QueueLimits limit the tasks of a queue that workers receive.
type QueueLimits struct {
	WorkflowTasks TaskLimits `json:"workflow_tasks"`
	Activities    TaskLimits `json:"activity_tasks"`
}

// TaskLimits limit the tasks of one kind; nil means no limit.
type TaskLimits struct {
	MaxLeases    *int `json:"max_active_leases"`         // tasks that workers hold at once
	MaxPerMinute *int `json:"max_dispatches_per_minute"` // tasks that workers receive in a minute
}

// Limits returns the limits of the queue.
func (q *Queue) Limits(ctx context.Context) (v QueueLimits, err error) {
	return v, q.client.Call(ctx, http.MethodGet, q.path("/limits"), nil, &v)
}

// SetLimits replaces the limits of the queue.
func (q *Queue) SetLimits(ctx context.Context, l QueueLimits) error {
	in := protocol.LimitRequest{
		Workflow: new(protocol.Budget(l.WorkflowTasks)), Activity: new(protocol.Budget(l.Activities)),
	}
	return q.client.Call(ctx, http.MethodPut, q.path("/limits"), in, nil)
}

// SetGroup restricts the tasks of the queue to workers whose tokens belong to a group; "" removes the restriction.
func (q *Queue) SetGroup(ctx context.Context, group string) error {
	return q.client.Call(ctx, http.MethodPut, q.path("/route"), protocol.RouteRequest{Group: group}, nil)
}

// DeploymentInfo describes a deployment: the workers of one build on one queue.
type DeploymentInfo struct {
	Name      string `json:"name"` // NAMESPACE/QUEUE@BUILD
	Namespace string `json:"namespace"`
	Queue     string `json:"task_queue"`
	BuildInfo
}

// Deployments lists the deployments of the namespace. In each queue the deployment for new runs is first.
func (c *Client) Deployments(ctx context.Context) iter.Seq2[DeploymentInfo, error] {
	return pages[DeploymentInfo](ctx, c, "/api/deployments", "deployments", 0, url.Values{})
}

// Deployment returns a handle of the workers of a build on a queue, in the client's namespace; an empty build ID means
// the workers without one. It sends no request and does not check that the deployment exists.
func (c *Client) Deployment(queue, buildID string) *Deployment {
	namespace := c.namespace
	if namespace == "" {
		namespace = "default"
	}
	return &Deployment{client: c, Name: protocol.DeploymentName(namespace, queue, buildID)}
}

// Deployment is a handle of a deployment. If no worker of the build ever served the queue, the reason of the errors is
// ReasonDeploymentNotFound.
type Deployment struct {
	client *Client
	Name   string // NAMESPACE/QUEUE@BUILD
}

func (d *Deployment) path(suffix string) string {
	return "/api/deployments/" + url.PathEscape(d.Name) + suffix
}

// Describe returns the state of the deployment.
func (d *Deployment) Describe(ctx context.Context) (v DeploymentInfo, err error) {
	return v, d.client.Call(ctx, http.MethodGet, d.path(""), nil, &v)
}

// DeploymentResult is the state of a deployment after an operation.
type DeploymentResult struct {
	Name      string `json:"name"`
	Outcome   string `json:"outcome"`             // promoted, drained, resumed or rolled_back
	Selected  bool   `json:"new_start_selected"`  // new runs are pinned to it
	ForStarts string `json:"selected_deployment"` // deployment that new runs of the queue are pinned to; empty: none
	Warning   string `json:"warning"`             // for people: the operation is probably a mistake
}

// Promote pins new runs of the queue to the build of the deployment.
func (d *Deployment) Promote(ctx context.Context) (DeploymentResult, error) {
	return d.operate(ctx, "/promote")
}

// Drain stops dispatching to the deployment. Its running tasks finish.
func (d *Deployment) Drain(ctx context.Context) (DeploymentResult, error) {
	return d.operate(ctx, "/drain")
}

// Resume reverts Drain.
func (d *Deployment) Resume(ctx context.Context) (DeploymentResult, error) {
	return d.operate(ctx, "/resume")
}

// Rollback pins new runs of the queue to the build that was promoted before this one. The reason of the error is
// ReasonNoEarlierDeployment if there is none, and ReasonNotPromoted if new runs are not pinned to this build.
func (d *Deployment) Rollback(ctx context.Context) (DeploymentResult, error) {
	return d.operate(ctx, "/rollback")
}

func (d *Deployment) operate(ctx context.Context, verb string) (v DeploymentResult, err error) {
	return v, d.client.Call(ctx, http.MethodPost, d.path(verb), struct{}{}, &v)
}
