package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// CompleteAwakeable delivers the result of an awakeable to its workflow; see workflow.Awakeable for the ID. Delivering
// the same result again has no effect. If the awakeable has ended otherwise, the reason of the error is
// ReasonAwakeableResolved (another result or a failure was delivered) or ReasonAwakeableClosed (it timed out, was
// cancelled, or its run closed or continued as new).
//
// Results are compared in their encoded form. A codec that encrypts encodes the same result differently each time, so
// a second call is then refused with ReasonAwakeableResolved.
func (c *Client) CompleteAwakeable(ctx context.Context, id string, result any) error {
	p, err := c.codecs.NewValue(result)
	if err == nil {
		p, err = c.codecs.EncodeValue(p)
	}
	if err != nil {
		return err
	}
	in := struct {
		Result payload.Payload `json:"result"`
	}{p}
	return c.resolveAwakeable(ctx, id, "complete", in)
}

// FailAwakeable fails an awakeable: its workflow receives an error with the message of failure and, if failure is an
// activity.Error, its type and details. Repetitions are handled as by CompleteAwakeable.
func (c *Client) FailAwakeable(ctx context.Context, id string, failure error) error {
	f, err := c.codecs.EncodeFailure(activitywire.FailureOf(failure))
	if err != nil {
		return err
	}
	in := struct {
		Failure *protocol.Failure `json:"failure"`
	}{f}
	return c.resolveAwakeable(ctx, id, "fail", in)
}

// maxAwakeableID is the maximum length of the ID of an awakeable, as of the IDs of sessions and workflows.
const maxAwakeableID = 255

func (c *Client) resolveAwakeable(ctx context.Context, id, verb string, in any) error {
	if id == "" || len(id) > maxAwakeableID {
		return public(protocol.Invalid("awakeable_id", "must be 1 to %d bytes", maxAwakeableID))
	}
	if err := protocol.CheckName("awakeable_id", id); err != nil {
		return public(err)
	}
	return c.Call(ctx, http.MethodPost, "/api/sojourn/awakeables/"+url.PathEscape(id)+"/"+verb, in, nil)
}
