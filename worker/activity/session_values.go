package activity

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrStateClosed is returned by methods of SessionValues after the session was released.
var ErrStateClosed = errors.New("session state is closed")

// SessionValues stores values for the activities of one session. Its owner, the worker or an executor, creates one per
// session and epoch and closes it when the session ends. It is safe for concurrent use. A nil *SessionValues stores
// nothing.
type SessionValues struct {
	mu      sync.Mutex
	values  map[string]any     // guarded by mu
	making  map[string]*making // guarded by mu
	onClose []func()           // guarded by mu
	closed  bool               // guarded by mu
	setUp   *setUpResult       // result of the set-up, guarded by mu; nil: none
}

// setUpResult is the value that the set-up of a session returned, with the function that releases it.
type setUpResult struct {
	value    any
	tearDown func() // nil: nothing to release
	users    int    // number of running activities that use the value; guarded by SessionValues.mu
	retired  bool   // the result was replaced or torn down, so the last user releases it; guarded by SessionValues.mu
}

// making is a value that one call is creating. done is closed when the value exists or its creation has failed.
type making struct {
	done  chan struct{}
	value any
	err   error
}

// NewSessionValues returns an empty store for the values that the activities of one session share.
func NewSessionValues() *SessionValues {
	return &SessionValues{values: map[string]any{}, making: map[string]*making{}}
}

// Get returns the value stored under key.
func (s *SessionValues) Get(key string) (any, bool) {
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.values[key]
	return v, ok
}

// Set stores value under key. After Close it does nothing.
func (s *SessionValues) Set(key string, value any) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.values[key] = value
	}
}

// Delete removes the value under key.
func (s *SessionValues) Delete(key string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, key)
}

// GetOrCreate returns the value stored under key, or stores and returns the result of create. One of several concurrent
// callers runs create; the others wait for it or for the end of their ctx. If create fails, they all receive its error,
// nothing is stored, and the next caller runs create again.
func (s *SessionValues) GetOrCreate(
	ctx context.Context, key string, create func(context.Context) (any, error),
) (any, error) {
	if s == nil {
		return create(ctx)
	}
	s.mu.Lock()
	if v, ok := s.values[key]; ok {
		s.mu.Unlock()
		return v, nil
	}
	if s.closed {
		s.mu.Unlock()
		return nil, ErrStateClosed
	}
	if m, ok := s.making[key]; ok {
		s.mu.Unlock()
		select {
		case <-m.done:
			return m.value, m.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	// The error is returned if create panics.
	m := &making{done: make(chan struct{}), err: fmt.Errorf("creating %q ended without a value", key)}
	s.making[key] = m
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.making, key)
		if m.err == nil && !s.closed {
			s.values[key] = m.value
		}
		s.mu.Unlock()
		close(m.done)
	}()
	m.value, m.err = create(ctx)
	return m.value, m.err
}

// SetUp stores the result of the session's set-up, which State returns. tearDown releases the result when the state is
// closed or another result replaces it, but not while an activity uses it; nil: nothing to release. Workers call SetUp.
func (s *SessionValues) SetUp(value any, tearDown func()) {
	s.mu.Lock()
	release := s.retire()
	if s.closed {
		release = append(release, tearDown)
	} else {
		s.setUp = &setUpResult{value: value, tearDown: tearDown}
	}
	s.mu.Unlock()
	call(release)
}

// TearDown removes the result of the session's set-up and releases it. If activities use the result, the last of them
// releases it.
func (s *SessionValues) TearDown() {
	if s == nil {
		return
	}
	s.mu.Lock()
	release := s.retire()
	s.mu.Unlock()
	call(release)
}

// Use marks the result of the session's set-up as used by an activity until leave is called, exactly once. Workers call
// it.
func (s *SessionValues) Use() (leave func()) {
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.setUp
	if used == nil {
		return func() {}
	}
	used.users++
	return func() {
		s.mu.Lock()
		used.users--
		last := used.retired && used.users == 0
		s.mu.Unlock()
		if last {
			call([]func(){used.tearDown})
		}
	}
}

// retire removes the result of the set-up. It returns the functions that release it, or none if an activity still uses
// it. The caller must hold mu.
func (s *SessionValues) retire() (release []func()) {
	was := s.setUp
	if was == nil {
		return nil
	}
	s.setUp, was.retired = nil, true
	if was.users > 0 {
		return nil
	}
	return []func(){was.tearDown}
}

func call(all []func()) {
	for _, fn := range all {
		if fn != nil {
			fn()
		}
	}
}

// SetUpResult returns the result of the session's set-up. Workers call it; activities call State.
func (s *SessionValues) SetUpResult() (value any, ok bool) {
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.setUp == nil {
		return nil, false
	}
	return s.setUp.value, true
}

// OnClose registers fn to be called when the state is closed. Functions are called in reverse order of registration. If
// the state is already closed, fn is called immediately.
func (s *SessionValues) OnClose(fn func()) {
	if s == nil {
		return
	}
	s.mu.Lock()
	if !s.closed {
		s.onClose = append(s.onClose, fn)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	fn()
}

// Close removes all values, runs the functions that OnClose registered and releases the result of the set-up. Further
// calls have no effect. The worker calls Close when no attempt of the session runs.
func (s *SessionValues) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	fns := s.onClose
	s.closed, s.onClose, s.values = true, nil, nil
	s.mu.Unlock()
	for i := len(fns) - 1; i >= 0; i-- {
		fns[i]()
	}
	s.TearDown()
}

func mistyped(key string, got, want any) error {
	return SessionLost(fmt.Sprintf("%s in this session is %T, not %T", key, got, want))
}
