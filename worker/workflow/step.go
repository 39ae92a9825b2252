package workflow

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ActivityOptions are the options of activities. Durations are rounded up to whole seconds; zero means none.
type ActivityOptions struct {
	Queue string       // task queue; empty: the run's queue
	Retry *RetryPolicy // nil: one attempt

	StartToClose    time.Duration // timeout of one attempt
	ScheduleToClose time.Duration // timeout of all attempts together
	ScheduleToStart time.Duration // timeout of waiting for a worker
	Heartbeat       time.Duration // maximum interval between heartbeats of the activity's code
	// MaxBlamedLosses limits how often the activity may be blamed for the loss of its worker process before it fails as
	// poison, unless Retry allows more attempts; 0: the app's setting max-blamed-losses.
	MaxBlamedLosses int

	// Session is the ID of a session: the activity runs on the worker that holds it. See also InSession.
	Session       string
	WorkerSession *WorkerSession // like Session, with options for the session
	// SessionDefinition names a session definition, registered by the workers, that sets the session up; nil: none, or
	// the definition of earlier uses of the session.
	SessionDefinition *SessionDefinition
	Requirements      []string // capabilities that the worker must have
	Priority          int      // 1 is dispatched first, 9 last; 0: the run's priority

	// SessionFallback makes the affinity of Session soft: once an activity has waited this long for the session's
	// owner, because the owner is dead, draining or full, another worker may acquire the session, whose state is then
	// lost. The value applies to the session from this activity on; 0 does not change it. New sessions have hard
	// affinity.
	SessionFallback time.Duration
	// SessionFailFast limits the leases of Session and of its activities to 10 s; see [SessionOptions].
	SessionFailFast bool

	// WaitForCancellation makes Get and Join of a cancelled, running activity wait until the activity has ended, and
	// return its result. They return ErrCancelled if the activity stopped without a result; it is not retried. If the
	// activity ignores cancellation, they wait until it ends or times out.
	WaitForCancellation bool
}

// RetryPolicy limits the attempts of an activity. Without a policy there is one attempt.
type RetryPolicy struct {
	MaxAttempts int // 0: no limit
	// waiting times before attempt 2, 3, …; the last one repeats; rounded up to whole seconds
	Backoff      []time.Duration
	NonRetryable []string // error types that fail the activity without another attempt
}

// ExponentialBackoff returns a Backoff that starts with first and doubles up to limit.
func ExponentialBackoff(first, limit time.Duration) []time.Duration {
	var all []time.Duration
	for d := max(first, time.Second); d < limit && len(all) < 32; d *= 2 {
		all = append(all, d)
	}
	return append(all, limit)
}

// WorkerSession has the options of a session that all workflows of the namespace share by its ID. Zero values select
// the defaults.
type WorkerSession struct {
	ID           string
	Queue        string
	Requirements []string
	Lease        time.Duration // lease of the session; default: 120 s
	// time to live; afterwards the session ends and every use of its ID fails; 0 and NoTTL: unlimited
	TTL           time.Duration
	MaxActivities int  // maximum number of concurrent activities; default: 1
	MustExist     bool // fail the activity if the session does not exist, instead of creating the session
	NoReacquire   bool // no other worker may acquire the session after its lease expired
	// Fallback is the maximum time that an activity waits for the session's owner before any worker may acquire the
	// session; 0: no maximum.
	Fallback time.Duration
	// Pinned prevents the release of the session while it is idle. A worker at its maximum number of sessions releases
	// idle sessions that are not pinned when other sessions wait for it.
	Pinned bool
	// FailFast limits the leases of the session and of its activities to 10 s; see [SessionOptions].
	FailFast bool
	// Resources are amounts of the resources of workers that the session needs; see [SessionOptions].
	Resources map[string]string
}

// NoTTL is the TTL of a session that does not expire. It is the default.
const NoTTL time.Duration = -1

// WithActivity returns a context with these options for activities. For zero fields, the options of ctx apply.
func WithActivity(ctx Context, o ActivityOptions) Context {
	c := *ctx.inner()
	overlay(&c.options, o)
	if o.Session != "" && o.WorkerSession == nil {
		c.options.WorkerSession = nil
	}
	if (o.Session != "" || o.WorkerSession != nil) && o.SessionDefinition == nil {
		c.options.SessionDefinition = nil
	}
	if o.WorkerSession != nil && o.Session == "" {
		c.options.Session = ""
	}
	return &c
}

// overlay copies the fields of o that are not zero to to.
func overlay[T any](to *T, o T) {
	dst, src := reflect.ValueOf(to).Elem(), reflect.ValueOf(o)
	for i := range src.NumField() {
		if !src.Field(i).IsZero() {
			dst.Field(i).Set(src.Field(i))
		}
	}
}

// InSession returns a context whose activities run on the worker that holds the session with this ID. An empty ID
// selects no session. Such a session is neither started nor ended explicitly. With a definition, workers set the
// session up before its first activity.
func InSession(ctx Context, id string, definition ...SessionDefinition) Context {
	c := *ctx.inner()
	c.options.Session, c.options.WorkerSession, c.options.SessionDefinition = id, nil, nil
	if len(definition) > 0 {
		c.options.SessionDefinition = &definition[0]
	}
	return &c
}

// SessionDefinition names the session definition by which workers create the state of a session; see
// worker.Registry.Session. Only workers that registered it acquire the session.
type SessionDefinition struct {
	Name string
	// Arguments are the arguments of the set-up, at most 2 MiB. The arguments of the session's first use apply as long
	// as the app stores the session; a later use with other arguments adds a warning to history.
	Arguments []any
	// OnLost selects what happens when the session moves to another owner. "set_up" (default) runs the set-up there.
	// With "fail", the first activity there fails with ErrSessionLost before the set-up, so that the workflow can
	// react.
	OnLost string
}

// wire returns the definition in its protocol form; nil for nil.
func (d *SessionDefinition) wire() (*protocol.SessionDefinition, error) {
	if d == nil {
		return nil, nil
	}
	out := &protocol.SessionDefinition{Name: d.Name, OnLost: d.OnLost}
	if len(d.Arguments) > 0 {
		args, err := payload.EncodeArgs(d.Arguments...)
		if err != nil {
			return nil, fmt.Errorf("arguments of session definition %q: %w", d.Name, err)
		}
		out.Arguments = args
	}
	return out, nil
}

// ExecuteActivity schedules an activity by its registered name or function, and returns a future for its result.
func ExecuteActivity(ctx Context, nameOrFunc any, args ...any) Future {
	c := ctx.inner()
	c.m.currentBranch()
	if c.scope.cancelled {
		return c.m.settled(ErrCancelled)
	}
	name, err := c.m.nameOf("activity", nameOrFunc, c.m.names.ActivityName)
	if err != nil {
		return c.m.settled(err)
	}
	cmd, err := c.options.command()
	if err != nil {
		return c.m.settled(fmt.Errorf("activity %q: %w", name, err))
	}
	if cmd.ScheduleToClose > 0 && cmd.StartToClose > cmd.ScheduleToClose && !c.m.recordedWithLongAttempts() {
		return c.m.settled(fmt.Errorf("activity %q: %w: StartToClose %s is longer than ScheduleToClose %s, which bounds all attempts",
			name, ErrInvalidOptions, c.options.StartToClose, c.options.ScheduleToClose))
	}
	if cmd.Arguments, err = c.m.codecs.NewArgs(args...); err != nil {
		return c.m.settled(fmt.Errorf("activity %q: %w", name, err))
	}
	cmd.ActivityType, cmd.Headers = name, c.headers
	if err := c.m.checkArguments(name, len(args)); err != nil {
		return c.m.settled(err)
	}
	if err := c.m.check(cmd); err != nil {
		return c.m.settled(fmt.Errorf("activity %q: %w", name, err))
	}
	c.interceptCommand(OpScheduleActivity, name, c.m.info.WorkflowID, args, cmd)
	f := c.openStep(activityStep, name, cmd)
	f.waitForEnd = c.options.WaitForCancellation
	return f
}

// recordedWithLongAttempts reports whether history records the next step as an activity whose attempt timeout exceeds
// its total timeout. Older releases accepted such options, and their runs must continue.
func (m *machine) recordedWithLongAttempts() bool {
	e := m.recorded[m.sequence+1]
	if e == nil {
		return false
	}
	d, ok := e.Data.(*history.ActivityScheduled)
	return ok && d.ScheduleToClose > 0 && d.StartToClose > d.ScheduleToClose
}

// Execute runs an activity and waits for its result.
func Execute[T any](ctx Context, nameOrFunc any, args ...any) (T, error) {
	return Await[T](ctx, ExecuteActivity(ctx, nameOrFunc, args...))
}

// openStep issues a command and returns the future that the end of the activity, timer or child resolves.
func (c *flow) openStep(k kind, name string, cmd *protocol.Command) *future {
	f := &future{m: c.m, kind: k, name: name, scope: c.scope}
	f.seq = c.m.issue(cmd)
	c.m.steps[f.seq] = f
	c.scope.add(f)
	return f
}

// stepID returns the ID of the activity, timer, session, child or awakeable that a command opens.
func (m *machine) stepID(seq int64) string { return fmt.Sprintf("%s-%d", m.info.RunID, seq) }

// openedID returns the ID of the session, child or awakeable that a command opens. In a redriven run, a copied command
// has the ID that it got in the run in which it was issued first.
func (m *machine) openedID(seq int64) string {
	for _, r := range m.copied {
		if seq <= r.Command {
			return fmt.Sprintf("%s-%d", r.RunID, seq)
		}
	}
	return m.stepID(seq)
}

func (o *ActivityOptions) command() (*protocol.Command, error) {
	c := &protocol.Command{
		Type: protocol.ScheduleActivity, Queue: o.Queue, SessionID: o.Session, Requirements: o.Requirements,
		MaxBlamedLosses: o.MaxBlamedLosses,
	}
	if o.Priority > 0 {
		c.Priority = new(o.Priority)
	}
	var err error
	for _, d := range []struct {
		name string
		from time.Duration
		to   *protocol.Timeout
	}{
		{"StartToClose", o.StartToClose, &c.StartToClose},
		{"ScheduleToClose", o.ScheduleToClose, &c.ScheduleToClose},
		{"ScheduleToStart", o.ScheduleToStart, &c.ScheduleToStart},
		{"Heartbeat", o.Heartbeat, &c.Heartbeat},
	} {
		n, err := wholeSeconds(d.name, d.from)
		if err != nil {
			return nil, err
		}
		*d.to = protocol.Timeout(n)
	}
	if p := o.Retry; p != nil {
		if c.RetryPolicy, err = p.wire(); err != nil {
			return nil, err
		}
	}
	if s := o.WorkerSession; s != nil {
		if c.WorkerSession, err = s.wire(); err != nil {
			return nil, err
		}
	}
	if c.SessionDefinition, err = o.SessionDefinition.wire(); err != nil {
		return nil, err
	}
	if c.Affinity, c.FallbackAfter, err = fallback(o.SessionFallback); err != nil {
		return nil, err
	}
	c.FailFast = o.SessionFailFast
	if c.SessionID == "" {
		c.Affinity, c.FallbackAfter, c.FailFast = "", 0, false
	}
	if o.MaxBlamedLosses < 0 || o.MaxBlamedLosses > 1000 {
		return nil, fmt.Errorf("%w: MaxBlamedLosses %d is not between 0 and 1000", ErrInvalidOptions, o.MaxBlamedLosses)
	}
	if o.Priority < 0 || o.Priority > 9 {
		return nil, fmt.Errorf("%w: priority %d is not between 0 and 9", ErrInvalidOptions, o.Priority)
	}
	return c, nil
}

func (p *RetryPolicy) wire() (*retry.Policy, error) {
	if p.MaxAttempts < 0 {
		return nil, fmt.Errorf("%w: MaxAttempts is negative", ErrInvalidOptions)
	}
	n := p.MaxAttempts
	if n == 0 {
		n = math.MaxInt32
	}
	w := &retry.Policy{
		MaxAttempts: &n, BackoffSeconds: make([]int, len(p.Backoff)),
		NonRetryableErrorTypes: append([]string{}, p.NonRetryable...),
	}
	for i, d := range p.Backoff {
		s, err := wholeSeconds("Backoff", d)
		if err != nil {
			return nil, err
		}
		w.BackoffSeconds[i] = int(s)
	}
	return w, nil
}

func (s *WorkerSession) wire() (*protocol.SessionOptions, error) {
	if s.ID == "" {
		return nil, fmt.Errorf("%w: the worker session has no ID", ErrInvalidOptions)
	}
	lease, err := wholeSeconds("Lease", s.Lease)
	if err != nil {
		return nil, err
	}
	ttl := int64(protocol.NoTTL)
	if s.TTL != 0 && s.TTL != NoTTL {
		if ttl, err = wholeSeconds("TTL", s.TTL); err != nil {
			return nil, err
		}
	}
	o := &protocol.SessionOptions{
		SessionID: s.ID, Queue: s.Queue, Requirements: s.Requirements, Lease: protocol.Count(lease), TTL: protocol.TTL(ttl),
		MaxActivities: protocol.Count(s.MaxActivities), Pinned: s.Pinned, FailFast: s.FailFast,
	}
	if o.Affinity, o.FallbackAfter, err = fallback(s.Fallback); err != nil {
		return nil, err
	}
	if o.Resources, err = quantities(s.Resources); err != nil {
		return nil, err
	}
	if s.MustExist {
		o.Create = new(bool)
	}
	if s.NoReacquire {
		o.Reacquire = new(bool)
	}
	return o, nil
}

func wholeSeconds(name string, d time.Duration) (int64, error) {
	if d < 0 {
		return 0, fmt.Errorf("%w: %s is negative: %s", ErrInvalidOptions, name, d)
	}
	return ceil(d, time.Second), nil
}

func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// maxTimer is the longest timer, ten years.
const maxTimer = protocol.MaxSeconds * time.Second

// NewTimer returns a future that is ready when d has passed, or immediately if d is not positive. The timer is durable:
// it also runs while no worker is alive. A d of more than ten years is shortened to ten years. Cancelling ctx ends the
// timer with ErrCancelled.
func NewTimer(ctx Context, d time.Duration) Future {
	c := ctx.inner()
	c.m.currentBranch()
	switch {
	case c.scope.cancelled:
		return c.m.settled(ErrCancelled)
	case d <= 0:
		return c.m.settled(nil)
	}
	d = min(d, maxTimer)
	cmd := &protocol.Command{Type: protocol.StartTimer, Delay: new(ceil(d, time.Second))}
	if d%time.Second != 0 {
		cmd.DelayMicros = ceil(d, time.Microsecond)
	}
	return c.openStep(timerStep, "", cmd)
}

// Sleep waits for d. It returns ErrCancelled if ctx is cancelled first.
func Sleep(ctx Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return NewTimer(ctx, d).Get(ctx, nil)
}

// nameOf returns the registered name of a workflow or activity that the code identifies by name or function.
func (m *machine) nameOf(what string, nameOrFunc any, lookup func(fn any) (string, error)) (string, error) {
	given := reflect.ValueOf(nameOrFunc)
	if given.Kind() == reflect.String { // a string or a Name
		if given.Len() == 0 {
			return "", fmt.Errorf("%w: the %s has no name", ErrInvalidOptions, what)
		}
		return given.String(), nil
	}
	if given.Kind() != reflect.Func {
		return "", fmt.Errorf(
			"%w: want the name of the %s or a registered function, not %T", ErrInvalidOptions, what, nameOrFunc,
		)
	}
	name, err := lookup(nameOrFunc)
	if err != nil {
		// This worker has not registered the function. The workflow task fails and is retried, so that a worker that
		// has registered the function can continue the run.
		m.currentBranch().stop(&UnregisteredError{Err: err})
	}
	return name, nil
}

// argumentCountError reports a call with a wrong number of arguments. It matches ErrInvalidOptions.
type argumentCountError struct {
	activity     string
	takes, given int
}

func (e *argumentCountError) Error() string {
	plural := "s"
	if e.takes == 1 {
		plural = ""
	}
	return fmt.Sprintf("activity %q takes %d argument%s but was called with %d", e.activity, e.takes, plural, e.given)
}

func (e *argumentCountError) Is(target error) bool { return target == ErrInvalidOptions }

// arity is implemented by registries that know the number of arguments of an activity.
type arity interface {
	ActivityArguments(name string) (n int, registered bool)
}

// checkArguments refuses an activity call whose number of arguments differs from that of the registered function. A
// call that history records with the same number of arguments stays valid.
func (m *machine) checkArguments(name string, given int) error {
	known, ok := m.names.(arity)
	if !ok {
		return nil
	}
	takes, registered := known.ActivityArguments(name)
	if !registered || takes == given || m.recordedArguments(name) == given {
		return nil
	}
	return &argumentCountError{name, takes, given}
}

// recordedArguments returns the number of arguments that history records for the next command, or -1 if that command is
// not an activity of this name.
func (m *machine) recordedArguments(name string) int {
	e := m.recorded[m.sequence+1]
	if e == nil {
		return -1
	}
	d, ok := e.Data.(*history.ActivityScheduled)
	if !ok || d.ActivityType != name {
		return -1
	}
	n, err := payload.DecodeSomeArgs(payload.Payload{Blob: d.Arguments})
	if err != nil {
		return -1
	}
	return n
}
