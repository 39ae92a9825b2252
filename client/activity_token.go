package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// CompleteActivity reports the result of an activity that returned activity.ErrPending, by the token of its
// attempt; see activity.Token. Reporting the same result again has no effect. The reason of the error is
// ReasonAttemptResolved if another outcome was reported before, and ReasonAttemptEnded if the attempt has ended
// otherwise: it timed out, its workflow cancelled it, or the run closed.
//
// Results are compared in their encoded form. A codec that encrypts encodes the same result differently each time, so
// a second call is then refused with ReasonAttemptResolved.
func (c *Client) CompleteActivity(ctx context.Context, token string, result any) error {
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
	return c.callActivity(ctx, token, "complete", in, nil)
}

// FailActivity reports that an attempt failed, as if the activity had returned failure: its retry policy decides
// whether another attempt follows, which has another token. Repetitions are handled as by CompleteActivity. A
// failure that matches context.Canceled ends an activity whose workflow has asked it to stop.
func (c *Client) FailActivity(ctx context.Context, token string, failure error) error {
	f, err := c.codecs.EncodeFailure(activitywire.FailureOf(failure))
	if err != nil {
		return err
	}
	in := struct {
		Failure *protocol.Failure `json:"failure"`
	}{f}
	return c.callActivity(ctx, token, "fail", in, nil)
}

// HeartbeatActivity reports that the work of an attempt proceeds. It restarts the heartbeat timeout of the attempt. The
// next attempt receives details, a value with a JSON form; nil does not change them. cancelled is true if the workflow
// asks the attempt to stop: then report a failure that matches context.Canceled.
func (c *Client) HeartbeatActivity(ctx context.Context, token string, details any) (cancelled bool, err error) {
	var in protocol.HeartbeatMembers
	if details != nil {
		if in.Details, err = json.Marshal(details); err != nil {
			return false, fmt.Errorf("heartbeat details: %w", err)
		}
	}
	var out protocol.ActivityHeartbeatReceipt
	err = c.callActivity(ctx, token, "heartbeat", in, &out)
	return out.CancelRequested, err
}

// maxToken is the maximum length of the token of an attempt.
const maxToken = 255

func (c *Client) callActivity(ctx context.Context, token, verb string, in, out any) error {
	if token == "" || len(token) > maxToken {
		return public(protocol.Invalid("activity_token", "must be 1 to %d bytes", maxToken))
	}
	if err := protocol.CheckName("activity_token", token); err != nil {
		return public(err)
	}
	return c.Call(ctx, http.MethodPost, "/api/sojourn/activities/"+url.PathEscape(token)+"/"+verb, in, out)
}
