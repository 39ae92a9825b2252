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
	Queue string       // the run's own when empty
	Retry *RetryPolicy // nil: one attempt

	StartToClose    time.Duration // one attempt
	ScheduleToClose time.Duration // all attempts together
	ScheduleToStart time.Duration // waiting for a worker
	Heartbeat       time.Duration // maximum interval between heartbeats of the activity's code
	// MaxBlamedLosses is after how many losses of its worker process that the activity is blamed for it fails as poison,
	// unless Retry allows more attempts; 0: the setting max-blamed-losses of the app.
	MaxBlamedLosses int

	// runs the activity on the worker that holds the session with this ID; see also InSession
	Session       string
	WorkerSession *WorkerSession // as Session, with options of the session's own
	// SessionDefinition sets the session up, by a definition that its workers have registered; nil: none, or that of
	// earlier uses of the session.
	SessionDefinition *SessionDefinition
	Requirements      []string // capabilities its worker must have
	Priority          int      // 0 the run's own, 1 first … 9 last

	// SessionFallback makes the affinity of Session soft: once an activity has waited this long for the session's
	// owner, because the owner is dead, draining or full, another worker may acquire the session, whose state is then
	// lost. The value applies to the session from this activity on; 0 does not change it. New sessions have hard
	// affinity.
	SessionFallback time.Duration

	// WaitForCancellation makes Get and Join of a cancelled, running activity wait until the activity has ended, and
	// return its result. Their error is ErrCancelled if the activity gave up; it is not retried. An activity that ignores
	// cancellation is waited for until it ends or times out.
	WaitForCancellation bool
}

// RetryPolicy limits the attempts of an activity. Without a policy there is one attempt.
type RetryPolicy struct {
	MaxAttempts  int             // 0: without end
	Backoff      []time.Duration // before attempt 2, 3, …; the last one repeats; whole seconds, rounded up
	NonRetryable []string        // types of failures that end the activity at once
}

// ExponentialBackoff returns a Backoff that starts with first and doubles up to limit.
func ExponentialBackoff(first, limit time.Duration) []time.Duration {
	var all []time.Duration
	for d := max(first, time.Second); d < limit && len(all) < 32; d *= 2 {
		all = append(all, d)
	}
	return append(all, limit)
}

// WorkerSession are options of a session that is shared by id in the whole namespace. Zero values mean the defaults.
type WorkerSession struct {
	ID            string
	Queue         string
	Requirements  []string
	Lease         time.Duration // 120 s
	TTL           time.Duration // the session ends after it, and its ID fails for every run; 0 and NoTTL: no TTL
	MaxActivities int           // at once; 1
	MustExist     bool          // do not make it
	NoReacquire   bool          // no other worker acquires it after its lease expired
	// maximum time that an activity waits for the session's owner before any worker may acquire the session; 0: no maximum
	Fallback time.Duration
	// Pinned prevents the release of an idle session if its worker is at its limit of sessions and other sessions wait.
	// Idle sessions that are not pinned are released for them.
	Pinned bool
}

// NoTTL is the TTL of a session that does not expire; the zero value means the same.
const NoTTL time.Duration = -1

// WithActivity returns a context with these options for activities. Zero members keep the options of ctx.
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

// overlay sets the fields of to whose values in o are not zero to these values.
func overlay[T any](to *T, o T) {
	dst, src := reflect.ValueOf(to).Elem(), reflect.ValueOf(o)
	for i := range src.NumField() {
		if !src.Field(i).IsZero() {
			dst.Field(i).Set(src.Field(i))
		}
	}
}

// InSession returns a context whose activities stay with the worker that holds the session of this id; "" leaves the
// session. Sessions of an id need no start and no end. With a definition, workers set the session up before its first
// activity.
func InSession(ctx Context, id string, definition ...SessionDefinition) Context {
	c := *ctx.inner()
	c.options.Session, c.options.WorkerSession, c.options.SessionDefinition = id, nil, nil
	if len(definition) > 0 {
		c.options.SessionDefinition = &definition[0]
	}
	return &c
}

// SessionDefinition names the definition by which workers create the state of a session, see worker.Registry.Session.
// Only workers that registered it acquire the session.
type SessionDefinition struct {
	Name string
	// Arguments of the set-up, at most 2 MiB. Those of the session's first use apply as long as the app stores the
	// session; later uses with other arguments have a warning in history.
	Arguments []any
	// OnLost selects what happens when the session moves to another owner: "set_up" (default) runs the set-up there;
	// with "fail" the first activity there fails with ErrSessionLost before the set-up, so that the workflow learns of it.
	OnLost string
}

// wire converts the definition to its protocol form; nil for nil.
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
	if cmd.Arguments, err = payload.EncodeArgs(args...); err != nil {
		return c.m.settled(fmt.Errorf("activity %q: %w", name, err))
	}
	cmd.ActivityType = name
	if err := c.m.checkArguments(name, len(args)); err != nil {
		return c.m.settled(err)
	}
	if err := c.m.check(cmd); err != nil {
		return c.m.settled(fmt.Errorf("activity %q: %w", name, err))
	}
	f := c.openStep(activityStep, name, cmd)
	f.waitForEnd = c.options.WaitForCancellation
	return f
}

// recordedWithLongAttempts reports whether history contains the next step as an activity whose attempt timeout exceeds
// its total timeout: older releases accepted such options, and their runs must continue.
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

// openStep issues a command whose end will resolve a future.
func (c *flow) openStep(k kind, name string, cmd *protocol.Command) *future {
	f := &future{m: c.m, kind: k, name: name, scope: c.scope}
	f.seq = c.m.issue(cmd)
	c.m.steps[f.seq] = f
	c.scope.add(f)
	return f
}

// stepID returns the ID of the activity, timer or child that a command opens.
func (m *machine) stepID(seq int64) string { return fmt.Sprintf("%s-%d", m.info.RunID, seq) }

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
	if c.SessionID == "" {
		c.Affinity, c.FallbackAfter = "", 0
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
		MaxActivities: protocol.Count(s.MaxActivities), Pinned: s.Pinned,
	}
	if o.Affinity, o.FallbackAfter, err = fallback(s.Fallback); err != nil {
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

// NewTimer returns a future that is ready when d has passed, at once if d is not positive. It is durable: d counts
// although no worker runs. A longer d than ten years is clamped to ten years. Cancelling ctx ends the timer with
// ErrCancelled.
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

// Sleep waits for d; the error is ErrCancelled.
func Sleep(ctx Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return NewTimer(ctx, d).Get(ctx, nil)
}

// nameOf returns the registered name of a workflow or activity that code names or passes as a function.
func (m *machine) nameOf(what string, nameOrFunc any, lookup func(fn any) (string, error)) (string, error) {
	if name, ok := nameOrFunc.(string); ok {
		if name == "" {
			return "", fmt.Errorf("%w: the %s has no name", ErrInvalidOptions, what)
		}
		return name, nil
	}
	if reflect.ValueOf(nameOrFunc).Kind() != reflect.Func {
		return "", fmt.Errorf(
			"%w: want the name of the %s or a registered function, not %T", ErrInvalidOptions, what, nameOrFunc,
		)
	}
	name, err := lookup(nameOrFunc)
	if err != nil {
		// This deployment lacks the registration. The workflow task fails and is retried, so the run continues on a worker
		// that has registered the function.
		m.currentBranch().stop(&UnregisteredError{Err: err})
	}
	return name, nil
}

// argumentCountError reports a call with a wrong number of arguments. It is ErrInvalidOptions.
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
// call that history records with this number of arguments stays valid.
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

// recordedArguments returns the number of arguments that history records for the next command; -1 if that command is
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
