package workflowtest

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// CompleteAwakeable delivers the result of an awakeable, as client.CompleteAwakeable does. The error is the app's
// refusal.
func (e *Env) CompleteAwakeable(id string, result any) error {
	e.t.Helper()
	chain := e.codecs()
	p, err := chain.NewValue(result)
	if err == nil {
		p, err = chain.EncodeValue(p)
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return e.resolveAwakeable(protocol.AwakeableRequest{AwakeableID: id, Result: raw})
}

// FailAwakeable fails an awakeable, as client.FailAwakeable does. The error is the app's refusal.
func (e *Env) FailAwakeable(id string, failure error) error {
	e.t.Helper()
	f, err := e.codecs().EncodeFailure(activitywire.FailureOf(failure))
	if err != nil {
		return err
	}
	return e.resolveAwakeable(protocol.AwakeableRequest{AwakeableID: id, Failure: f})
}

func (e *Env) resolveAwakeable(in protocol.AwakeableRequest) error {
	_, err := e.server.Broker().ResolveAwakeable(e.ctx, in)
	return err
}
