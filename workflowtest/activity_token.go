package workflowtest

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// CompleteActivity reports the result of an activity that returned activity.ErrPending, as client.CompleteActivity
// does. The error is the app's refusal.
func (e *Env) CompleteActivity(token string, result any) error {
	e.t.Helper()
	raw, err := e.encodedResult(result)
	if err != nil {
		return err
	}
	return e.resolveActivity(token, protocol.ExternalOutcome{Result: raw})
}

// FailActivity reports that an attempt of such an activity failed, as client.FailActivity does. The error is the app's
// refusal.
func (e *Env) FailActivity(token string, failure error) error {
	e.t.Helper()
	f, err := e.codecs().EncodeFailure(activitywire.FailureOf(failure))
	if err != nil {
		return err
	}
	return e.resolveActivity(token, protocol.ExternalOutcome{Failure: f})
}

// HeartbeatActivity sends a heartbeat of such an activity with a value for its next attempt, nil for none, as
// client.HeartbeatActivity does. cancelled is true if the workflow asks the activity to stop.
func (e *Env) HeartbeatActivity(token string, details any) (cancelled bool, err error) {
	e.t.Helper()
	in := protocol.ActivityHeartbeatRequest{Token: token}
	if details != nil {
		if in.Details, err = json.Marshal(details); err != nil {
			return false, err
		}
	}
	out, err := e.server.Broker().HeartbeatActivity(e.ctx, in)
	return out.CancelRequested, err
}

func (e *Env) resolveActivity(token string, outcome protocol.ExternalOutcome) error {
	_, err := e.server.Broker().ResolveActivity(e.ctx, protocol.ActivityOutcomeRequest{
		Token: token, ExternalOutcome: outcome,
	})
	return err
}

// encodedResult returns a value as an envelope, encoded by the codecs of the test.
func (e *Env) encodedResult(result any) (json.RawMessage, error) {
	chain := e.codecs()
	p, err := chain.NewValue(result)
	if err == nil {
		p, err = chain.EncodeValue(p)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(p)
}
