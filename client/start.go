package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Args are the arguments of a workflow, activity, signal, query or update, each of any type that has an encoding.
type Args []any

// ReusePolicy decides whether the workflow ID of a closed run may be used for a new run.
type ReusePolicy string

// The reuse policies; the default is RejectReuse.
const (
	RejectReuse       ReusePolicy = "reject"
	AllowAfterFailure ReusePolicy = "allow-after-failure" // the run failed, timed out, was cancelled or terminated
	AllowReuse        ReusePolicy = "allow"
)

// ConflictPolicy decides what a start does if a run of the workflow ID is open.
type ConflictPolicy string

// The conflict policies; the default is FailOnConflict.
const (
	FailOnConflict    ConflictPolicy = "fail"         // the start is refused with ReasonWorkflowIDInUse
	UseExisting       ConflictPolicy = "use-existing" // the start returns the open run
	TerminateExisting ConflictPolicy = "terminate-existing"
)

// StartOptions are the options of a workflow. The zero value starts a run with a generated ID on the queue "default".
// Durations are rounded up to whole seconds; 0 means none. The options are also members of [ActivityOptions].
type StartOptions struct {
	WorkflowID     string         // at most 255 bytes; empty: a new ULID
	Queue          string         // task queue; empty: "default"
	ReusePolicy    ReusePolicy    // of a closed run's ID; empty: RejectReuse
	ConflictPolicy ConflictPolicy // if a run of the ID is open; empty: FailOnConflict

	ExecutionTimeout time.Duration // limit of all runs of the workflow together; not of an activity run
	RunTimeout       time.Duration // limit of one run; not of an activity run
	Delay            time.Duration // before the first step; the other limits begin after it

	BuildID        string // pins the run to a build; empty: the queue's promoted build; not of an activity run
	Priority       *int   // 0 first … 9 last; nil: 5
	FairnessKey    string // queues dispatch tasks with different keys in turn; at most 64 of letters, digits and . _ : -
	FairnessWeight int    // share of the key, 1 to 1000; 0: 1

	BusinessKey      string         // text by which people find the run, at most 255 bytes
	Memo             map[string]any // values that are shown with the run
	SearchAttributes map[string]any // values by which lists filter
	// Headers accompany the request: the workflow or activity reads them. They are added to those of [WithHeaders]. At
	// most 32, of 8 KiB together.
	Headers map[string]string

	// IdempotencyKey identifies the request, at most 255 bytes: a repeated start with the same key returns the run that
	// it started, independent of the policies, even if the run has closed. Empty: a new key.
	IdempotencyKey string
}

// ActivityOptions are the options of an activity run: an activity without a workflow.
type ActivityOptions struct {
	StartOptions

	Retry           *RetryPolicy  // nil: one attempt
	StartToClose    time.Duration // limit of one attempt
	ScheduleToClose time.Duration // limit of all attempts together
	ScheduleToStart time.Duration // limit of the wait for a worker
	Heartbeat       time.Duration // maximum interval between heartbeats of the activity's code
	// MaxBlamedLosses is the number of losses of its worker process that the activity is blamed for after which it fails
	// as poison, unless Retry allows more attempts; 0: the setting max-blamed-losses of the app.
	MaxBlamedLosses int

	Requirements []string // capabilities that the worker must have
	// SessionID runs the activity on the worker that holds the session with this ID; empty: no session.
	SessionID string
	// SessionFallback makes the affinity of the session soft: once the activity has waited this long for the session's
	// owner, another worker may acquire the session, and its state is lost. 0 does not change the session.
	SessionFallback time.Duration
	SessionFailFast bool               // as SessionOptions.FailFast, for a session without options
	Session         *SessionOptions    // options of the session; nil: those of its first use, or the defaults
	Definition      *SessionDefinition // sets the session up; nil: none, or that of earlier uses of the session
}

// RetryPolicy limits the attempts of an activity.
type RetryPolicy struct {
	MaxAttempts  int             // 0: no limit
	Backoff      []time.Duration // before attempt 2, 3, …; the last one repeats; whole seconds, rounded up
	NonRetryable []string        // types of failures that end the activity at once
}

// SessionOptions are the options of a worker session. Zero values mean the defaults.
type SessionOptions struct {
	Queue         string        // task queue; empty: that of the activity
	Requirements  []string      // capabilities that the worker must have
	MaxActivities int           // activities in the session at once; 0: 1
	Lease         time.Duration // time after which a lost worker loses the session; 0: 2 minutes
	TTL           time.Duration // the session ends after it; 0: no TTL
	Idle          time.Duration // the session ends after this time without an activity; 0: never
	NoReacquire   bool          // no other worker acquires the session after its worker was lost
	// ReleasePolicy is applied when the session's worker is replaced by one of another release: "migrate" (default),
	// "finish" or "fail".
	ReleasePolicy string
	Pinned        bool // the worker never releases the session to make room for another one
	// FailFast limits the leases of the session and of its activities to 10 s, so that another worker acquires it within
	// 12 s after its worker was killed.
	FailFast bool
}

// SessionDefinition names the definition by which workers set a session up.
type SessionDefinition struct {
	Name      string // as registered by the workers
	Arguments Args   // of the set-up; those of the first use of the session apply
	// OnLost selects what happens when the session moves to another owner: "set_up" (default) runs the set-up there; with
	// "fail" the first activity there fails with the type SessionLost.
	OnLost string
}

// seconds rounds a duration up to whole seconds. Every negative duration stays negative, so that the app's limits
// refuse it.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	switch rest := d % time.Second; {
	case rest > 0:
		s++
	case rest < 0:
		s--
	}
	return s
}

// rawArgs returns arguments as a JSON envelope, encoded by the codecs; nil for none.
func (c *Client) rawArgs(args []any) (json.RawMessage, error) {
	if len(args) == 0 {
		return nil, nil
	}
	p, err := c.codecs.NewArgs(args...)
	if err == nil {
		p, err = c.codecs.EncodeArgs(p)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(p)
}

// rawValues returns the JSON object of a memo or of search attributes; nil for none.
func rawValues(name string, values map[string]any) (json.RawMessage, error) {
	if len(values) == 0 {
		return nil, nil
	}
	raw, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return raw, nil
}

// start returns the request of a start.
func (o StartOptions) start(c *Client, workflowType string, args []any) (in protocol.StartRequest, err error) {
	in = protocol.StartRequest{
		WorkflowID: o.WorkflowID, WorkflowType: workflowType, TaskQueue: o.Queue, BusinessKey: o.BusinessKey,
		ReusePolicy: string(o.ReusePolicy), ConflictPolicy: string(o.ConflictPolicy),
		ExecutionTimeout: seconds(o.ExecutionTimeout), RunTimeout: seconds(o.RunTimeout), StartDelay: seconds(o.Delay),
		Priority: o.Priority, FairnessKey: o.FairnessKey, FairnessWeight: o.FairnessWeight, BuildID: o.BuildID,
		IdempotencyKey: o.IdempotencyKey, Headers: o.Headers,
	}
	if in.Input, err = c.rawArgs(args); err != nil {
		return in, err
	}
	if in.Memo, err = rawValues("memo", o.Memo); err != nil {
		return in, err
	}
	in.SearchAttributes, err = rawValues("search attributes", o.SearchAttributes)
	return in, err
}

// request returns the request of an activity run.
func (o ActivityOptions) request(c *Client, activityType string, args []any) (in protocol.ActivityRequest, err error) {
	s, err := o.start(c, activityType, args)
	if err != nil {
		return in, err
	}
	in = protocol.ActivityRequest{
		WorkflowID: s.WorkflowID, ActivityType: activityType, TaskQueue: s.TaskQueue, Input: s.Input,
		StartDelay: s.StartDelay, Priority: s.Priority, FairnessKey: s.FairnessKey, FairnessWeight: s.FairnessWeight,
		Headers:     s.Headers,
		BusinessKey: s.BusinessKey, Memo: s.Memo, SearchAttributes: s.SearchAttributes, ReusePolicy: s.ReusePolicy,
		ConflictPolicy: s.ConflictPolicy, IdempotencyKey: s.IdempotencyKey,
	}
	in.ActivityOptions, err = o.activity(c)
	return in, err
}

// activity returns the options that concern the activity, not its run.
func (o ActivityOptions) activity(c *Client) (out protocol.ActivityOptions, err error) {
	out = protocol.ActivityOptions{
		RetryPolicy:     o.Retry.policy(),
		StartToClose:    protocol.Timeout(seconds(o.StartToClose)),
		ScheduleToStart: protocol.Timeout(seconds(o.ScheduleToStart)),
		ScheduleToClose: protocol.Timeout(seconds(o.ScheduleToClose)),
		Heartbeat:       protocol.Timeout(seconds(o.Heartbeat)),
		MaxBlamedLosses: o.MaxBlamedLosses, SessionID: o.SessionID, FailFast: o.SessionFailFast,
		FallbackAfter: seconds(o.SessionFallback), Requirements: o.Requirements,
	}
	if out.FallbackAfter != 0 {
		out.Affinity = "soft"
	}
	if o.Session != nil {
		out.WorkerSession = o.Session.wire(o.SessionID)
	}
	if d := o.Definition; d != nil {
		out.SessionDefinition = &protocol.ActivitySession{Name: d.Name, OnLost: d.OnLost}
		if out.SessionDefinition.Arguments, err = c.rawArgs(d.Arguments); err != nil {
			return out, fmt.Errorf("session definition: %w", err)
		}
	}
	return out, nil
}

// policy returns the policy of the protocol; nil for nil.
func (r *RetryPolicy) policy() *retry.Policy {
	if r == nil {
		return nil
	}
	p := &retry.Policy{NonRetryableErrorTypes: r.NonRetryable}
	if r.MaxAttempts != 0 {
		p.MaxAttempts = &r.MaxAttempts
	}
	for _, d := range r.Backoff {
		p.BackoffSeconds = append(p.BackoffSeconds, int(seconds(d)))
	}
	return p
}

// wire returns the options in the form of the protocol.
func (o *SessionOptions) wire(id string) *protocol.SessionOptions {
	s := &protocol.SessionOptions{
		SessionID: id, Queue: o.Queue, Requirements: o.Requirements, Lease: protocol.Count(seconds(o.Lease)),
		MaxActivities: protocol.Count(o.MaxActivities), Idle: seconds(o.Idle), ReleasePolicy: o.ReleasePolicy,
		Pinned: o.Pinned, FailFast: o.FailFast, TTL: protocol.NoTTL,
	}
	if o.TTL != 0 {
		s.TTL = protocol.TTL(seconds(o.TTL))
	}
	if o.NoReacquire {
		s.Reacquire = new(false)
	}
	return s
}

// Start starts a workflow. Without a workflow ID, Start generates one. It sends an Idempotency-Key: if the response of
// one app is lost and the client repeats the start at another app, no second run starts. If the ID is in use, the
// policies of the options decide what the start does; by default the app refuses it with ReasonWorkflowIDInUse.
//
// The function [Start] checks the types of the argument and of the result.
func (c *Client) Start(
	ctx context.Context, workflowType string, args []any, o StartOptions,
) (w *Workflow, err error) {
	err = c.interceptStart(ctx, workflow.OpStartWorkflow, workflowType, args, o, func(
		ctx context.Context, in protocol.StartRequest,
	) error {
		out, err := c.api.Start(ctx, in)
		if err != nil {
			return public(err)
		}
		w = c.Handle(out.WorkflowID, out.RunID)
		return nil
	})
	return ifNil(err, w)
}

// interceptStart sends a request that starts a workflow inside the interceptors of the client. send gets the request
// with the headers that the interceptors pass on; see Client.intercept.
func (c *Client) interceptStart(
	ctx context.Context, op workflow.Operation, workflowType string, args []any, o StartOptions,
	send func(ctx context.Context, in protocol.StartRequest) error,
) error {
	call := workflow.Call{Operation: op, Name: workflowType, WorkflowID: o.WorkflowID, Args: args}
	return c.intercept(ctx, call, o.Headers, func(ctx context.Context, headers map[string]string) error {
		o.Headers = headers
		in, err := o.start(c, workflowType, args)
		if err != nil {
			return err
		}
		return send(ctx, in)
	})
}

// ifNil returns a result, or only the error if there is one.
func ifNil[T any](err error, result *T) (*T, error) {
	if err != nil {
		return nil, err
	}
	return result, nil
}

// StartActivity starts an activity run: one activity without a workflow. The app stores it, retries it by its retry
// policy, and runs it in a session if the options name one. The returned handle can wait for the result, and can
// describe, cancel and terminate the run. The app refuses signals, updates and queries to it with ReasonActivityRun.
// Workflow IDs follow the same rules as in Start.
func (c *Client) StartActivity(
	ctx context.Context, activityType string, args []any, o ActivityOptions,
) (w *Workflow, err error) {
	call := workflow.Call{
		Operation: workflow.OpStartActivity, Name: activityType, WorkflowID: o.WorkflowID, Args: args,
	}
	err = c.intercept(ctx, call, o.Headers, func(ctx context.Context, headers map[string]string) error {
		o.Headers = headers
		in, err := o.request(c, activityType, args)
		if err != nil {
			return err
		}
		out, err := c.api.StartActivity(ctx, in)
		if err != nil {
			return public(err)
		}
		w = c.Handle(out.WorkflowID, out.RunID)
		return nil
	})
	return ifNil(err, w)
}

// StartAndWait is Start and [Workflow.Wait], in one request if the workflow ends within a minute. If the response is
// lost, it repeats the request with its Idempotency-Key, so it starts no second run.
//
// With an error, the returned run has only its IDs: none if the run was not started, and no run ID if it may have been.
func (c *Client) StartAndWait(
	ctx context.Context, workflowType string, args []any, o StartOptions,
) (run RunInfo, err error) {
	err = c.interceptStart(ctx, workflow.OpStartWorkflow, workflowType, args, o, func(
		ctx context.Context, in protocol.StartRequest,
	) error {
		v, target, err := apiclient.StartAndWait[runView](ctx, c.api, in)
		if run = c.decoded(v.RunInfo); err != nil {
			run = RunInfo{WorkflowID: target.WorkflowID, RunID: target.RunID}
		}
		return public(err)
	})
	return run, err
}

// Execute is StartAndWait and decodes the result into out, unless nil. If the workflow did not complete, the error is a
// *NotCompleted.
func (c *Client) Execute(ctx context.Context, workflowType string, args []any, out any, o StartOptions) error {
	v, err := c.StartAndWait(ctx, workflowType, args, o)
	if err != nil {
		return err
	}
	return decodeResult(v, out)
}
