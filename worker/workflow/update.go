package workflow

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"

	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/internal/userfunc"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// UpdateOptions are the options of an update handler.
type UpdateOptions struct {
	// Validate is func(Context, args…) error with the arguments of the handler. If it returns an error, the update is
	// rejected and the handler does not run. Validate must be read-only: if it calls functions of this package other
	// than Info, Headers, Now and Logger, the update fails with ErrReadOnly. nil: every update is accepted.
	Validate any
}

// HandleUpdate sets fn as the handler of updates of this name: a func(Context, args…) (result, error), or one that
// returns only an error. An error fails the update, not the run; a panic fails it with TypeUpdatePanicked. Each update
// starts its handler as a branch, in the order of history. A handler may wait for activities, timers, children, signals
// and conditions, and several handlers may run concurrently. The update completes when its handler returns. The handler
// uses the context passed to HandleUpdate: cancelling that context or requesting cancellation of the run cancels the
// operations that the handler waits for.
//
// When the workflow returns, updates with running handlers fail with run_closed; see AllHandlersFinished. When the
// workflow continues as new, the new run inherits these updates and starts their handlers again.
//
// Set all handlers before the workflow first waits: an update of a name without a handler fails with TypeUnknownUpdate.
// A second call for the same name replaces the handler. HandleUpdate panics if fn has another signature.
func HandleUpdate(ctx Context, name string, fn any, opts ...UpdateOptions) {
	m := ctx.inner().m
	m.currentBranch()
	h := &handler{ctx: ctx, fn: handlerFunc("update", name, fn)}
	for _, o := range opts {
		if o.Validate != nil {
			h.validate = handlerFunc("the validator of update", name, o.Validate)
		}
	}
	m.updates[name] = h
}

// AllHandlersFinished reports whether no update handler is running. A workflow that handles updates should wait for it
// before it returns or continues as new, so that every caller receives a response:
//
//	err := workflow.Until(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
//
// In a handler it is always false, since the handler itself is running.
func AllHandlersFinished(ctx Context) bool {
	return !slices.ContainsFunc(ctx.inner().m.answers, func(a *answer) bool { return a.started && a.command == nil })
}

// UpdateInfo describes the update of a handler.
type UpdateInfo struct {
	ID   string // unique ID of the update, which continue-as-new preserves; usable as an idempotency key
	Name string
}

// CurrentUpdate returns the update whose handler runs under ctx; false outside of handlers.
func CurrentUpdate(ctx Context) (UpdateInfo, bool) {
	a := ctx.inner().update
	if a == nil {
		return UpdateInfo{}, false
	}
	return UpdateInfo{ID: a.id, Name: a.name}, true
}

// These are types of failed updates, as their callers receive them.
const (
	TypeUnknownUpdate  = "UnknownUpdate"
	TypeUpdateRejected = "UpdateRejected" // the validator rejected the update
	TypeUpdatePanicked = "UpdatePanicked" // the handler or the validator panicked
)

// handler is the handler of the updates or queries of one name.
type handler struct {
	ctx      Context // context that was passed when the handler was set
	fn       *userfunc.Func
	validate *userfunc.Func // nil: none
}

// contextWith returns the context of the handler for a call with headers.
func (h *handler) contextWith(headers map[string]string) *flow {
	ctx := *h.ctx.inner()
	ctx.received = headers
	return &ctx
}

func handlerFunc(what, name string, fn any) *userfunc.Func {
	f, err := userfunc.New(fn, reflect.TypeFor[Context]())
	if err == nil && name == "" {
		err = errors.New("the name is empty")
	}
	if err != nil {
		panic(fmt.Errorf("workflow: %s %q: %w", what, name, err))
	}
	return f
}

// answer is the state of one update.
type answer struct {
	id, name string
	headers  map[string]string
	started  bool              // a handler exists, and its branch was started
	recorded bool              // history records that the handler started
	command  *protocol.Command // the command that completes the update; nil: the handler has not returned
}

// updated starts an update's handler at the update's position in history, whichever task contains it. The handler does
// not start if the engine already completed the update, because the run closed or its worker did not support updates.
func (m *machine) updated(d *history.UpdateAccepted, e *history.Event) {
	was, taken := m.completedUpdates[d.UpdateID], m.startedUpdates[d.UpdateID]
	if m.finished || was != nil && was.Sequence == 0 && !taken {
		return
	}
	a := &answer{id: d.UpdateID, name: d.UpdateName, recorded: taken, headers: d.Headers}
	m.answers = append(m.answers, a)
	h := m.updates[d.UpdateName]
	switch {
	case was != nil && was.Failed && was.ExceptionType == TypeUpdateRejected:
		a.reject(errors.New(was.Message))
	case h == nil:
		a.fail(activity.NewError(
			TypeUnknownUpdate, fmt.Sprintf("the workflow has no handler for update %q", d.UpdateName), activity.NonRetryable,
		))
	default:
		a.started = true
		check := was == nil && !taken
		m.wake(e, func() { m.spawn(func() { m.update(h, a, payload.Payload{Blob: d.Arguments}, check) }) })
	}
}

// update runs a handler on its own branch. A panic fails only the update, so that a bug in a handler does not stop the
// run.
func (m *machine) update(h *handler, a *answer, args payload.Payload, check bool) {
	defer func() {
		if m.closing.Load() {
			return
		}
		if r := recover(); r != nil {
			a.fail(m.updatePanicked("handler", a.name, r))
		}
	}()
	in, err := h.fn.Decode(args)
	if err != nil {
		a.fail(activity.NewError(
			activity.TypeArguments, fmt.Sprintf("update %q", a.name), activity.NonRetryable, activity.CausedBy(err),
		))
		return
	}
	if check && h.validate != nil {
		if err := m.askValidator(h, a, args); err != nil {
			a.reject(err)
			return
		}
	}
	ctx := h.contextWith(a.headers)
	ctx.update = a
	var result payload.Payload
	err = m.intercept(ctx, m.callOf(OpHandleUpdate, a.name, a.headers), func(ctx *flow) (err error) {
		result, err = h.fn.CallWith(m.codecs.NewValue, ctx, in)
		return err
	})
	switch _, next := errors.AsType[*continuation](err); {
	case next:
		a.fail(
			errors.New(
				"an update handler cannot continue the workflow as new: set a variable that the workflow's main code checks",
			),
		)
	case err != nil:
		a.fail(err)
	default:
		a.command = &protocol.Command{Type: protocol.CompleteUpdate, UpdateID: a.id, Result: result}
	}
}

// updatePanicked returns the error of an update whose handler or validator panicked; the worker's log has the stack.
func (m *machine) updatePanicked(what, name string, r any) error {
	if m.at > m.replayed {
		m.log.Error().Str("update", name).Str("panic", protocol.ErrorText(fmt.Sprint(r))).
			Str("stack", stack.Clean(string(debug.Stack()), protocol.MaxErrorText)).Msgf("the %s of an update panicked", what)
	}
	return activity.NewError(
		TypeUpdatePanicked, fmt.Sprintf("the %s of update %q panicked: %v", what, name, r), activity.NonRetryable,
	)
}

// RejectedError reports that the validator of an update rejected it.
type RejectedError struct {
	Update string
	Err    error // the error that the validator returned
}

// Error returns the name of the update and the error of the validator.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("update %q was rejected: %v", e.Update, e.Err)
}

// Unwrap returns the error of the validator.
func (e *RejectedError) Unwrap() error { return e.Err }

// Validate returns nil if the run accepts an update in its state after the applied events. Otherwise it returns a
// *RejectedError, or the reason why the validator could not run. An update without a handler or a validator is
// accepted. Afterwards the machine cannot process workflow tasks, as after Query.
func (m *machine) Validate(name string, args payload.Payload, headers map[string]string) (err error) {
	if m.fault != nil {
		return m.fault
	}
	h := m.updates[name]
	if m.finished || h == nil || h.validate == nil {
		return nil
	}
	in, err := h.validate.Decode(args)
	if err != nil {
		return &RejectedError{name, activity.NewError(activity.TypeArguments, err.Error(), activity.NonRetryable)}
	}
	m.readOnly(fmt.Sprintf("the validator of update %q", name), func() {
		if err = m.callValidator(h, name, headers, in); err != nil {
			err = &RejectedError{name, err}
		}
	})
	if m.fault != nil {
		return fmt.Errorf("the validator of update %q: %w", name, m.fault)
	}
	return err
}

// askValidator runs the validator. A panic rejects the update.
func (m *machine) askValidator(h *handler, a *answer, args payload.Payload) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = m.updatePanicked("validator", a.name, r)
		}
	}()
	in, err := h.validate.Decode(args)
	if err != nil {
		return err
	}
	m.readOnlyCode = "the validator of an update"
	defer func() { m.readOnlyCode = "" }()
	return m.callValidator(h, a.name, a.headers, in)
}

// callValidator calls the validator of an update inside the interceptors.
func (m *machine) callValidator(h *handler, name string, headers map[string]string, in []reflect.Value) error {
	call := m.callOf(OpValidateUpdate, name, headers)
	return m.intercept(h.contextWith(headers), call, func(ctx *flow) error {
		_, err := h.validate.Call(ctx, in)
		return err
	})
}

func (a *answer) fail(err error) {
	a.command = failure(err)
	a.command.Type, a.command.UpdateID = protocol.FailUpdate, a.id
	a.command.FailedSequence, a.command.FailedActivityID = 0, "" // these members describe the failure of a run
}

// reject fails the update with the failure type by which a replay recognizes that no handler ran. The exception
// contains the type of the error.
func (a *answer) reject(err error) {
	a.fail(err)
	a.command.ExceptionType, a.command.NonRetryable = TypeUpdateRejected, true
}

// confirmUpdateStart compares the recorded start of an update's handler with the code. The handler may already have
// returned, since events that arrived during the task precede its commands in history.
func (m *machine) confirmUpdateStart(d *history.UpdateApplied, e *history.Event) {
	i := m.answerIndex(d.UpdateID)
	if i < 0 {
		return
	}
	// the recorded completion of the update, if any, describes the difference better
	if a := m.answers[i]; a.started || m.completedUpdates[d.UpdateID] != nil {
		a.recorded = true
		return
	}
	m.fault = m.mismatch(
		0, e, "start of the handler of update "+quote(d.UpdateName),
		describeCommand(m.answers[i].command)+" "+quote(d.UpdateName),
	)
}

// confirmUpdateEnd compares the recorded end of an update with the command of the code.
func (m *machine) confirmUpdateEnd(d *history.UpdateCompleted, e *history.Event) {
	i := m.answerIndex(d.UpdateID)
	var a *answer
	if i >= 0 {
		a = m.answers[i]
		m.answers = slices.Delete(m.answers, i, i+1)
	}
	if d.Sequence == 0 {
		return
	}
	was, is := "completion of update "+quote(d.UpdateName), "no answer to it"
	if d.Failed {
		was = "failure of update " + quote(d.UpdateName)
	}
	switch {
	case m.finished && (a == nil || a.command == nil):
		return // the engine completed the update before its handler ran
	case a != nil && a.command != nil:
		is = describeCommand(a.command) + " " + quote(a.name)
	case a != nil && m.forQueries:
		return // the handler has reached a side effect that is not recorded yet
	case a != nil:
		is = "a handler of it that waits"
	}
	if is != was {
		m.fault = m.mismatch(0, e, was, is)
	}
}

// answerIndex returns the index of an update in answers, or -1.
func (m *machine) answerIndex(id string) int {
	return slices.IndexFunc(m.answers, func(a *answer) bool { return a.id == id })
}

// updateCommand returns the command that reports the progress of an update, or nil. It reports the start of a handler
// even if the workflow has returned, because a replay must start the handler to issue the same commands.
func (m *machine) updateCommand(a *answer) *protocol.Command {
	if a.command == nil && a.started && !a.recorded {
		return &protocol.Command{Type: protocol.ApplyUpdate, UpdateID: a.id}
	}
	return a.command
}

// updateCommands returns the commands that report the progress of updates; they precede the other commands of a task.
// The engine completes updates that are still open when the workflow closes.
func (m *machine) updateCommands() (out []protocol.Command) {
	for _, a := range m.answers {
		if c := m.updateCommand(a); c != nil {
			out = append(out, *c)
		}
	}
	return out
}
