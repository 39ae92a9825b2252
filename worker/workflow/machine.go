package workflow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// Names finds the registered names of functions.
type Names interface {
	// ActivityName returns the name of an activity function. It fails if the function is not registered.
	ActivityName(fn any) (string, error)
	// WorkflowName returns the name of a workflow function. It fails if the function is not registered.
	WorkflowName(fn any) (string, error)
}

// ReplayOptions are options of a replay. The zero value works.
type ReplayOptions struct {
	Names  Names        // nil: the code can call activities and child workflows only by name
	Logger *slog.Logger // receives the lines that the code logs after the end of the history; nil: nothing is logged
	// CompareArguments fails a replay as nondeterministic if a call passes other arguments than history records. Code
	// that iterates over a map does so. Without the option, new code may pass other arguments.
	CompareArguments bool
	// Codecs decode the payloads of the history; see package codec. Without codecs, an encoded history is an error.
	Codecs []codec.Codec
}

// machine runs the code of one run and matches it with the run's history. It may be cached between workflow tasks of
// the run. It is not safe for concurrent use and must be closed.
type machine struct {
	def             *Definition
	names           replay.Names
	logger          *slog.Logger   // Options.Logger
	log             zerolog.Logger // logger with the attributes of the run, for the machine's own log lines
	userLogger      *slog.Logger   // logger for workflow code: like log, but drops lines in replays
	patience        time.Duration
	forQueries      bool // Options.ForQueries
	strictArguments bool // ReplayOptions.CompareArguments
	argumentsDiffer bool // a call passed other arguments than recorded, and the machine has logged it
	onBranchRun     func(replay.Run, func() string) (done func())
	codecs          codecs.Chain // codecs of the machine's caller, which determine how large a payload may be

	info       RunInfo
	arguments  payload.Payload
	root       *scope
	steps      map[int64]*future // open activities, timers, children, attachments and awakeables, by command number
	pending    pending           // what the app counts as open, according to the history
	signals    map[string]*SignalChannel
	versions   map[string]int
	updates    map[string]*handler
	queries    map[string]*handler
	ids        int64
	generators int64 // number of generators that Random has returned
	// number of identifiers that interceptors got
	interceptorIDs int64
	interceptors   []Interceptor
	sequence       int64 // number of the last command that the code issued

	// commands in the order in which the code issued them; those from head on are not confirmed by an event
	queue []issued
	head  int
	// updates in the order of history: those being handled, and those whose completion is not confirmed
	answers []*answer

	// events being applied that record a command, by command number
	recorded map[int64]*history.Event
	// completions of updates among the events being applied, by update ID
	completedUpdates map[string]*history.UpdateCompleted
	// updates whose handler had started, according to the events being applied, by ID
	startedUpdates map[string]bool
	recordedUpTo   int64 // highest command number in the history so far

	seen     int64     // last event applied
	at       int64     // number of the event that woke the code
	now      time.Time // time of that event
	replayed int64     // events up to this number were part of a completed task
	rules    int       // protocol.NameRules of the run; 0: the code may use any name
	// runs from which the first events of a redriven run were copied; see runOfIDs
	copied    []history.CopiedRange
	continued bool // history has the event by which the run continued as new
	finished  bool // the workflow function has returned, or the run was closed
	// signals inherited from the previous run that have not arrived; the code starts after the last of them
	inheritedSignals int
	begin            func() // starts the code once inheritedSignals is 0
	fault            error

	omittedThrough int64               // number of the last inherited signal that the first task omitted
	omitted        protocol.EventRange // inherited signals that were not fetched yet; First > Last: none
	fetch          replay.FetchSignals // fetches omitted signals during the task being applied; nil: not possible
	fetched        int                 // number of signals of the last fetch
	fetching       bool                // the current branch requests omitted signals

	local       replay.LocalSteps      // runs local steps during the task being applied; nil: not possible
	localCall   *localCall             // the step that the current branch requests
	localEnds   map[int64]history.Data // outcomes of local steps among the events being applied, by command number
	atLocalStep bool                   // a branch is blocked at a local step or at an omitted signal

	live         []*coroutine
	endedCount   int // number of ended coroutines in live
	runnable     []*coroutine
	current      *coroutine
	conditions   []*coroutine // coroutines that wait in Until
	changed      bool         // the run changed since the conditions were evaluated last
	readOnlyCode string       // the read-only code that is running, which must not call this package; empty: none
	watch        *time.Timer
	deadlocked   *coroutine
	closing      atomic.Bool                // the machine is being closed; abandoned branches read it
	foreignCall  atomic.Pointer[PanicError] // a call by a goroutine that is not a branch; nil: none
	closed       bool
}

// issued is a command that the code has issued and history has not confirmed.
type issued struct {
	command *protocol.Command
	seq     int64 // command number; 0 for a terminal command
	matched bool  // the machine has compared the command with its event, and both agree
	sent    bool  // Apply has returned it
	stored  bool  // the command was recorded while its task continued; its event comes with a later task
	passed  bool  // the end of a session that the app accepted without recording it; see skipEnds
}

func init() {
	replay.Register(replay.Implementation{New: func(def replay.Definition, o replay.Options) replay.Machine {
		return newMachine(def.(*Definition), o)
	}, TaskFailure: taskFailure})
}

// newMachine returns a machine that has applied no events.
func newMachine(def *Definition, o replay.Options) *machine {
	m := &machine{
		def: def, names: o.Names, logger: o.Logger, patience: o.Patience, forQueries: o.ForQueries,
		strictArguments: o.CompareArguments,
		onBranchRun:     o.OnBranchRun,
		codecs:          o.Codecs,
		steps:           map[int64]*future{},
		signals:         map[string]*SignalChannel{}, versions: map[string]int{}, updates: map[string]*handler{},
		queries: map[string]*handler{},
	}
	if known, ok := o.Names.(intercepting); ok {
		m.interceptors = known.Interceptors()
	}
	if m.names == nil {
		m.names = noNames{}
	}
	if m.patience <= 0 {
		m.patience = 5 * time.Second
	}
	m.root = &scope{m: m}
	return m
}

type noNames struct{}

func (noNames) ActivityName(fn any) (string, error) {
	return "", fmt.Errorf("%T is not registered here; call the activity by its name", fn)
}

func (noNames) WorkflowName(fn any) (string, error) {
	return "", fmt.Errorf("%T is not registered here; call the workflow by its name", fn)
}

// Seen returns the number of the last applied event. The events of the next task may start after it.
func (m *machine) Seen() int64 { return m.seen }

// Unconfirmed counts the commands that the machine has returned, or would return now, and that no applied event
// records. It is 0 after a task that contains the events of the last completion. The end of a session that history
// should contain by then does not count, although Apply still returns it: see skipEnds.
func (m *machine) Unconfirmed() int {
	n := len(m.queue) - m.head
	// markPassedEnds sets passed for a prefix of the queue
	for i := m.head; i < len(m.queue) && m.queue[i].passed; i++ {
		n--
	}
	for _, a := range m.answers {
		if m.updateCommand(a) != nil {
			n++
		}
	}
	return n
}

// Lone reports whether, according to history, only this activity can cause further commands: no issued command is
// unconfirmed, no other activity or child is open and no update handler runs.
func (m *machine) Lone(seq int64) bool {
	f := m.steps[seq]
	return m.fault == nil && !m.finished && f != nil && f.kind == activityStep && m.Unconfirmed() == 0 &&
		len(m.answers) == 0 && m.pending[activityStep] == 1 && m.pending[childStep] == 0
}

// Finished reports whether the workflow has returned or its run is closed.
func (m *machine) Finished() bool { return m.finished }

// Apply applies the history of a task, from event 1 or from the event after Seen, and returns the commands that
// complete the task. No commands and no error mean that the code waits: see replay.Waiting. Apply returns earlier
// commands again if history does not contain them because their completion was refused.
//
// An error means that the task fails (see taskFailure) and that no events are applied. After an error other than
// replay.ErrGap the machine must be closed. If the machine was cached, apply the whole history to a new machine before
// reporting the error.
func (m *machine) Apply(task *protocol.WorkflowTask, events []history.Event) ([]protocol.Command, error) {
	if m.checkForeignCall(); m.fault != nil {
		return nil, m.fault
	}
	if m.info.RunID != "" && m.info.RunID != task.RunID {
		return nil, fmt.Errorf("the machine of run %s received a task of run %s", m.info.RunID, task.RunID)
	}
	for len(events) > 0 && events[0].Seq <= m.seen {
		events = events[1:]
	}
	want := m.seen
	for i := range events {
		if want++; m.seen == 0 && task.OmittedSignals != nil && want == task.OmittedSignals.First {
			want = task.OmittedSignals.Last + 1
		}
		if events[i].Seq != want {
			return nil, fmt.Errorf("%w: run %s: want event %d, got %d", replay.ErrGap, task.RunID, want, events[i].Seq)
		}
	}
	if m.watch == nil {
		m.watch = time.NewTimer(m.patience)
	}
	defer m.watch.Stop()
	m.indexRecordedCommands(events)
	for i := range events {
		m.seen = events[i].Seq
		m.applyEvent(task, &events[i])
		if m.fault != nil {
			return nil, m.fault
		}
	}
	if m.checkForeignCall(); m.fault != nil {
		return nil, m.fault
	}
	m.recorded, m.completedUpdates, m.startedUpdates, m.localEnds = nil, nil, nil, nil
	m.seen = max(m.seen, m.omittedThrough)
	if len(events) > 0 {
		m.markPassedEnds()
	}
	return m.commands()
}

// Replay runs a workflow against the recorded history of a run: the document that `sojourn workflow export` writes, or
// the JSON array of its events. It returns nil if the code is compatible with the history, otherwise the first
// mismatch. Use it in tests that check new code against the histories of existing runs.
func Replay(def *Definition, o ReplayOptions, recorded []byte) error {
	events, err := replay.DecodeHistory(recorded)
	if err != nil {
		return err
	}
	return replay.Events(
		def, replay.Options{
			Names: o.Names, Logger: o.Logger, CompareArguments: o.CompareArguments, Codecs: codecs.Of(o.Codecs),
		}, events,
	)
}

// indexRecordedCommands indexes the events that record a command, so that replayed commands return the recorded values.
func (m *machine) indexRecordedCommands(events []history.Event) {
	m.recorded = nil
	for i := range events {
		e := &events[i]
		if seq, a := history.EndedAttempt(e.Data); a.ExecutionMode == history.ModeLocal {
			if m.localEnds == nil {
				m.localEnds = map[int64]history.Data{}
			}
			m.localEnds[seq] = e.Data
		}
		if seq := commandOf(e.Data); seq > 0 {
			if m.recorded == nil {
				m.recorded = make(map[int64]*history.Event, len(events)/2)
			}
			m.recorded[seq] = e
			m.recordedUpTo = max(m.recordedUpTo, seq)
		}
		switch d := e.Data.(type) {
		case *history.WorkflowContinuedAsNew:
			m.continued = true
		case *history.UpdateApplied:
			if m.startedUpdates == nil {
				m.startedUpdates = map[string]bool{}
			}
			m.startedUpdates[d.UpdateID] = true
		case *history.UpdateCompleted:
			if m.completedUpdates == nil {
				m.completedUpdates = map[string]*history.UpdateCompleted{}
			}
			m.completedUpdates[d.UpdateID] = d
		}
		m.replayed = max(m.replayed, e.SeenThrough)
	}
}

// applyEvent applies one event. If the event resolves a future, it advances the clock and runs the code until all
// branches block.
func (m *machine) applyEvent(task *protocol.WorkflowTask, e *history.Event) {
	if _, first := e.Data.(*history.WorkflowStarted); first != (e.Seq == 1) {
		m.fault = fmt.Errorf("event %d of run %s is %s: history begins with one WorkflowStarted", e.Seq, task.RunID, e.Type())
		return
	}
	m.pending.takeEvent(e.Data)
	if seq := commandOf(e.Data); seq > 0 {
		m.confirm(seq, e)
		return
	}
	switch d := e.Data.(type) {
	case *history.WorkflowStarted:
		m.start(task, d, e)
	case *history.ActivityCompleted:
		m.resolve(d.Sequence, activityStep, e, func(*future) (payload.Payload, error) {
			return payload.Payload{Blob: d.Result}, nil
		})
	case *history.ActivityFailed:
		m.resolve(d.Sequence, activityStep, e, func(f *future) (payload.Payload, error) {
			return payload.Payload{}, activityError(f, d.ExecutionID, d.Attempt, d.Failure)
		})
	case *history.ActivityTimedOut:
		m.resolve(d.Sequence, activityStep, e, func(f *future) (payload.Payload, error) {
			err := activityError(f, d.ExecutionID, d.Attempt, d.Failure)
			err.TimedOut, err.TimeoutKind = true, d.TimeoutKind
			if err.Message == "" {
				err.Message = "timed out: " + d.TimeoutKind
			}
			return payload.Payload{}, err
		})
	case *history.ActivityCancelled:
		m.resolve(d.Sequence, activityStep, e, func(f *future) (payload.Payload, error) {
			err := activityError(f, d.ExecutionID, d.Attempt, history.Failure{Message: d.Reason, ExceptionType: typeCancelled})
			err.Cancelled = true
			return payload.Payload{}, err
		})
	case *history.TimerFired:
		if d.Kind == "" {
			m.resolve(d.Sequence, timerStep, e, func(*future) (payload.Payload, error) { return payload.Payload{}, nil })
		}
	case *history.ChildRunCompleted:
		m.resolve(d.Sequence, childStep, e, func(*future) (payload.Payload, error) {
			return payload.Payload{Blob: d.Result}, nil
		})
	case *history.ChildRunFailed:
		m.childEnded(e, &d.ChildEnded)
	case *history.ChildRunCancelled:
		m.childEnded(e, &d.ChildEnded)
	case *history.ChildRunTerminated:
		m.childEnded(e, &d.ChildEnded)
	case *history.AttachedChildEnded:
		m.attachedEnded(e, d)
	case *history.AwakeableCompleted, *history.AwakeableFailed, *history.AwakeableTimedOut:
		m.awakeableEnded(e)
	case *history.SignalReceived:
		m.signalled(d, e)
	case *history.UpdateAccepted:
		m.updated(d, e)
	case *history.UpdateApplied:
		m.confirmUpdateStart(d, e)
	case *history.UpdateCompleted:
		m.confirmUpdateEnd(d, e)
	case *history.WorkflowCancellationRequested:
		if !m.finished {
			m.wake(e, m.root.cancel)
		}
	case *history.WorkflowCompleted, *history.WorkflowContinuedAsNew:
		m.confirmRunEnd(e)
	case *history.WorkflowFailed, *history.WorkflowCancelled, *history.WorkflowTerminated, *history.WorkflowTimedOut:
		m.finished, m.queue, m.head, m.answers = true, nil, 0, nil
	}
}

// wake calls happened, which changes the run at event e, and then runs the code until all branches block.
func (m *machine) wake(e *history.Event, happened func()) {
	m.now, m.at, m.changed = e.At.Time, e.Seq, true
	happened()
	if m.fault == nil {
		m.runBranches()
	}
}

func (m *machine) start(task *protocol.WorkflowTask, d *history.WorkflowStarted, e *history.Event) {
	m.info = RunInfo{
		Namespace: task.Namespace, WorkflowID: task.WorkflowID, RunID: task.RunID, WorkflowType: d.WorkflowType,
		Queue:     d.TaskQueue,
		RunNumber: max(1, d.RunNumber), ContinuedFrom: d.ContinuedFrom, StartedAt: e.At.Time,
	}
	if m.info.Queue == "" {
		m.info.Queue = task.TaskQueue
	}
	if m.info.WorkflowType == "" {
		m.info.WorkflowType = task.WorkflowType
	}
	m.rules, m.copied = d.NameRules, d.CopiedFrom.Ranges()
	m.openLoggers(task.RunID)
	args := task.Arguments
	if args.IsZero() {
		args = payload.Payload{Blob: d.Arguments}
	}
	m.arguments = args
	ctx := &flow{m: m, scope: m.root, received: d.Headers}
	m.begin = func() { m.spawn(func() { m.main(ctx, args) }) }
	m.inheritedSignals = d.CarriedSignals
	m.omitted.First = 1
	if o := task.OmittedSignals; o != nil {
		m.omitted, m.omittedThrough = *o, o.Last
		m.inheritedSignals -= int(o.Last - o.First + 1)
	}
	if m.inheritedSignals == 0 {
		m.beginAfter(e)
	}
}

// beginAfter starts the code at event e, the last inherited signal, whether that signal was fetched or not.
func (m *machine) beginAfter(e *history.Event) {
	last := *e
	last.Seq = max(last.Seq, m.omittedThrough)
	m.wake(&last, m.begin)
}

// signalled stores a signal for the code. Inherited signals are stored before the code starts.
func (m *machine) signalled(d *history.SignalReceived, e *history.Event) {
	value := received{payload.Payload{Blob: d.Value}, d.Headers, e.Seq}
	if m.finished { // the code receives no more signals; the next run may receive this one
		s := m.signal(d.SignalName)
		s.values = append(s.values, value)
		return
	}
	arrive := func() { m.signal(d.SignalName).arrive(value) }
	if m.inheritedSignals == 0 {
		m.wake(e, arrive)
		return
	}
	arrive()
	if m.inheritedSignals--; m.inheritedSignals == 0 {
		m.beginAfter(e)
	}
}

// resolve applies an event that ends an activity, timer, child or awakeable. It ignores the event if the code has
// cancelled the future or did not issue the command.
func (m *machine) resolve(seq int64, k kind, e *history.Event, with func(*future) (payload.Payload, error)) {
	if m.finished {
		return
	}
	f := m.steps[seq]
	switch {
	case f == nil && seq > m.sequence:
		m.fault = m.mismatch(seq, e, e.Type(), fmt.Sprintf("issued %d commands only", m.sequence))
	case f != nil && f.kind != k:
		m.fault = m.mismatch(seq, e, e.Type(), "something else under that command")
	case f != nil:
		m.wake(e, func() { f.resolve(with(f)) })
	}
}

// finish records that the workflow function has returned, with its result or error.
func (m *machine) finish(result payload.Payload, err error) {
	c := &protocol.Command{Type: protocol.CompleteWorkflow, Result: result}
	if err != nil {
		if next, ok := errors.AsType[*continuation](err); ok {
			c = next.command
		} else {
			c = failure(err)
		}
	}
	m.finished = true
	m.warnOfOpenActivities()
	m.queue = append(m.queue, issued{command: c})
}

// warnOfOpenActivities logs a warning if the workflow returned before its activities ended: the app cancels them.
func (m *machine) warnOfOpenActivities() {
	if m.forQueries || m.at <= m.replayed {
		return
	}
	open, first := 0, ""
	for _, f := range m.steps {
		if f.kind == activityStep && !f.done {
			if open++; first == "" || f.name < first {
				first = f.name
			}
		}
	}
	if open > 0 {
		m.log.Warn().Int("activities", open).Str("activity_type", first).
			Msg("workflow returned with open activities; they are cancelled")
	}
}

// failure returns the command that closes the run with an error that the workflow returned.
func failure(err error) *protocol.Command {
	c := &protocol.Command{
		Type: protocol.FailWorkflow, Message: err.Error(), ExceptionType: activity.TypeOf(err),
		ExceptionClass: fmt.Sprintf("%T", err),
	}
	type exception struct {
		Type    string          `json:"type"`
		Class   string          `json:"class"`
		Message string          `json:"message"`
		Details json.RawMessage `json:"details,omitempty"`
	}
	ex := exception{Class: c.ExceptionClass, Message: c.Message}
	if errors.Is(err, ErrCancelled) {
		c.ExceptionType = typeCancelled
	}
	if _, ok := errors.AsType[*InputError](err); ok {
		c.ExceptionType, c.NonRetryable = typeInput, true
	}
	// copyFailure copies the failure of an activity, child or awakeable that the workflow returned.
	copyFailure := func(typ string, nonRetryable bool, details payload.Payload) {
		c.ExceptionType, c.NonRetryable = cmp.Or(typ, c.ExceptionType), nonRetryable
		if !details.IsZero() {
			ex.Details, _ = json.Marshal(details)
		}
	}
	if failed, ok := errors.AsType[*ActivityError](err); ok {
		copyFailure(failed.Type, failed.NonRetryable, failed.details)
		if failed.ExecutionID != "" {
			c.FailedSequence, c.FailedActivityID = failed.Sequence, failed.ExecutionID
		}
	} else if failed, ok := errors.AsType[*ChildError](err); ok {
		copyFailure(failed.Type, failed.NonRetryable, failed.details)
	} else if failed, ok := errors.AsType[*AwakeableError](err); ok {
		copyFailure(failed.Type, failed.NonRetryable, failed.details)
	} else if typed, ok := errors.AsType[*activity.Error](err); ok {
		c.NonRetryable = typed.NonRetryable
		var bad error
		if ex.Details, bad = activitywire.EncodeDetails(typed.Details); bad != nil {
			c.Message += fmt.Sprintf(" (details omitted: %v)", bad)
		}
	}
	ex.Type = c.ExceptionType
	c.Exception, _ = json.Marshal(ex)
	c.Clean()
	return c
}
