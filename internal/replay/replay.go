// Package replay is the interface of the replay machine: the worker and the test environment run workflow code against
// its history with it. Package worker/workflow contains the implementation, which is not part of its public API.
package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ErrGap reports that events are missing between the last event of the machine and the events of a task.
var ErrGap = errors.New("history has a gap")

// ErrStale reports that a cached machine contains a value that another worker's completion recorded differently. A new
// machine with the whole history continues.
var ErrStale = errors.New("the cached workflow state differs from the recorded history")

// Names resolves functions that workflow code passes to calls.
type Names interface {
	// ActivityName returns the name of an activity function. It fails if the function is not registered.
	ActivityName(fn any) (string, error)
	// WorkflowName returns the name of a workflow function. It fails if the function is not registered.
	WorkflowName(fn any) (string, error)
}

// Options of a machine. The zero value works.
type Options struct {
	Names Names // nil: the code can call activities and child workflows only by name
	// receives the log lines of the code, with run_id and workflow_type added; nil: nothing is logged
	Logger *slog.Logger
	// Patience is how long workflow code may run until it blocks in package workflow; 5 s by default. After that the
	// machine assumes that the code blocks outside that package or loops.
	Patience time.Duration
	// ForQueries creates a machine for queries only. Code that reaches a side effect that history does not contain yet
	// blocks there.
	ForQueries bool
	// CompareArguments fails a replay as nondeterministic if a call passes other arguments than history records, as
	// code that ranges over a map does. It is for tests, which replay a run with the code that recorded it. In
	// production new code may pass other arguments, which is only logged.
	CompareArguments bool
	// OnBranchRun is called when a branch of the code starts to run, with a function that returns its stack; the
	// function that it returns is called when the branch waits again. It must be fast. It is for callers that measure
	// with another clock than Patience. nil: not called.
	OnBranchRun func(run Run, stack func() string) (done func())
	// Codecs decode the payloads that the machine receives, and encode those that it returns. Without codecs, an encoded
	// payload is an error.
	Codecs codecs.Chain
}

// Run identifies a run.
type Run struct{ WorkflowType, WorkflowID, RunID string }

// Definition is a registered workflow: a *workflow.Definition.
type Definition interface {
	// Versions returns the registered versions, lowest first.
	Versions() []int
}

// Machine runs the code of one run against its history. It may be cached between workflow tasks of the run. It is not
// safe for concurrent use and must be closed.
type Machine interface {
	// Apply applies the history of a task, from event 1 or from the event after Seen, and returns the commands that
	// complete the task. No commands and no error means that the code waits: see Waiting. Apply returns earlier
	// commands again if the history does not contain them because their completion was rejected.
	//
	// An error means that the task fails (see TaskFailure) and no events are applied. After an error other than ErrGap
	// the machine must be closed. If it was cached, apply the whole history to a new machine before reporting the
	// error.
	Apply(task *protocol.WorkflowTask, events []history.Event) ([]protocol.Command, error)
	// Query runs a query handler on the state after the last applied event.
	Query(name string, args payload.Payload, headers map[string]string) (payload.Payload, error)
	// Validate runs the validator of an update that is not in the history yet.
	Validate(name string, args payload.Payload, headers map[string]string) error
	// Seen returns the sequence of the last applied event. The events of the next task may start after it.
	Seen() int64
	// Unconfirmed counts the commands that the machine has returned, or would return now, and that no applied event
	// records. It is 0 after a task that shows the result of the last completion. The end of a session that the history
	// should contain by then does not count, although Apply still returns it.
	Unconfirmed() int
	// Lone reports whether, according to history, only the activity seq can cause further commands: no issued command
	// is unconfirmed, no other activity or child is open and no update handler runs.
	Lone(seq int64) bool
	// Finished reports whether the workflow has returned or its run is closed.
	Finished() bool
	// Deadlocked reports whether a branch of the code did not block in package workflow within the machine's patience.
	Deadlocked() bool
	// CalledByForeignGoroutine reports whether a goroutine that the code started itself called package workflow.
	CalledByForeignGoroutine() bool
	// SetCallbacks sets how the machine runs local steps that history does not contain, and how it fetches signals that
	// the run's first task omitted, for the next call of Apply. With nil, the code blocks where it needs the callback;
	// see AtLocalStep.
	SetCallbacks(l LocalSteps, f FetchSignals)
	// AtLocalStep reports whether a branch is blocked at a local step that history does not contain and that the
	// machine could not run, or at an omitted signal that it could not fetch.
	AtLocalStep() bool
	// Close ends all branches of the code. Deferred calls run and must not call package workflow.
	Close()
}

// LocalSteps runs the local steps of one workflow task.
type LocalSteps interface {
	// Context ends when the worker loses the task's lease or stops.
	Context() context.Context
	// Begin returns nil if the task's lease is live, so that a step may begin.
	Begin(ctx context.Context) error
	// Record makes commands durable under the task's delivery, which continues; from is the sequence of the first one.
	Record(commands []protocol.Command, from int64) error
}

// FetchSignals returns at most most events of a run's history, in order, after the given event. They are signals that
// the run inherited.
type FetchSignals func(after int64, most int) ([]history.Event, error)

// Implementation contains the functions that package workflow implements.
type Implementation struct {
	New         func(Definition, Options) Machine
	TaskFailure func(error) *protocol.Failure
}

var implementation Implementation

// Register sets the implementation. Package workflow calls it when it is initialised.
func Register(i Implementation) { implementation = i }

// New returns a machine that has applied no events.
func New(def Definition, o Options) Machine { return &coded{implementation.New(def, o), o.Codecs} }

// DecodeHistory returns the events of a recorded history: of the document that `sojourn workflow export` writes, or of
// the JSON array of its events.
func DecodeHistory(recorded []byte) ([]history.Event, error) {
	var export struct {
		Events []history.Event `json:"history_events"`
	}
	into := any(&export)
	if bytes.HasPrefix(bytes.TrimSpace(recorded), []byte("[")) {
		into = &export.Events
	}
	if err := json.Unmarshal(recorded, into); err != nil {
		return nil, fmt.Errorf("decode the history: %w", err)
	}
	return export.Events, nil
}

// Events runs a workflow against a recorded history. It returns nil if the code is compatible with the history,
// otherwise the first mismatch.
func Events(def Definition, o Options, events []history.Event) error {
	if len(events) == 0 {
		return fmt.Errorf("%w: no events", ErrGap)
	}
	started, ok := events[0].Data.(*history.WorkflowStarted)
	if !ok {
		return fmt.Errorf("history begins with %s, not with WorkflowStarted", events[0].Type())
	}
	m := New(def, o)
	defer m.Close()
	_, err := m.Apply(
		&protocol.WorkflowTask{RunID: started.RunID, WorkflowID: started.WorkflowID, WorkflowType: started.WorkflowType},
		events,
	)
	return err
}

// TaskFailure returns the failure of a task whose code failed with an error of Machine.Apply.
func TaskFailure(err error) *protocol.Failure { return implementation.TaskFailure(err) }

// Waiting returns the failure for a task that caused no commands.
func Waiting() *protocol.Failure {
	return &protocol.Failure{Type: protocol.FailureWaiting, Message: "Workflow task waiting for scheduled history."}
}

// Unregistered returns the failure of a task whose workflow type the worker has not registered.
func Unregistered(workflowType string) *protocol.Failure {
	return &protocol.Failure{
		Type: "WorkflowNotRegistered", Message: fmt.Sprintf("no workflow registered under %q", workflowType),
	}
}
