package workflow

import (
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// HandleQuery answers the queries of a name with fn, a func(Context, args…) (result, error). It is run on the workflow
// as its history leaves it, by whichever worker replays it then, also when the run has closed. It leaves no trace: what
// it changes is forgotten, and calling this package in it, but for Info, Now and Logger, fails the query with
// ErrReadOnly.
//
// Handlers are set before the code waits for the first time, so that every moment of the run can be asked about.
// Setting one again replaces it. A function of another shape panics.
func HandleQuery(ctx Context, name string, fn any) {
	m := ctx.inner().m
	m.here()
	m.queries[name] = &handler{ctx: ctx, fn: handlerFunc("query", name, fn)}
}

// Why a query has no answer, for errors.Is.
var (
	ErrUnknownQuery   = errors.New("the workflow has no such query")
	ErrQueryArguments = errors.New("the arguments do not fit the query")
	// ErrReadOnly: code that must only look asked for something to happen.
	ErrReadOnly = errors.New("it must be read-only")
)

// readOnly runs code that may only look, and nothing longer than the machine's patience; what goes wrong is the
// machine's fault.
func (m *Machine) readOnly(what string, fn func()) {
	if m.watch == nil {
		m.watch = time.NewTimer(m.patience)
	}
	m.watch.Reset(m.patience)
	defer m.watch.Stop()
	m.reading = what
	defer func() { m.reading = "" }()
	m.turn(m.branch(fn))
}

// acted is the panic of code that asked for something where it may only look.
func acted(what string) error {
	return fmt.Errorf("workflow: %s must not call package workflow: %w", what, ErrReadOnly)
}

// Query asks the code for something about its state, as the events applied so far leave it. The machine is of no use
// for workflow tasks afterwards, since a handler may have changed what it looked at; further queries may be asked.
func (m *Machine) Query(name string, args payload.Payload) (result payload.Payload, err error) {
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
	m.readOnly(fmt.Sprintf("query %q", name), func() { result, err = h.fn.Call(h.ctx, in) })
	if m.fault != nil {
		return payload.Payload{}, fmt.Errorf("query %q: %w", name, m.fault)
	}
	if err != nil {
		err = fmt.Errorf("query %q: %w", name, err)
	}
	return result, err
}
