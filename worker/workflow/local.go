package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// A local step runs on the machine's own goroutine while the branch that called it is parked, so no other code of the
// workflow runs meanwhile. In a replay, the call returns the recorded outcome immediately, like the recorded value of a
// side effect, so the replayed code proceeds in the same order as before.

// StepOptions are options of a local step.
type StepOptions struct {
	// StartToClose is the maximum time of one attempt; the default is 10 s, the maximum 5 min. The step's context ends
	// with it. A function that does not return within a second after that is abandoned: the step ends as timed out and
	// is not retried, while the function's goroutine continues to run.
	StartToClose time.Duration
	// Retry limits the attempts; nil: one attempt. During the backoff between attempts the worker keeps holding the
	// workflow task.
	Retry *RetryPolicy
	// Durability selects when the outcome is recorded; the default is EachStep.
	Durability Durability
}

// Durability selects when the outcome of a local step is recorded.
type Durability int

const (
	// EachStep records the outcome in a separate commit before the code continues. A step that has returned does not
	// run again.
	EachStep Durability = iota
	// WithTurn records the outcome together with the commands that complete the workflow task. If the worker dies
	// before that, all steps since the last recorded one run again. Use it for steps that are cheap and safe to repeat.
	WithTurn
)

// These are the default and the maximum of StartToClose, and the time in which a function must return after its context
// has ended.
const (
	defaultStepTime = 10 * time.Second
	maxStepTime     = 5 * time.Minute
	stepGrace       = time.Second
)

// Do runs fn in this worker as a step of the workflow and records its result; replays return the recorded result. It is
// cheaper than an activity, because no task is dispatched: use it for short calls that need no other worker, no queue
// and no session. Name identifies the step in the history, as an activity type does.
//
// A step runs at least once: if the worker dies before the outcome is recorded, fn runs again. An error, a panic and a
// timeout of fn are failures of an attempt: Do retries them by StepOptions.Retry, then returns an *ActivityError. While
// fn runs, the worker renews the workflow task, no other branch of the workflow runs, and signals wait for the next
// task. Fn must not call functions of this package. Its context ends when the attempt times out, and when the worker
// loses the task or stops. In a session Do returns ErrInvalidOptions.
//
//	price, err := workflow.Do(ctx, "price", func(ctx context.Context) (int, error) { return shop.Price(ctx, item) })
func Do[T any](ctx Context, name string, fn func(context.Context) (T, error), opts ...StepOptions) (T, error) {
	var out T
	p, err := ctx.inner().do(name, opts, func(ctx context.Context) (any, error) { return fn(ctx) })
	if err != nil {
		return out, err
	}
	if err := payload.Decode(p, &out); err != nil {
		return out, fmt.Errorf("result of local step %q: %w", name, err)
	}
	return out, nil
}

// StepAbandonedError reports a workflow task that ended in a local step: its lease was lost, its worker stopped, or the
// app did not record the step. The task has no outcome, and its next delivery runs the step again unless it was
// recorded.
type StepAbandonedError struct {
	Step string
	Err  error
}

// Error returns the name of the step and why it was abandoned.
func (e *StepAbandonedError) Error() string { return fmt.Sprintf("local step %q: %v", e.Step, e.Err) }

// Unwrap returns the cause.
func (e *StepAbandonedError) Unwrap() error { return e.Err }

// SetCallbacks sets how the machine runs local steps that history does not contain, and how it fetches signals that the
// run's first task omitted, for the next call of Apply. With nil, the code blocks where it needs the callback; see
// AtLocalStep.
func (m *machine) SetCallbacks(l replay.LocalSteps, f replay.FetchSignals) { m.local, m.fetch = l, f }

// AtLocalStep reports whether a branch is blocked at a local step that history does not contain and that the machine
// could not run, or at an omitted signal that it could not fetch.
func (m *machine) AtLocalStep() bool { return m.atLocalStep }

// localCall is a local step that a branch has requested.
type localCall struct {
	fn         func(context.Context) (any, error)
	command    *protocol.Command
	timeout    time.Duration
	durability Durability
}

func (c *flow) do(
	name string, opts []StepOptions, fn func(context.Context) (any, error),
) (payload.Payload, error) {
	co := c.m.currentBranch()
	if c.scope.cancelled {
		return payload.Payload{}, ErrCancelled
	}
	call, err := c.localCall(name, opts)
	if err != nil {
		return payload.Payload{}, fmt.Errorf("local step %q: %w", name, err)
	}
	m := c.m
	seq := m.sequence + 1
	if m.recorded[seq] == nil {
		if m.local == nil || m.forQueries {
			m.atLocalStep = true
			co.halt()
		}
		call.fn = fn
		m.localCall = call
		// while the branch is parked, the machine runs the step and issues its command, or stops with an error
		co.park()
		return m.outcomeOf(call.command, seq)
	}
	m.issue(call.command) // issue does not return if history records another command
	end := m.localEnds[seq]
	if end == nil {
		co.stop(fmt.Errorf("%w: the outcome of local step %q", replay.ErrGap, name))
	}
	recallOutcome(call.command, end)
	return m.outcomeOf(call.command, seq)
}

// localCall checks the options of a local step and returns the step.
func (c *flow) localCall(name string, opts []StepOptions) (*localCall, error) {
	var o StepOptions
	switch len(opts) {
	case 0:
	case 1:
		o = opts[0]
	default:
		return nil, fmt.Errorf("%w: more than one StepOptions", ErrInvalidOptions)
	}
	switch {
	case c.options.Session != "" || c.options.WorkerSession != nil:
		return nil, fmt.Errorf("%w: a local step cannot run in a session; use an activity", ErrInvalidOptions)
	case o.StartToClose < 0 || o.StartToClose > maxStepTime:
		return nil, fmt.Errorf("%w: StartToClose %s is not between 0 and %s", ErrInvalidOptions, o.StartToClose, maxStepTime)
	case o.Durability != EachStep && o.Durability != WithTurn:
		return nil, fmt.Errorf("%w: unknown durability %d", ErrInvalidOptions, o.Durability)
	}
	call := &localCall{timeout: o.StartToClose, durability: o.Durability}
	if call.timeout == 0 {
		call.timeout = defaultStepTime
	}
	// The outcome is set when the step has ended.
	call.command = &protocol.Command{
		Type: protocol.RecordLocalActivity, ActivityType: name, ExecutionMode: history.ModeLocal,
		Outcome: protocol.LocalCompleted, StartToClose: protocol.Timeout(ceil(call.timeout, time.Second)),
	}
	if o.Retry != nil {
		var err error
		if call.command.RetryPolicy, err = o.Retry.wire(); err != nil {
			return nil, err
		}
	}
	return call, c.m.check(call.command)
}

// runLocalCall runs the step that the current branch has requested, then issues and records its command. The branch is
// parked meanwhile.
func (m *machine) runLocalCall() {
	call := m.localCall
	m.localCall = nil
	m.watch.Stop()
	defer func() { m.watch.Reset(m.patience) }()
	abandon := func(err error) { m.fault = &StepAbandonedError{call.command.ActivityType, err} }
	if m.checkForeignCall(); m.fault != nil {
		return
	}
	if err := m.runAttempts(call); err != nil {
		abandon(err)
		return
	}
	m.issue(call.command)
	if call.durability == WithTurn {
		return
	}
	commands, from, err := m.unrecorded()
	if err != nil {
		m.fault = err
		return
	}
	if err := m.local.Record(commands, from); err != nil {
		abandon(err)
		return
	}
	for i := m.head; i < len(m.queue); i++ {
		m.queue[i].stored = true
	}
	for _, a := range m.answers {
		a.recorded = a.recorded || a.started
	}
}

// unrecorded returns all commands that history does not contain, in order, with the number of the first one, and the
// commands of the updates whose handlers have started.
func (m *machine) unrecorded() (commands []protocol.Command, from int64, err error) {
	for _, a := range m.answers {
		if a.started && !a.recorded {
			commands = append(commands, protocol.Command{Type: protocol.ApplyUpdate, UpdateID: a.id})
		}
	}
	var open []issued
	after := m.pending
	for _, p := range m.queue[m.head:] {
		if p.matched || p.stored || p.seq <= m.recordedUpTo {
			continue
		}
		if k, ok := opens(p.command.Type); ok {
			after[k]++
		}
		open = append(open, p)
	}
	if len(commands)+len(open) > protocol.MaxCommands || after[activityStep] > protocol.MaxPending ||
		after[timerStep] > protocol.MaxPending || after[childStep] > protocol.MaxPending ||
		after[awakeableStep] > protocol.MaxPending {
		return nil, 0, fmt.Errorf(
			"too many open activities, timers or children before local step %q: wait for some of them first",
			m.queue[len(m.queue)-1].command.ActivityType,
		)
	}
	m.groupCommands(open)
	for _, p := range open {
		commands = append(commands, *p.command)
	}
	return commands, open[0].seq, nil
}

// runAttempts runs the step until it succeeds or its retry policy allows no further attempt, and sets the outcome in
// its command. If it returns an error, the step has no outcome.
func (m *machine) runAttempts(call *localCall) error {
	c, life := call.command, m.local.Context()
	for {
		if err := m.local.Begin(life); err != nil {
			return err
		}
		started := time.Now()
		result, err := m.runAttempt(life, call)
		if life.Err() != nil {
			return context.Cause(life)
		}
		outcome := protocol.LocalCompleted
		if err != nil {
			outcome = protocol.LocalFailed
		}
		c.Attempts = append(c.Attempts, fmt.Appendf(nil, `{"attempt_number":%d,"outcome":%q,"duration_ms":%.3f}`,
			len(c.Attempts)+1, outcome, float64(time.Since(started))/float64(time.Millisecond)))
		if err == nil {
			c.Outcome, c.Result = protocol.LocalCompleted, result
			return nil
		}
		setFailure(c, err)
		delay, retry := c.RetryPolicy.Next(len(c.Attempts), c.ExceptionType, c.NonRetryable)
		if !retry || errors.Is(err, errAbandoned) {
			return nil
		}
		m.log.Warn().Err(err).Str("step", c.ActivityType).Int("attempt", len(c.Attempts)).Dur("retry_in", delay).
			Msg("local step failed; retrying")
		wait := time.NewTimer(delay)
		select {
		case <-wait.C:
		case <-life.Done():
			wait.Stop()
			return context.Cause(life)
		}
	}
}

var (
	errStepTime  = errors.New("the attempt exceeded its StartToClose timeout")
	errAbandoned = errors.New("the function did not return when its context ended")
)

// runAttempt runs fn once, in its own goroutine, and encodes its result.
func (m *machine) runAttempt(life context.Context, call *localCall) (payload.Payload, error) {
	type outcome struct {
		value any
		err   error
	}
	ctx, cancel := context.WithTimeoutCause(life, call.timeout, errStepTime)
	defer cancel()
	ended := make(chan outcome, 1)
	go func() {
		var o outcome
		returned := false
		defer func() {
			if r := recover(); r != nil {
				o.err = &activity.Error{Type: activity.TypePanic, Message: fmt.Sprint(r), Stack: stack.OfPanic()}
			} else if !returned {
				o.err = activity.NewError(activity.TypePanic, "the function ended its goroutine with runtime.Goexit")
			}
			ended <- o
		}()
		o.value, o.err = call.fn(ctx)
		returned = true
	}()
	var o outcome
	select {
	case o = <-ended:
	case <-ctx.Done():
		grace := time.NewTimer(stepGrace)
		defer grace.Stop()
		select {
		case o = <-ended:
		case <-grace.C:
			return payload.Payload{}, fmt.Errorf("%w: %w", errStepTime, errAbandoned)
		}
	}
	switch {
	case o.err != nil && errors.Is(o.err, context.DeadlineExceeded) && context.Cause(ctx) == errStepTime: //nolint:errorlint // the cause itself
		return payload.Payload{}, errStepTime
	case errors.Is(o.err, activity.ErrPending):
		return payload.Payload{}, activity.NewError(
			protocol.TypeInvalidPending, "a local step must not return activity.ErrPending; use an activity",
			activity.NonRetryable,
		)
	case o.err != nil:
		return payload.Payload{}, o.err
	}
	p, err := m.codecs.NewValue(o.value)
	if err != nil {
		return p, activity.NewError("", "the result cannot be encoded", activity.NonRetryable, activity.CausedBy(err))
	}
	return p, nil
}

// setFailure sets a failed attempt as the outcome in the command.
func setFailure(c *protocol.Command, err error) {
	c.Result = payload.Payload{}
	if errors.Is(err, errStepTime) {
		c.Outcome, c.TimeoutKind = protocol.LocalTimedOut, "start_to_close"
		c.Message, c.ExceptionType, c.ExceptionClass = err.Error(), history.TypeActivityTimeout, ""
		c.NonRetryable, c.Exception = false, nil
		return
	}
	f := activitywire.FailureOf(err)
	c.Outcome, c.TimeoutKind = protocol.LocalFailed, ""
	c.Message, c.ExceptionType, c.ExceptionClass, c.NonRetryable = f.Message, f.Type, f.Class, f.NonRetryable
	c.Exception, _ = json.Marshal(struct {
		Type         string          `json:"type,omitempty"`
		Class        string          `json:"class,omitempty"`
		Message      string          `json:"message"`
		NonRetryable bool            `json:"non_retryable,omitempty"`
		Details      json.RawMessage `json:"details,omitempty"`
	}{f.Type, f.Class, f.Message, f.NonRetryable, f.Details})
	c.Clean()
}

// recallOutcome copies the recorded outcome of a replayed step into its command.
func recallOutcome(c *protocol.Command, d history.Data) {
	set := func(outcome string, a history.Attempt, f history.Failure) {
		c.Outcome, c.Message, c.ExceptionType, c.ExceptionClass = outcome, f.Message, f.ExceptionType, f.ExceptionCls
		c.NonRetryable, c.Exception = f.NonRetryable, f.Exception
		c.Attempts = make([]json.RawMessage, a.Number)
	}
	switch d := d.(type) {
	case *history.ActivityCompleted:
		set(protocol.LocalCompleted, d.Attempt, history.Failure{})
		c.Result = payload.Payload{Blob: d.Result}
	case *history.ActivityTimedOut:
		set(protocol.LocalTimedOut, d.Attempt, d.Failure)
		c.TimeoutKind = d.TimeoutKind
	case *history.ActivityCancelled:
		set(protocol.LocalCancelled, d.Attempt, history.Failure{Message: d.Reason, ExceptionType: typeCancelled})
	case *history.ActivityFailed:
		set(protocol.LocalFailed, d.Attempt, d.Failure)
	}
}

// outcomeOf returns the result of a step or its error. It derives both from the command only, so that they are the same
// when the step runs and in each replay.
func (m *machine) outcomeOf(c *protocol.Command, seq int64) (payload.Payload, error) {
	if c.Outcome == protocol.LocalCompleted {
		return c.Result, nil
	}
	err := activityError(&future{name: c.ActivityType, seq: seq}, m.stepID(seq), history.Attempt{Number: len(c.Attempts)},
		history.Failure{
			Message: c.Message, ExceptionType: c.ExceptionType, NonRetryable: c.NonRetryable, Exception: c.Exception,
		})
	err.TimedOut, err.TimeoutKind = c.Outcome == protocol.LocalTimedOut, c.TimeoutKind
	err.Local, err.Cancelled = true, c.Outcome == protocol.LocalCancelled
	return payload.Payload{}, err
}
