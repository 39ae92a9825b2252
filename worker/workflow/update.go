package workflow

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// UpdateOptions of an update handler.
type UpdateOptions struct {
	// Validate is func(Context, args…) error with the arguments of the handler: an error rejects the update, and the workflow has not
	// seen it. It must only look: calling this package in it panics. nil: every update is taken.
	Validate any
}

// HandleUpdate answers the updates of a name with fn, a func(Context, args…) (result, error), or with an error alone. An error fails the
// update, not the run. The handler runs when the update comes, between the steps of the workflow's other code, in the order of history.
// It answers at once: it may change variables, start activities, children, timers and branches, but a wait in it gives
// ErrUpdateWaits. What takes longer it hands to a branch, with Go or by a variable that Until looks at.
//
// Handlers are set before the code waits for the first time: an update of a name without one fails as TypeUnknownUpdate. Setting one
// again replaces it. A function of another shape panics.
func HandleUpdate(ctx Context, name string, fn any, opts ...UpdateOptions) {
	m := ctx.inner().m
	m.here()
	h := &handler{ctx: ctx, fn: handlerFunc("update", name, fn)}
	for _, o := range opts {
		if o.Validate != nil {
			h.validate = handlerFunc("the validator of update", name, o.Validate)
		}
	}
	m.updates[name] = h
}

// Types of failed updates, as their callers see them.
const (
	TypeUnknownUpdate  = "UnknownUpdate"
	TypeUpdateRejected = "UpdateRejected" // by its validator
)

// ErrUpdateWaits is what a wait in an update handler gives.
var ErrUpdateWaits = errors.New("an update handler answers at once and cannot wait")

func mustAnswer(name string) error { return fmt.Errorf("update %q: %w", name, ErrUpdateWaits) }

// handler answers updates or queries of one name.
type handler struct {
	ctx      Context // as it was when the handler was set
	fn       *activity.Func
	validate *activity.Func // nil: none
}

func handlerFunc(what, name string, fn any) *activity.Func {
	f, err := activity.NewFunc(fn, reflect.TypeFor[Context]())
	if err == nil && name == "" {
		err = errors.New("it has no name")
	}
	if err != nil {
		panic(fmt.Errorf("workflow: %s %q: %w", what, name, err))
	}
	return f
}

// answer is what the code says to an update.
type answer struct {
	id, name string
	command  *protocol.Command // nil: its handler came to no end
}

// updated runs an update's handler at the place where history has the update, whichever task answers it. An update that the engine
// ended by itself, because its run closed or its worker knew no updates, was never taken.
func (m *Machine) updated(d *history.UpdateAccepted, e *history.Event) {
	was := m.answered[d.UpdateID]
	if m.finished || was != nil && was.Sequence == 0 {
		return
	}
	a := &answer{id: d.UpdateID, name: d.UpdateName}
	m.answers = append(m.answers, a)
	h := m.updates[d.UpdateName]
	switch {
	case was != nil && was.Failed && was.ExceptionType == TypeUpdateRejected:
		a.reject(errors.New(was.Message))
	case h == nil:
		a.fail(activity.NewError(TypeUnknownUpdate, fmt.Sprintf("the workflow does not answer update %q", d.UpdateName), activity.NonRetryable))
	default:
		m.wake(e, func() {
			co := m.branch(func() { m.update(h, a, payload.Payload{Blob: d.Arguments}, was == nil) })
			co.answers = d.UpdateName
			m.ready(co)
		})
	}
}

func (m *Machine) update(h *handler, a *answer, args payload.Payload, check bool) {
	in, err := h.fn.Decode(args)
	if err != nil {
		a.fail(activity.NewError(activity.TypeArguments, fmt.Sprintf("update %q", a.name), activity.NonRetryable, activity.CausedBy(err)))
		return
	}
	if check && h.validate != nil {
		if err := m.validate(h, args); err != nil {
			a.reject(err)
			return
		}
	}
	result, err := h.fn.Call(h.ctx, in)
	if err != nil {
		a.fail(err)
		return
	}
	a.command = &protocol.Command{Type: protocol.CompleteUpdate, UpdateID: a.id, Result: result}
}

func (m *Machine) validate(h *handler, args payload.Payload) error {
	in, err := h.validate.Decode(args)
	if err != nil {
		return err
	}
	m.reading = "the validator of an update"
	defer func() { m.reading = "" }()
	_, err = h.validate.Call(h.ctx, in)
	return err
}

func (a *answer) fail(err error) {
	a.command = failure(err)
	a.command.Type, a.command.UpdateID = protocol.FailUpdate, a.id
}

// reject fails the update under the type by which a replay knows that nobody handled it; the error's own type stays in the exception.
func (a *answer) reject(err error) {
	a.fail(err)
	a.command.ExceptionType, a.command.NonRetryable = TypeUpdateRejected, true
}

// confirmAnswer matches the end of an update with the code's answer.
func (m *Machine) confirmAnswer(d *history.UpdateCompleted, e *history.Event) {
	if d.Sequence == 0 {
		return
	}
	was, is := "completion of update "+quote(d.UpdateName), "no answer to it"
	if d.Failed {
		was = "failure of update " + quote(d.UpdateName)
	}
	i := slices.IndexFunc(m.answers, func(a *answer) bool { return a.id == d.UpdateID })
	switch {
	case i < 0 && m.finished:
		return // its handler was kept from it
	case i >= 0 && m.answers[i].command != nil:
		is = describeCommand(m.answers[i].command) + " " + quote(m.answers[i].name)
	case i >= 0:
		is = was // its handler came to no end yet: only asked
	}
	if i >= 0 {
		m.answers = slices.Delete(m.answers, i, i+1)
	}
	if is != was {
		m.fault = m.mismatch(0, e, was, is)
	}
}

// answering puts the answers to updates before the commands of a task. A task that was made for an update which the workflow's end
// kept from its handler answers that, too.
func (m *Machine) answering(task *protocol.WorkflowTask) []protocol.Command {
	var out []protocol.Command
	asked := task.UpdateID != nil && m.finished
	for _, a := range m.answers {
		if a.command != nil {
			out = append(out, *a.command)
			asked = asked && a.id != *task.UpdateID
		}
	}
	if asked && m.head < len(m.queue) {
		a := answer{id: *task.UpdateID}
		a.fail(activity.NewError("run_closed", "the workflow ended before it took the update", activity.NonRetryable))
		out = append(out, *a.command)
	}
	return out
}
