package engine

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestGuideStatesTheNumbersOfTheEngine(t *testing.T) {
	const writing = "guide/workflows-in-go.md"
	docnumbers.In(t, "guide/histories.md", "After {} such commands in a row", MaxUnrecorded)
	docnumbers.In(t, "guide/debug.md", "| `running` | a worker runs it | `worker_id`, `since` | after {} failures |", failedEnough)
	docnumbers.In(t, "guide/debug.md", "| `retry_backoff` | its last attempt failed | `until`, `failures`, `detail` | after {} failures |", failedEnough)
	docnumbers.In(t, "guide/debug.md", "its workflow code failed at least {} times in a row", taskFailed)
	docnumbers.In(t, "guide/debug.md", "its workflow task is quarantined, or failed {} times in a row", StuckFailures)
	docnumbers.In(t, "guide/debug.md", "one of its tasks has been ready for {}, and no live worker", StuckUnserved)
	docnumbers.In(t, "guide/debug.md", "one of its activities has waited for {} for a worker with room", StuckPlace)
	docnumbers.In(t, "guide/debug.md", "| `child` | a child workflow is open | `workflow_id`, `name`, `more` | after {} failures |", failedEnough)
	docnumbers.In(t, "guide/debug.md", "a worker may lease it and does not | `worker_id`, `since` | after {} |", waitedEnough)
	docnumbers.In(t, "guide/debug.md", "or it was blamed for the loss of {} worker processes) continues after", DefaultBlamedLosses)
	docnumbers.In(t, "guide/runs.md", "or the history is larger than {} |", MaxCopiedBytes)
	docnumbers.In(t, "guide/runs.md", "at most {} on a run, {} each and {} together", protocol.MaxAttributes, protocol.MaxAttributeBytes, protocol.MaxAttributesBytes)
	docnumbers.In(t, "guide/deploy.md", "A session with options has its own lease ({} by default)",
		WorkerSessionLease*time.Second)
	docnumbers.In(t, "guide/deploy.md", "| plain HTTP, only polls | after its lease, {} unless it registered", WorkflowLease)

	docnumbers.In(t, "guide/schedules.md", "behind other waiting firings: up to {} |", maxBuffered)
	docnumbers.In(t, "guide/fleets.md", "A namespace has at most {} drains. Each new drain removes drains of single workers that "+
		"are more than {} old", maxDrains, forgetDrain)

	docnumbers.In(t, "guide/histories.md",
		"A task that fails otherwise is retried. A task that is blamed for the loss of {} worker processes quarantines the run, too",
		DefaultBlamedLosses)

	docnumbers.In(t, "guide/queues.md", "0 to 9, 0 first, {} by default:", DefaultPriority)
	docnumbers.In(t, "guide/queues.md", "The last {} promotions are remembered;", maxEarlierBuilds)

	const hands = "guide/workers-in-any-language.md"
	docnumbers.In(t, hands, "The task is this worker's for {}; then its lease expires", WorkflowLease)
	docnumbers.In(t, hands, "a workflow task for its lease of {}, an activity too", WorkflowLease)
	docnumbers.In(t, hands, "A run may have {} activities, timers and children open", protocol.MaxPending)

	docnumbers.In(t, writing, "`ErrPoison` (blamed for the loss of {} worker processes, or {} deliveries without an outcome)",
		DefaultBlamedLosses, MaxDeliveries)
	docnumbers.In(t, writing, "as `stack_trace` ({}, and {} of one that is retried)", maxStack, maxRetryStack)
	docnumbers.In(t, writing, "| open activities of a run, open timers, open children | {} each;", protocol.MaxPending)
	docnumbers.In(t, writing, "| updates of a run without a result | {} |", MaxUpdates)
	docnumbers.In(t, writing, "| a memo entry, the memo, a search attribute | {}, {} and {} bytes; {} entries each |",
		protocol.MaxMemoEntry, protocol.MaxMemo, protocol.MaxAttributeBytes, protocol.MaxAttributes)
	docnumbers.In(t, writing, "| commands of one workflow task | {}; the rest follow with the next task |", protocol.MaxCommands)
}
