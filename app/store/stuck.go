package store

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ReadyRoutingKey is a routing key for which a queue has ready tasks: tasks with the same requirements on a worker.
type ReadyRoutingKey struct {
	Namespace, Queue string
	Kind             protocol.TaskKind
	Text             string // the routing key as it is stored
	Key              RoutingKey
	InSession        bool // for tasks in sessions
}

// UnservedRoutingKey is a routing key of ready tasks that no live worker may lease. The runs of its tasks that have
// been ready since Before are stuck.
type UnservedRoutingKey struct {
	ReadyRoutingKey
	Place   bool // only tasks in sessions without an owner, which need a worker with a free place for a session
	Before  time.Time
	Reason  protocol.WaitReason
	Message string
}

// UnservedRun is the stuck mark of a run; without Stuck the mark is removed.
type UnservedRun struct {
	Run   string
	Stuck *engine.Stuck
}

// StuckCount is the number of runs of a namespace that are stuck for a reason.
type StuckCount struct {
	Namespace string
	Reason    protocol.WaitReason
	Runs      int
}
