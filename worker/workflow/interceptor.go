package workflow

import (
	"context"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Operation is the kind of a call that an Interceptor sees.
type Operation string

// Requests of package client, which InterceptClient sees.
const (
	OpStartWorkflow   Operation = "start_workflow"
	OpStartActivity   Operation = "start_activity" // an activity run
	OpSignal          Operation = "signal"
	OpUpdate          Operation = "update"
	OpQuery           Operation = "query"
	OpSignalWithStart Operation = "signal_with_start"
	OpUpdateWithStart Operation = "update_with_start"
)

// Calls of workflow code, which InterceptWorkflow sees.
const (
	OpExecuteWorkflow Operation = "execute_workflow"
	OpReceiveSignal   Operation = "receive_signal" // the code receives a signal from its channel
	OpHandleUpdate    Operation = "handle_update"
	OpValidateUpdate  Operation = "validate_update"
	OpHandleQuery     Operation = "handle_query"
)

// Commands of workflow code, which InterceptCommand sees.
const (
	OpScheduleActivity Operation = "schedule_activity"
	OpStartChild       Operation = "start_child_workflow"
	OpSignalWorkflow   Operation = "signal_workflow"
	OpContinueAsNew    Operation = "continue_as_new"
)

// OpExecuteActivity is an attempt of an activity, which InterceptActivity sees.
const OpExecuteActivity Operation = "execute_activity"

// Call describes a call to an Interceptor.
type Call struct {
	Operation Operation
	Name      string // type of the workflow or activity, or name of the signal, update or query
	// WorkflowID is the ID of the workflow that the call concerns; empty if the app generates it.
	WorkflowID string
	// Args are the arguments that the caller passed to a request of package client or to a command; nil for other
	// calls. Interceptors must not modify them.
	Args []any
	// Headers are the headers of the call, never nil. InterceptClient and InterceptCommand may change them before the
	// call is sent; other changes have no effect.
	Headers map[string]string
}

// Interceptor is code that runs around the calls of all workflows, activities or clients, for example to pass headers
// on, to log, or to measure. A program registers it with worker.Registry.Intercept, and for a client in
// client.Options. Embed [InterceptorBase] to implement only some of the methods.
//
// The first registered interceptor is the outermost: its code before next runs first, and its code after next last.
// Likewise InterceptCommand is called in the order of registration.
//
// InterceptWorkflow and InterceptCommand are workflow code. They run again in each replay, so they must be
// deterministic: they take the time from [Now], identifiers from [NewID], and log with [Logger]. They cannot change the
// commands of the workflow, except for headers, which a replay does not compare. So an interceptor may be added,
// changed or removed while runs are open:
//
//   - Functions of this package that issue commands, wait or change state panic with ErrReadOnly in an interceptor.
//   - NewID has a separate counter for interceptors. In validators and queries it panics with ErrReadOnly.
//   - A panic of an interceptor, and a violation of the rules for next, fail the workflow task. The worker retries it.
type Interceptor interface {
	// InterceptClient runs around a request of package client, including the repetitions after lost responses and the
	// wait for a result. It calls next with ctx or a context derived from it, or returns an error. It may replace the
	// error of next, but not remove it.
	InterceptClient(ctx context.Context, call *Call, next func(context.Context) error) error

	// InterceptWorkflow runs around workflow code: the workflow function, the handlers of updates and queries, the
	// validators of updates, and the receipt of a signal. It must call next once, with ctx or a context derived from
	// it, of which the code gets the values (WithValue) and the headers (WithHeaders). next returns the error of the
	// code, which the interceptor cannot change.
	InterceptWorkflow(ctx Context, call *Call, next func(Context) error)

	// InterceptCommand runs before workflow code schedules an activity, starts a child, signals a workflow or continues
	// as new. It may change the headers of the call.
	InterceptCommand(ctx Context, call *Call)

	// InterceptActivity runs around an attempt of an activity, in the worker's process also if the activity is isolated
	// or a handler in another language. It calls next with ctx or a context derived from it, or returns an error, which
	// fails the attempt. It may replace the error of next, but not remove it; an error about a lost executor or session
	// state has its effect even if it is replaced. Activity code in the worker's process gets the context.
	InterceptActivity(ctx context.Context, call *Call, next func(context.Context) error) error
}

// InterceptorBase is an Interceptor without effects, to be embedded in others.
type InterceptorBase struct{}

// InterceptClient calls next.
func (InterceptorBase) InterceptClient(ctx context.Context, _ *Call, next func(context.Context) error) error {
	return next(ctx)
}

// InterceptWorkflow calls next.
func (InterceptorBase) InterceptWorkflow(ctx Context, _ *Call, next func(Context) error) {
	_ = next(ctx)
}

// InterceptCommand does nothing.
func (InterceptorBase) InterceptCommand(Context, *Call) {}

// InterceptActivity calls next.
func (InterceptorBase) InterceptActivity(ctx context.Context, _ *Call, next func(context.Context) error) error {
	return next(ctx)
}

// intercepting is implemented by Names that have interceptors.
type intercepting interface{ Interceptors() []Interceptor }

// The values of readOnlyCode while an interceptor runs.
const (
	interceptorCode       = "an interceptor"
	interceptorOfQuestion = "an interceptor of a query or a validator"
)

// callOf returns the description of a call of this run's code.
func (m *machine) callOf(op Operation, name string, headers map[string]string) Call {
	return Call{Operation: op, Name: name, WorkflowID: m.info.WorkflowID, Headers: headers}
}

// intercept runs code inside the interceptors of the machine, and returns its error.
func (m *machine) intercept(ctx *flow, call Call, code func(*flow) error) error {
	if len(m.interceptors) == 0 {
		return code(ctx)
	}
	return m.interceptFrom(0, ctx, &call, code)
}

// interceptFrom runs code inside the interceptors from number i on. While an interceptor runs, the machine is
// read-only.
func (m *machine) interceptFrom(i int, ctx *flow, call *Call, code func(*flow) error) (err error) {
	if i == len(m.interceptors) {
		return code(ctx)
	}
	interceptor, outer := m.interceptors[i], m.readOnlyCode
	own := interceptorCode
	if call.Operation == OpHandleQuery || call.Operation == OpValidateUpdate {
		own = interceptorOfQuestion
	}
	called, inCode := false, false // inCode: next has been called and has not returned
	seen := *call
	seen.Headers = history.Headers(call.Headers).Copy()
	defer func() {
		if m.closing.Load() {
			return
		}
		m.readOnlyCode = outer
		if inCode { // a panic of the workflow code continues
			return
		}
		if r := recover(); r != nil {
			m.stopCode(panicked(r))
		}
	}()
	m.readOnlyCode = own
	interceptor.InterceptWorkflow(ctx, &seen, func(c Context) error {
		if called {
			m.stopCode(interceptorError(interceptor, call, "called next twice"))
		}
		called, inCode = true, true
		derived, inner := c.inner(), *ctx
		inner.headers, inner.parent, inner.key, inner.value = derived.headers, derived.parent, derived.key, derived.value
		m.readOnlyCode = outer
		err = m.interceptFrom(i+1, &inner, call, code)
		inCode, m.readOnlyCode = false, own
		return err
	})
	switch {
	case !called:
		m.stopCode(interceptorError(interceptor, call, "did not call next"))
	case inCode:
		m.stopCode(interceptorError(interceptor, call, "recovered a panic of the workflow code"))
	}
	return err
}

// interceptCommand lets the interceptors change the headers of a command. Headers that exceed the limits fail the task
// and not the call: without the interceptor the call would succeed.
func (c *flow) interceptCommand(op Operation, name, workflowID string, args []any, cmd *protocol.Command) {
	m := c.m
	if len(m.interceptors) == 0 || protocol.CheckHeaders(cmd.Headers, "headers") != nil {
		return
	}
	call := &Call{
		Operation: op, Name: name, WorkflowID: workflowID, Args: args, Headers: history.Headers(c.headers).Copy(),
	}
	outer := m.readOnlyCode
	m.readOnlyCode = interceptorCode
	defer func() {
		if m.closing.Load() {
			return
		}
		m.readOnlyCode = outer
		if r := recover(); r != nil {
			m.stopCode(panicked(r))
		}
	}()
	for _, interceptor := range m.interceptors {
		interceptor.InterceptCommand(c, call)
	}
	if err := protocol.CheckHeaders(call.Headers, "headers"); err != nil {
		m.stopCode(fmt.Errorf("interceptors set invalid headers for %s %q: %w", op, name, err))
	}
	if cmd.Headers = call.Headers; len(call.Headers) == 0 {
		cmd.Headers = nil
	}
}

func interceptorError(i Interceptor, call *Call, what string) error {
	return fmt.Errorf("interceptor %T %s for %s %q", i, what, call.Operation, call.Name)
}

// stopCode stops the machine with an error. It does not return.
func (m *machine) stopCode(fault error) {
	if m.current == nil {
		panic(fault)
	}
	m.current.stop(fault)
}
