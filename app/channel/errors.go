package channel

import (
	"errors"
	"maps"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
)

// refusal puts a refusal of the app, or of its store, into the words of the wire. Other errors stay as they are: the
// caller learns no more than that something failed.
func refusal(err error) error {
	var e *protocol.Error
	if !errors.As(store.Refusal(err), &e) {
		return err
	}
	if e.Reason.Away() { // the words of the HTTP worker protocol
		e = protocol.Refuse(protocol.ReasonBackendUnavailable, "%s", e.Message).With("outcome", "unknown").With(
			"retryable", true,
		).With("retry_after_seconds", 1)
	}
	r := rpc.Errorf(string(e.Reason), e.Reason.Status(), "%s", e.Message)
	r.Details = maps.Clone(e.Details)
	if len(e.Fields) > 0 {
		if r.Details == nil {
			r.Details = map[string]any{}
		}
		r.Details["errors"] = e.Fields
	}
	return r
}
