package workflow

import (
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// HandleQuery sets fn as the handler of queries of this name: a func(Context, args…) (result, error). It runs on the
// workflow's state after its history, on the worker that replays the history, also if the run has closed. Changes that
// fn makes are discarded. If fn calls functions of this package other than Info, Headers, Now and Logger, the
// query fails with ErrReadOnly.
//
// Set handlers before the code first waits, so that the run can be queried at any time. Setting a handler again
// replaces it. A function with another signature panics.
func HandleQuery(ctx Context, name string, fn any) {
	m := ctx.inner().m
	m.currentBranch()
	m.queries[name] = &handler{ctx: ctx, fn: handlerFunc("query", name, fn)}
}

// These errors, for errors.Is, report why a query has no result.
var (
	ErrUnknownQuery   = errors.New("the workflow has no such query")
	ErrQueryArguments = errors.New("the arguments do not fit the query")
	// ErrReadOnly reports that read-only code called a function with side effects.
	ErrReadOnly = errors.New("it must be read-only")
)

// readOnly runs read-only code, for at most the deadlock timeout. A failure of the code becomes the machine's error.
func (m *machine) readOnly(what string, fn func()) {
	if m.watch == nil {
		m.watch = time.NewTimer(m.patience)
	}
	m.watch.Reset(m.patience)
	defer m.watch.Stop()
	m.readOnlyCode = what
	defer func() { m.readOnlyCode = "" }()
	m.runBranch(m.branch(fn))
}

// readOnlyError returns the error for read-only code that called a function with side effects.
func readOnlyError(what string) error {
	return fmt.Errorf("workflow: %s must not call package workflow: %w", what, ErrReadOnly)
}

// Query runs a query handler on the workflow's state after the applied events. Afterwards the machine cannot process
// workflow tasks, since the handler may have changed the state; further queries are possible.
func (m *machine) Query(
	name string, args payload.Payload, headers map[string]string,
) (result payload.Payload, err error) {
	if m.fault != nil {
		return result, m.fault
	}
	h, ok := m.queries[name]
	if !ok {
		return result, fmt.Errorf("query %q: %w", name, ErrUnknownQuery)
	}
	in, err := h.fn.Decode(args)
	if err != nil {
		return result, fmt.Errorf("query %q: %w: %w", name, ErrQueryArguments, err)
	}
	m.readOnly(fmt.Sprintf("query %q", name), func() {
		err = m.intercept(h.contextWith(headers), m.callOf(OpHandleQuery, name, headers), func(ctx *flow) (err error) {
			result, err = h.fn.CallWith(m.codecs.NewValue, ctx, in)
			return err
		})
	})
	if m.fault != nil {
		return payload.Payload{}, fmt.Errorf("query %q: %w", name, m.fault)
	}
	if err != nil {
		err = fmt.Errorf("query %q: %w", name, err)
	}
	return result, err
}
