// Package workflow is the API of workflow code, and contains the machine that replays histories deterministically.
//
// Workflow code must be deterministic. It waits only through this package, takes the time from Now and identifiers from
// NewID, starts concurrent branches with Go, and leaves all side effects to activities. Only one branch of a workflow
// runs at a time, so its variables need no locks.
package workflow

import (
	"runtime"
	"time"
)

// Context belongs to one run of a workflow. It carries the settings of a branch: cancellation, activity options,
// values. It is not a context.Context, since workflow code must wait only for events of its history.
type Context interface {
	// Err is ErrCancelled once the context is cancelled.
	Err() error
	// Value returns the value that WithValue set under key, or nil.
	Value(key any) any

	inner() *flow
}

// flow is the only implementation of Context.
type flow struct {
	m        *machine
	scope    *scope
	options  ActivityOptions
	children ChildOptions
	update   *answer           // update whose handler runs under this context; nil: none
	received map[string]string // headers of the start, update or query whose code runs under this context
	headers  map[string]string // headers of the commands that are issued under this context
	parent   *flow             // context from which WithValue derived this one
	key      any
	value    any
}

func (c *flow) inner() *flow { return c }

func (c *flow) Err() error {
	if c.scope.cancelled {
		return ErrCancelled
	}
	return nil
}

func (c *flow) Value(key any) any {
	for ; c != nil; c = c.parent {
		if c.key != nil && c.key == key {
			return c.value
		}
	}
	return nil
}

// WithValue returns a context that also carries value under key.
func WithValue(ctx Context, key, value any) Context {
	c := *ctx.inner()
	c.parent, c.key, c.value = ctx.inner(), key, value
	return &c
}

// RunInfo describes a run.
type RunInfo struct {
	Namespace     string
	WorkflowID    string
	RunID         string
	WorkflowType  string
	Queue         string
	RunNumber     int64 // 1 for the first run; each ContinueAsNew adds one
	ContinuedFrom string
	StartedAt     time.Time
	// HistoryLength is the number of events at this point of the code. A workflow without an end should continue as new
	// when the history is long.
	HistoryLength int64
}

// Info returns a description of the current run.
func Info(ctx Context) RunInfo {
	m := ctx.inner().m
	info := m.info
	info.HistoryLength = m.at
	return info
}

// Now returns the time of the event that woke the code. It does not change while the code runs and is the same in every
// replay.
func Now(ctx Context) time.Time { return ctx.inner().m.now }

// NewID returns a unique identifier of 26 letters and digits, which is the same in every replay.
func NewID(ctx Context) string { return ctx.inner().m.newID() }

// Go starts a concurrent branch. The branch first runs when the branch that started it waits. Branches that still run
// when the workflow returns are abandoned.
func Go(ctx Context, fn func(ctx Context)) {
	c := ctx.inner()
	c.m.currentBranch()
	c.m.spawn(func() { fn(ctx) })
}

// scope is a node in the tree of cancellation: the operations that were started under it and the branches that wait
// under it.
type scope struct {
	m         *machine
	parent    *scope
	children  []*scope
	cancelled bool
	open      map[int64]*future // open activities, timers and children by command number
	waiters   []*waiter
}

func (s *scope) child() *scope {
	c := &scope{m: s.m, parent: s, cancelled: s.cancelled}
	if !s.cancelled {
		s.children = append(s.children, c)
	}
	return c
}

// CancelFunc cancels a context. Further calls have no effect.
type CancelFunc func()

// WithCancel returns a context that can be cancelled: cancellation cancels the activities, timers and children that
// were started under the context, and branches that wait under it get ErrCancelled. The context is cancelled with its
// parent. The root context is cancelled when cancellation of the run is requested.
func WithCancel(ctx Context) (Context, CancelFunc) {
	c := *ctx.inner()
	c.scope = c.scope.child()
	return &c, func() {
		c.m.currentBranch()
		c.scope.cancel()
	}
}

// WithoutCancel returns a context that is not cancelled with ctx. Use it to clean up after a cancellation.
func WithoutCancel(ctx Context) Context {
	c := *ctx.inner()
	c.scope = &scope{m: c.m}
	return &c
}

// cancel cancels open steps in the order in which they were started, then child scopes in the order of their creation.
func (s *scope) cancel() {
	if s.cancelled {
		return
	}
	s.cancelled = true
	for _, seq := range sortedKeys(s.open) {
		s.open[seq].cancel()
	}
	s.open = nil
	for _, w := range s.waiters {
		s.m.ready(w.co)
	}
	children := s.children
	s.children = nil
	for _, c := range children {
		c.cancel()
	}
	if s.parent != nil {
		s.parent.children = without(s.parent.children, s)
	}
}

func (s *scope) add(f *future) {
	if s.open == nil {
		s.open = map[int64]*future{}
	}
	s.open[f.seq] = f
}

// currentBranch returns the branch that is running now. Every function that changes the machine calls it first.
func (m *machine) currentBranch() *coroutine {
	if m.closing.Load() { // a deferred function runs after the machine was closed
		runtime.Goexit()
	}
	if m.readOnlyCode != "" && m.onBranch() {
		panic(readOnlyError(m.readOnlyCode))
	}
	if !m.onBranch() {
		m.failForeignGoroutine() // this call does not return
	}
	return m.current
}
