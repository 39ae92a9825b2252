package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
)

// isolatedActivities registers the isolated activities and session definitions of a registry for executors of this
// binary. Pass it to sandbox.Main.
func isolatedActivities(r *Registry) func(sandbox.Handlers) {
	return func(h sandbox.Handlers) {
		for _, name := range r.ActivityTypes() {
			def, _ := r.FindActivity(name)
			if def.Options.Isolated {
				h[name] = isolated(def)
			}
		}
		for _, name := range r.SessionDefinitions() {
			if def := r.sessions[name]; def.Isolated() {
				h[sandbox.SessionPrefix+name] = isolatedSetUp(def)
			}
		}
	}
}

func isolated(def *activity.Definition) sandbox.Handler {
	return func(ctx context.Context, inv sandbox.Invocation) ([]byte, error) {
		args := payload.Payload{Blob: string(inv.Input)}
		of := activity.NewContext(ctx, inside{inv, sandbox.CallOf(ctx)})
		var result payload.Payload
		var err error
		if inv.Keys[runner.KeyRebuild] != "" {
			result, err = runner.InvokeRebuild(of, def, args)
		} else {
			result, err = activitywire.Invoke(of, def, args, nil) // the worker applies the codecs outside of the executor
		}
		if err != nil {
			return nil, outward(ctx, inv, err)
		}
		return []byte(result.Blob), nil
	}
}

// isolatedSetUp runs the set-up of a session in its executor.
func isolatedSetUp(def *runner.SessionDefinition) sandbox.Handler {
	return func(ctx context.Context, inv sandbox.Invocation) ([]byte, error) {
		rt := inside{inv, sandbox.CallOf(ctx)}
		args := payload.Payload{Blob: string(inv.Input)}
		if def.Snapshots() && inv.Entry != "" {
			result, err := def.InvokeSnapshot(activity.NewContext(ctx, rt), inv.Entry, rt.State(), args)
			if err != nil {
				return nil, outward(ctx, inv, err)
			}
			return []byte(result.Blob), nil
		}
		err := def.SetUp(activity.NewContext(ctx, rt), args, rt.State(), func(err error) {
			fmt.Fprintf(os.Stderr, "failed to tear down a session with the definition %s: %v\n", def.Name, err)
		})
		if err != nil {
			return nil, outward(ctx, inv, err)
		}
		none, err := payload.Encode(nil)
		return []byte(none.Blob), err
	}
}

// inside implements the context of activity code in an executor.
type inside struct {
	inv  sandbox.Invocation
	call *sandbox.Call
}

func (i inside) Info() activity.AttemptInfo {
	k := i.inv.Keys
	return activity.AttemptInfo{
		Namespace: k["namespace"], WorkflowID: k["workflow_id"], RunID: k["run_id"], TaskID: k["task_id"],
		ActivityType: i.inv.Activity,
		Queue:        k["task_queue"], ExecutionID: k["activity_execution_id"], AttemptID: k["attempt_id"],
		IdempotencyKey: k["activity_execution_id"],
		Attempt:        i.inv.Attempt, WorkerID: k["worker_id"], Deadline: i.inv.Deadline,
	}
}

func (i inside) Session() *activity.SessionInfo {
	if i.inv.Session == nil {
		return nil
	}
	return &activity.SessionInfo{ID: i.inv.Session.ID, Epoch: i.inv.Session.Epoch, IsNew: i.call.IsNew}
}

// SetUpElsewhere returns an error text if the session has a definition whose set-up did not run in this executor; empty
// otherwise. State calls it when it finds no result of a set-up.
func (i inside) SetUpElsewhere() string {
	name := i.inv.Keys[runner.KeyDefinition]
	if name == "" {
		return ""
	}
	return "the set-up of session definition " + name + " ran in another process; set Isolated in its registration"
}

// stateKey is the key of the activity state in an executor's session.
const stateKey = "sojourn.activity.state"

func (i inside) State() *activity.SessionValues {
	s := i.call.Session()
	if s == nil {
		return nil
	}
	v, _ := s.GetOrCreate(context.Background(), stateKey, func(context.Context) (any, error) {
		state := activity.NewSessionValues()
		s.OnClose(func(context.Context) { state.Close() })
		return state, nil
	})
	state, _ := v.(*activity.SessionValues)
	return state
}

func (i inside) Log(level, text string) { i.call.Log(level, "%s", text) }

func (i inside) Heartbeat(progress json.RawMessage) {
	if progress == nil {
		i.call.Heartbeat()
		return
	}
	i.call.Progress(progress)
}

// LastHeartbeat returns the heartbeat details of the previous attempt, which the worker sent with the call.
func (i inside) LastHeartbeat() json.RawMessage {
	var h protocol.LastHeartbeat
	if len(i.inv.LastHeartbeat) == 0 || json.Unmarshal(i.inv.LastHeartbeat, &h) != nil {
		return nil
	}
	return h.Details
}

// Headers returns the headers of the activity, which the worker sent with the call.
func (i inside) Headers() (h map[string]string) {
	if len(i.inv.Headers) > 0 {
		_ = json.Unmarshal(i.inv.Headers, &h) // the worker encoded them
	}
	return h
}

// outward converts the error of an activity to the error types that an executor can send to its worker.
func outward(ctx context.Context, inv sandbox.Invocation, err error) error {
	if errors.Is(err, activity.ErrSessionLost) && inv.Session != nil {
		return &sandbox.SessionLost{
			Session: inv.Session.ID, EpochRequested: inv.Session.Epoch, EpochNow: inv.Session.Epoch,
			Cause:   sandbox.CauseDeclared,
			Message: err.Error(),
		}
	}
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return err
	}
	f := activitywire.FailureOf(err)
	return &sandbox.Error{
		Type: sandbox.UserError, Class: f.Type, Message: f.Message, Stack: f.StackTrace, Retryable: !f.NonRetryable,
		Details: f.Details,
		Denied:  sandbox.DeniedPath(err),
	}
}
