package apiclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// idempotencyKey returns the Idempotency-Key of a start request, or "" for any other request.
func idempotencyKey(in any) string {
	switch in := in.(type) {
	case protocol.StartRequest:
		return in.IdempotencyKey
	case protocol.ActivityRequest:
		return in.IdempotencyKey
	case protocol.SignalWithStartRequest:
		return in.IdempotencyKey
	case protocol.UpdateWithStartRequest:
		return in.IdempotencyKey
	}
	return ""
}

// checkKey rejects an Idempotency-Key that the app would reject, or that a header cannot contain.
func checkKey(key string) error {
	switch {
	case len(key) > protocol.MaxIdempotencyKey:
		return protocol.Invalid(
			protocol.HeaderIdempotencyKey, "must be one value of 1 to %d bytes", protocol.MaxIdempotencyKey,
		)
	case !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl):
		return protocol.Invalid(
			protocol.HeaderIdempotencyKey, "is not printable text; send printable ASCII characters, for example a UUID",
		)
	}
	return nil
}

// identify generates the workflow ID and the Idempotency-Key of a start that lacks them. An app of a release that
// ignores the key recognizes a repeated request by the generated workflow ID.
func identify(id, key, duplicate *string, conflict string) {
	if *id == "" {
		*id = ulid.Make().String()
		if conflict == "" {
			*duplicate = protocol.ConflictUseExisting
		}
	}
	if *key == "" {
		*key = ulid.Make().String()
	}
}

// Identify generates the workflow ID and the Idempotency-Key of a start that lacks them.
func Identify(in *protocol.StartRequest) {
	identify(&in.WorkflowID, &in.IdempotencyKey, &in.DuplicatePolicy, in.ConflictPolicy)
}

// RequestID returns a new request ID. An app that receives a request twice applies it once, by this ID.
func RequestID() string { return "client-" + ulid.Make().String() }

// Start starts a workflow. It generates the workflow ID and the Idempotency-Key if they are empty.
func (c *Client) Start(ctx context.Context, in protocol.StartRequest) (out protocol.StartResponse, err error) {
	Identify(&in)
	return out, c.Call(ctx, http.MethodPost, "/api/workflows", in, &out)
}

// StartActivity starts an activity run, with the rules of Start.
func (c *Client) StartActivity(
	ctx context.Context, in protocol.ActivityRequest,
) (out protocol.ActivityResponse, err error) {
	identify(&in.WorkflowID, &in.IdempotencyKey, &in.DuplicatePolicy, in.ConflictPolicy)
	return out, c.Call(ctx, http.MethodPost, "/api/sojourn/activities", in, &out)
}

// retryTime is how long a call that waits for a result is retried while no app responds.
const retryTime = time.Minute

// outage stores since when no app has responded to a call that is being retried; zero while an app responds.
type outage struct{ since time.Time }

// final returns the error with which a call must fail after err, or nil if the call must be retried.
func (o *outage) final(ctx context.Context, c *Client, err error) error {
	var unreachable *Unreachable
	switch {
	case err == nil:
		o.since = time.Time{}
	case ctx.Err() != nil, protocol.ReasonOf(err) != "",
		// no app ever responded: the URL may be wrong
		errors.As(err, &unreachable) && !c.responded.Load() && o.since.IsZero():
		return err
	case o.since.IsZero():
		o.since = time.Now()
	case time.Since(o.since) >= retryTime:
		return fmt.Errorf("%w; no response for %s", err, time.Since(o.since).Truncate(time.Second))
	}
	return nil
}

// pause waits for nextTry or for the end of ctx.
func pause(ctx context.Context, nextTry <-chan time.Time) error {
	select {
	case <-nextTry:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RunPath returns the path of a run below root; without a run ID, of the current run.
func RunPath(root string, t protocol.Target) string {
	p := root + "/workflows/" + url.PathEscape(t.WorkflowID)
	if t.RunID != "" {
		p += "/runs/" + url.PathEscape(t.RunID)
	}
	return p
}

// RunView is a view of a run that responses are decoded into.
type RunView[V any] interface {
	*V
	// IsClosed reports whether the run has closed.
	IsClosed() bool
	// Target identifies the run.
	Target() protocol.Target
}

// Wait waits until the run and all runs that it continues as have closed, and returns the last of them without its
// input. If no app responds, Wait retries for a minute; this does not affect the run.
func Wait[V any, P RunView[V]](ctx context.Context, c *Client, t protocol.Target) (V, error) {
	var out outage
	path := RunPath("/api/sojourn", t) + "/result?wait_seconds=60"
	for {
		var v V
		// wait a second between requests: an app that is stopping responds immediately
		nextTry := time.After(time.Second)
		err := protocol.CheckTarget(t)
		if err == nil {
			err = c.Call(ctx, http.MethodGet, path, nil, &v)
		}
		if err == nil && P(&v).IsClosed() {
			return v, nil
		}
		if err = out.final(ctx, c, err); err != nil {
			return v, err
		}
		if err = pause(ctx, nextTry); err != nil {
			return v, err
		}
	}
}

// StartAndWait is Start and Wait, in one request if the workflow ends within a minute. If the response is lost, it
// repeats the request with its Idempotency-Key, so it starts no second run.
//
// With an error, target has the IDs that are known: none if the run was not started, and no run ID if it may have been.
func StartAndWait[V any, P RunView[V]](
	ctx context.Context, c *Client, in protocol.StartRequest,
) (v V, target protocol.Target, err error) {
	Identify(&in)
	in.WaitSeconds = 60
	if err := in.Check(); err != nil {
		return v, target, err
	}
	var sent atomic.Bool // true once a connection was open: an app may have received the request
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	for out := (outage{}); ; {
		var started V
		nextTry := time.After(time.Second)
		err := c.atAnyApp(ctx, func(base string) error {
			return c.request(traced, http.MethodPost, base+"/api/workflows", in, &started)
		})
		switch {
		case err == nil && P(&started).IsClosed():
			return started, P(&started).Target(), nil
		case err == nil:
			target = P(&started).Target()
			v, err = Wait[V, P](ctx, c, target)
			return v, target, err
		// an app refused the request, or the URL may be wrong
		case protocol.ReasonOf(err) != "", !sent.Load() && !c.responded.Load():
			return v, target, err
		}
		if err = out.final(ctx, c, err); err == nil {
			err = pause(ctx, nextTry)
		}
		if err != nil {
			return v, protocol.Target{WorkflowID: in.WorkflowID}, err
		}
	}
}

// NotCompleted returns the text of the error for a run that closed without a result. why is its failure or reason.
func NotCompleted(t protocol.Target, status, why string) string {
	if why != "" {
		why = ": " + why
	}
	return fmt.Sprintf("%s, run %s: %s%s", t.WorkflowID, t.RunID, status, why)
}
