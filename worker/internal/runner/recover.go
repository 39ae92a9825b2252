package runner

import (
	"context"
	"errors"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// A session's state in memory is lost when its executor ends, although the worker still holds the session. If the
// attempt failed, the loss would use up one of the activity's attempts, although a rebuild activity can restore the
// state. Therefore the worker restores it within the attempt, under the same lease, and history records the rebuild.

// recovering is the hook that runs the rebuild activity of the recovery policy and then the activity again, within the
// same attempt, session and epoch. The recovery policy of the rebuild activity itself is ignored.
func recovering(a *attempt, next call) call {
	return func(ctx context.Context) (payload.Payload, error) {
		if a.session == nil {
			return next(ctx)
		}
		// Read the count before the code runs. If another attempt in the session rebuilds the state from now on,
		// singleflight makes this attempt use that rebuild.
		seen := a.session.Rebuilds()
		a.rebuilds = seen
		result, err := next(ctx)
		if !errors.Is(err, activity.ErrSessionLost) {
			return result, err
		}
		policy := a.policy(ctx)
		if policy == nil {
			if a.task.Session.Definition != "" { // the set-up of the session creates the state
				a.executorEnded = nil
			}
			if a.executorEnded == nil {
				return result, err
			}
			// The executor ended before the call began. Another attempt may have rebuilt the state; otherwise the call is
			// returned to the app, since it must not fail because of an earlier call.
			if a.session.AwaitRebuild(ctx, seen) {
				a.executorEnded = nil
				return next(ctx)
			}
			return result, a.executorEnded
		}
		waited := 0
		for tries := 0; errors.Is(err, activity.ErrSessionLost) && tries < policy.Retries() && ctx.Err() == nil; tries++ {
			cause, reason := protocol.ErrorText(err.Error()), a.lostReason()
			own := false
			rebuild := func(ctx context.Context) error { own = true; return a.rebuildState(ctx, policy) }
			a.recovered = &protocol.Recovered{
				SetUp:   a.ranSetUp(),
				Rebuild: policy.RebuildActivity, Cause: cause, Reason: reason, Retries: tries, Waited: waited,
				Outcome: protocol.RebuildFailed,
			}
			// Report the rebuild before it begins: if the worker dies during the rebuild, history still contains it.
			a.reportOutcome(protocol.RebuildRunning)
			failed := a.session.Rebuild(ctx, seen, policy.Shared(), rebuild)
			if !own {
				waited++
				a.recovered.Waited = waited
			}
			if failed != nil {
				if ctx.Err() != nil {
					a.recovered.Outcome = protocol.RebuildCancelled
				}
				a.log.Warn().Str("error", protocol.ErrorText(failed.Error())).Str("session_id", a.session.ID).
					Str("rebuild_activity", policy.RebuildActivity).
					Msg("failed to rebuild session state")
				return payload.Payload{}, failed
			}
			seen = a.session.Rebuilds()
			a.recovered.Retries, a.recovered.Outcome = tries+1, protocol.Rebuilt
			a.reportOutcome(protocol.Rebuilt)
			a.log.Info().Str("session_id", a.session.ID).Int64("epoch", a.session.Epoch).Str("cause", cause).
				Msg("session state rebuilt; retrying the activity")
			result, err = next(ctx)
		}
		return result, err
	}
}

// ranSetUp returns the report of the set-up that ran earlier in this attempt; nil if none did.
func (a *attempt) ranSetUp() *protocol.SetUp {
	if a.recovered == nil {
		return nil
	}
	return a.recovered.SetUp
}

// policy returns the recovery policy of the activity, or nil: the policy of its registration, or the policy that its
// handler file exports. A policy that cannot be decoded is ignored.
func (a *attempt) policy(ctx context.Context) *activity.SessionRecoveryPolicy {
	if a.def != nil {
		return a.def.Options.Recovery
	}
	raw, err := a.r.opt.Executors.Exported(ctx, a.task.ActivityType, "recovery")
	if err == nil && raw == nil {
		return nil
	}
	var p *activity.SessionRecoveryPolicy
	if err == nil {
		p, err = activity.ParseRecovery(a.task.ActivityType, raw)
	}
	if err != nil {
		a.log.Error().Err(err).Msg("invalid recovery policy of a handler; calls run without recovery")
		return nil
	}
	return p
}

// reportOutcome reports the progress of the rebuild to the app.
func (a *attempt) reportOutcome(outcome string) {
	now := *a.recovered
	now.Outcome = outcome
	a.reportRebuild(&now)
}

// reportRebuild reports the progress of a rebuild or a set-up to the app.
func (a *attempt) reportRebuild(r *protocol.Recovered) { a.beats.reportRebuild(*r) }

// lostReason returns why the state was lost, as one of protocol.LostReasons: the end of the executor, or missing_state
// if only the activity's code reported the loss.
func (a *attempt) lostReason() string {
	reason := "missing_state"
	if a.lost != "" {
		reason = a.lost
	}
	a.lost = ""
	return reason
}

// rebuildState runs the rebuild activity with the arguments of the activity whose state is missing. It receives as many
// of them as it has parameters.
func (a *attempt) rebuildState(ctx context.Context, policy *activity.SessionRecoveryPolicy) error {
	name := policy.RebuildActivity
	if a.def == nil {
		return a.rebuildHandler(ctx, name, max(1, policy.RebuildArguments))
	}
	def, ok := a.r.opt.Definitions.FindActivity(name)
	if !ok {
		return activity.NewError("RebuildNotRegistered", "rebuild activity "+name+" is not registered here")
	}
	a.rebuild = true // the executor may start again for this epoch, since the rebuild restores its state
	defer func() { a.rebuild = false }()
	if def.Options.Isolated && !a.r.opt.InProcess {
		_, err := a.run(ctx, name, def, a.task.Arguments) // the executor omits surplus arguments; see InvokeRebuild
		return err
	}
	_, err := InvokeRebuild(activity.NewContext(ctx, runtime{a}), def, a.task.Arguments)
	return err
}

// rebuildHandler runs a rebuild activity that is a handler. It must have the same runtime as the activity's handler,
// because each runtime has its own state in a session. It receives the first arguments of the activity whose state is
// missing, encoded as in a direct call with that many arguments: as a list only if there are several.
func (a *attempt) rebuildHandler(ctx context.Context, name string, arguments int) error {
	mine, _ := a.r.opt.Executors.Has(a.task.ActivityType)
	if theirs, ok := a.r.opt.Executors.Has(name); !ok || theirs != mine {
		return activity.NewError("RebuildNotRegistered", "rebuild activity "+name+" is no "+mine+" handler of this worker")
	}
	a.rebuild = true
	defer func() { a.rebuild = false }()
	args, err := firstArguments(a.task.Arguments, arguments)
	if err != nil {
		return err
	}
	_, err = a.run(ctx, name, nil, args)
	return err
}

// firstArguments returns the first n arguments. If args is not a list, it returns args unchanged.
func firstArguments(args payload.Payload, n int) (payload.Payload, error) {
	all, err := payload.Args(args)
	if err != nil || len(all) <= n {
		return args, nil //nolint:nilerr // the handler receives them as they are, as in a direct call
	}
	first := make([]any, n)
	for i := range first {
		first[i] = all[i]
	}
	return payload.EncodeArgs(first...)
}

// InvokeRebuild runs a rebuild activity with the arguments of the activity that reported the missing state. The rebuild
// activity receives as many of them as it has parameters.
func InvokeRebuild(ctx context.Context, def *activity.Definition, args payload.Payload) (payload.Payload, error) {
	for {
		result, err := activitywire.Invoke(ctx, def, args, nil)
		// The error about the number of arguments occurs before the code runs.
		if !errors.Is(err, payload.ErrArgumentCount) {
			return result, err
		}
		all, bad := payload.Args(args)
		if bad != nil || len(all) == 0 {
			return result, err
		}
		if args, bad = firstArguments(args, len(all)-1); bad != nil {
			return result, err
		}
	}
}
