package activity

import (
	"context"
	"fmt"
	"time"
)

// SessionDefinition creates and releases the state of sessions. A workflow names the definition with
// workflow.SessionDefinition; only workers that registered it acquire the session. The worker calls SetUp once in each
// epoch, before the first activity of the session, and activities receive its result from State.
type SessionDefinition struct {
	// SetUp is func(context.Context, args…) (T, error), with the arguments that the workflow passed at the first use of
	// the session. Its context belongs to the activity that triggered the set-up: Session, Heartbeat and Logger work as
	// in an activity. The time of the set-up does not count towards the StartToClose timeout of the activity.
	SetUp any
	// TearDown is func(context.Context, T) error, or without a result. The worker calls it after releasing or losing
	// the session, when no activity runs in it, and waits for it for up to 10 seconds. nil: no call. A process that is
	// killed does not call it.
	TearDown any
	// SetUpTimeout is the timeout of SetUp: its context ends, and the set-up fails; 0: 10 minutes.
	SetUpTimeout time.Duration
	// OnFailure selects what happens when the set-up fails; empty: FailActivity.
	OnFailure SetUpFailurePolicy
	// HandOver selects how sessions move from a draining worker to another one; empty: HandOverRelease.
	HandOver HandOver
	// Resources are amounts of the worker's resources that a session uses unless its options set them, as quantities:
	// {"gpu_mem": "24GiB"}.
	Resources map[string]string
	// OnHandOver is func(context.Context, T) ([]byte, error). It returns a snapshot of the state for the next owner, and
	// must not change the state. The worker calls it before it releases the session or hands it over, when no activity
	// runs in the session, and waits for the snapshot-timeout of the worker (30 seconds). nil: the state does not move.
	OnHandOver any
	// Restore is func(context.Context, T, []byte) error. The worker calls it after SetUp with the snapshot of the previous
	// owner, before the first activity. If it fails, the state is lost: SetUp runs again, or, with the workflow's option
	// OnLost, the activity fails with ErrSessionLost. Required with OnHandOver.
	Restore any
	// Isolated runs SetUp and TearDown in the executor of the session, for isolated activities: they find the state, and
	// other activities of the worker do not.
	Isolated bool
}

// SetUpFailurePolicy selects what happens when a set-up fails.
type SetUpFailurePolicy string

// With FailActivity the attempt fails with the error of the set-up, and the activity's retry policy applies; the next
// attempt runs the set-up again. With TryAnotherWorker the worker releases the session and returns the task; the app
// offers the session to another worker first.
const (
	FailActivity     SetUpFailurePolicy = "fail_activity"
	TryAnotherWorker SetUpFailurePolicy = "try_another_worker"
)

// HandOver selects how sessions move from a draining worker to another one.
type HandOver string

// With HandOverRelease the draining worker releases the session, and the next owner sets it up while its tasks wait.
// With HandOverPrepare the next owner sets it up first: SetUp may run while another worker holds the session. Use it
// for state that may exist twice, such as a model or a browser, but not for a device or a lock.
const (
	HandOverRelease HandOver = "release"
	HandOverPrepare HandOver = "prepare"
)

// TypeStateElsewhere is the type of the error of State if the set-up of the session ran in another process.
const TypeStateElsewhere = "SessionStateElsewhere"

// State returns what the set-up of the attempt's session returned. If the session has no definition, or the value has
// another type, the error is ErrSessionLost. If the set-up ran in another process, because only the definition or only
// the activity is isolated, the error has the type TypeStateElsewhere and is not retried.
func State[T any](ctx context.Context) (T, error) {
	var zero T
	v, ok := SessionState(ctx).SetUpResult()
	if rt, here := FromContext(ctx); !ok && here {
		if elsewhere, known := rt.(interface{ SetUpElsewhere() string }); known && elsewhere.SetUpElsewhere() != "" {
			return zero, NewError(TypeStateElsewhere, elsewhere.SetUpElsewhere(), NonRetryable)
		}
	}
	if !ok {
		return zero, SessionLost("the session has no state: no set-up by a definition ran in it")
	}
	t, ok := v.(T)
	if !ok {
		return zero, SessionLost(fmt.Sprintf("the set-up of the session returned %T, not %T", v, zero))
	}
	return t, nil
}
