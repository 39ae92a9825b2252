package store

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ReadyRoutingKey is a routing key of a queue that holds ready tasks: tasks that ask the same of a worker.
type ReadyRoutingKey struct {
	Namespace, Queue string
	Kind             protocol.TaskKind
	Text             string // as the store has it
	Key              RoutingKey
	InSession        bool // tasks in sessions
}

// UnservedRoutingKey is a ready routing key whose tasks no live worker may lease. The runs of its tasks that have been
// ready since Before or longer are stuck.
type UnservedRoutingKey struct {
	ReadyRoutingKey
	Place   bool // only tasks of sessions that no worker holds
	Before  time.Time
	Reason  protocol.WaitReason
	Message string
}

// UnservedRun is the mark of a run; without Stuck its mark is removed.
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
