package workflowtest

import (
	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// CompleteAwakeable delivers the result of an awakeable, as client.CompleteAwakeable does. The error is the app's
// refusal.
func (e *Env) CompleteAwakeable(id string, result any) error {
	e.t.Helper()
	raw, err := e.encodedResult(result)
	if err != nil {
		return err
	}
	return e.resolveAwakeable(protocol.AwakeableRequest{
		AwakeableID: id, ExternalOutcome: protocol.ExternalOutcome{Result: raw},
	})
}

// FailAwakeable fails an awakeable, as client.FailAwakeable does. The error is the app's refusal.
func (e *Env) FailAwakeable(id string, failure error) error {
	e.t.Helper()
	f, err := e.codecs().EncodeFailure(activitywire.FailureOf(failure))
	if err != nil {
		return err
	}
	return e.resolveAwakeable(protocol.AwakeableRequest{
		AwakeableID: id, ExternalOutcome: protocol.ExternalOutcome{Failure: f},
	})
}

func (e *Env) resolveAwakeable(in protocol.AwakeableRequest) error {
	_, err := e.server.Broker().ResolveAwakeable(e.ctx, in)
	return err
}
