package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// SignalChannel holds the signals of one name that have arrived and that the code has not received yet.
type SignalChannel struct {
	m       *machine
	name    string
	values  []received
	waiting bool // the run has reported that it waits for the name, and no signal of the name has arrived since
	waiters []*waiter
	headers map[string]string // of the signal that the code received last
	ctx     *flow             // context of the last call of Signal
}

// received is a signal that the code has not received yet.
type received struct {
	args    payload.Payload
	headers map[string]string
	event   int64
}

// Signal returns the channel of the signals with a name.
func Signal(ctx Context, name string) *SignalChannel {
	m := ctx.inner().m
	m.currentBranch()
	s := m.signal(name)
	s.ctx = ctx.inner()
	return s
}

func (m *machine) signal(name string) *SignalChannel {
	s, ok := m.signals[name]
	if !ok {
		s = &SignalChannel{m: m, name: name}
		m.signals[name] = s
	}
	return s
}

func (s *SignalChannel) isReady() bool {
	for s.needsOmitted() {
		s.m.awaitSignals()
	}
	return len(s.values) > 0
}
func (s *SignalChannel) attach(w *waiter) { s.waiters = append(s.waiters, w) }
func (s *SignalChannel) detach(w *waiter) { s.waiters = without(s.waiters, w) }

// openWait issues the command that reports that the run waits for a signal of this name, unless the command has been
// issued. It returns ErrInvalidOptions if the name is not valid for a signal.
func (s *SignalChannel) openWait() error {
	if s.waiting {
		return nil
	}
	c := &protocol.Command{Type: protocol.OpenSignalWait, SignalName: s.name, Buffers: true}
	if err := s.m.check(c); err != nil {
		return fmt.Errorf("signal %q: %w", s.name, err)
	}
	s.waiting = true
	s.m.issue(c)
	return nil
}

// arrive queues a signal and wakes the branches that wait for one, in the order in which they started to wait. A branch
// that finds the queue empty waits again.
func (s *SignalChannel) arrive(value received) {
	s.values = append(s.values, value)
	s.waiting = false
	for _, w := range s.waiters {
		w.notify()
	}
}

// Receive waits for the next signal of this name and decodes its arguments into outs by position; a nil out discards
// the argument. If decoding fails, Receive returns the error and the signal is consumed.
func (s *SignalChannel) Receive(ctx Context, outs ...any) error {
	if s.name == "" {
		return fmt.Errorf("%w: the signal has no name", ErrInvalidOptions)
	}
	if !s.isReady() {
		w := &waiter{need: 1}
		var wrong error
		err := wait(ctx, w, func() bool {
			if s.isReady() {
				return true
			}
			w.need = 1
			wrong = s.openWait()
			return wrong != nil
		}, s)
		if err = cmp.Or(wrong, err); err != nil {
			return err
		}
	}
	return s.takeSignal(outs)
}

// ReceiveAsync receives a signal without waiting. It returns false if no signal has arrived.
func (s *SignalChannel) ReceiveAsync(outs ...any) (bool, error) {
	s.m.currentBranch()
	if !s.isReady() {
		return false, nil
	}
	return true, s.takeSignal(outs)
}

// ReceiveTimeout is like Receive, but waits for at most d, by a durable timer. It returns false after the timeout.
func (s *SignalChannel) ReceiveTimeout(ctx Context, d time.Duration, outs ...any) (bool, error) {
	if received, err := s.ReceiveAsync(outs...); received || err != nil {
		return received, err
	}
	if s.name == "" {
		return false, fmt.Errorf("%w: the signal has no name", ErrInvalidOptions)
	}
	under, cancel := WithCancel(ctx)
	defer cancel()
	first, err := Select(ctx, s, NewTimer(under, d))
	if err != nil || first == 1 {
		return false, err
	}
	return true, s.takeSignal(outs)
}

// ReceiveSignal waits for the next signal of a name with one argument.
func ReceiveSignal[T any](ctx Context, name string) (T, error) {
	var v T
	err := Signal(ctx, name).Receive(ctx, &v)
	return v, err
}

func (s *SignalChannel) takeSignal(outs []any) error {
	value := s.values[0].args
	s.headers = s.values[0].headers
	s.values[0] = received{}
	s.values = s.values[1:]
	call := s.m.callOf(OpReceiveSignal, s.name, s.headers)
	return s.m.intercept(s.ctx, call, func(*flow) error { return s.decode(value, outs) })
}

// decode decodes the arguments of a signal into outs.
func (s *SignalChannel) decode(value payload.Payload, outs []any) error {
	if len(outs) == 0 {
		return nil
	}
	into := make([]any, len(outs))
	for i, out := range outs {
		if into[i] = out; out == nil {
			into[i] = new(any)
		}
	}
	if err := payload.DecodeArgs(value, into...); err != nil {
		return fmt.Errorf("signal %q: %w", s.name, err)
	}
	return nil
}

// unreceived returns the numbers of the events with signals that the code has not received, in order.
func (m *machine) unreceived() (events []int64) {
	for _, s := range m.signals {
		for _, v := range s.values {
			events = append(events, v.event)
		}
	}
	slices.Sort(events)
	return events
}

// SignalWorkflow sends a signal to the current run of another workflow ID, exactly once. It does not wait until the run
// receives the signal.
func SignalWorkflow(ctx Context, workflowID, name string, args ...any) error {
	m := ctx.inner().m
	m.currentBranch()
	if err := ctx.Err(); err != nil {
		return err
	}
	if workflowID == "" || name == "" {
		return errors.Join(ErrInvalidOptions, errors.New("a signal needs a workflow ID and a name"))
	}
	p, err := m.codecs.NewArgs(args...)
	if err != nil {
		return fmt.Errorf("signal %q: %w", name, err)
	}
	c := &protocol.Command{
		Type: protocol.SignalWorkflow, WorkflowID: workflowID, SignalName: name, Arguments: p, Headers: ctx.inner().headers,
	}
	if err := m.check(c); err != nil {
		return fmt.Errorf("signal %q: %w", name, err)
	}
	ctx.inner().interceptCommand(OpSignalWorkflow, name, workflowID, args, c)
	m.issue(c)
	return nil
}
