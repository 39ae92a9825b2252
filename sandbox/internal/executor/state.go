package executor

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// State stores values of a session between calls. It exists until the executor process ends, is never serialized, and
// is safe for concurrent use.
type State struct {
	ID    string
	Epoch int64
	Dir   string // scratch folder, also HOME, TMPDIR and the working directory; wiped when the session closes

	mu      sync.Mutex // guards the fields below
	values  map[string]any
	making  map[string]*making
	closers []func(context.Context)
}

type making struct {
	done  chan struct{}
	value any
	err   error
}

// Get returns the value stored under key.
func (s *State) Get(key string) (any, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.values[key]
	return v, ok
}

// Set stores v under key until the session ends.
func (s *State) Set(key string, v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string]any{}
	}
	s.values[key] = v
}

// Require returns the value stored under key, or a [*SessionLost] with cause declared. A handler that returns that
// error starts the session's recovery policy.
func (s *State) Require(key string) (any, error) {
	if v, ok := s.Get(key); ok {
		return v, nil
	}
	return nil,
		&SessionLost{
			Session: s.ID, EpochRequested: s.Epoch, EpochNow: s.Epoch, Cause: CauseDeclared, When: time.Now(),
			Message: fmt.Sprintf("session state %q does not exist", key),
		}
}

// GetOrCreate returns the value stored under key, or stores and returns the result of fn. Concurrent calls share one
// fn; if it fails, all of them receive its error and nothing is stored.
func (s *State) GetOrCreate(ctx context.Context, key string, fn func(context.Context) (any, error)) (any, error) {
	s.mu.Lock()
	if v, ok := s.values[key]; ok {
		s.mu.Unlock()
		return v, nil
	}
	if m := s.making[key]; m != nil {
		s.mu.Unlock()
		select {
		case <-m.done:
			return m.value, m.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	m := &making{done: make(chan struct{}), err: fmt.Errorf("the function that creates session state %q panicked", key)}
	if s.making == nil {
		s.making = map[string]*making{}
	}
	s.making[key] = m
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.making, key)
		s.mu.Unlock()
		close(m.done)
	}()
	m.value, m.err = fn(ctx)
	if m.err == nil {
		s.Set(key, m.value)
	}
	return m.value, m.err
}

// OnClose registers fn to run when the session is closed. The functions run in reverse order of registration and have
// five seconds together. After a crash none of them runs.
func (s *State) OnClose(fn func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, fn)
}

// close runs the hooks that are registered, once.
func (s *State) close(ctx context.Context) {
	s.mu.Lock()
	closers := s.closers
	s.closers = nil
	s.mu.Unlock()
	for i := len(closers) - 1; i >= 0 && ctx.Err() == nil; i-- {
		func() {
			defer func() { _ = recover() }() // a hook that panics must not prevent the others from running
			closers[i](ctx)
		}()
	}
}
