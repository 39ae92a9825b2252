// Package apiclient sends requests to the HTTP API of apps, in the types of the protocol, and repeats them at another
// app.
//
// A Client is safe for concurrent use. An error response is a *protocol.Error with its reason.
package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/internal/mask"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// patience is the timeout of one HTTP request: the longest time that an app delays a response, plus the time to send
// it.
const patience = 90 * time.Second

// maxAnswer is the maximum size of a response body, in bytes.
const maxAnswer = 64 << 20

// Options configures a client.
type Options struct {
	URLs      []string     // URLs of apps that share one database; the client uses the first app that responds
	Token     string       // API token; empty: requests contain no token
	Namespace string       // default: "default"
	HTTP      *http.Client // default: http.DefaultClient
	// Warned is called with the warnings of a response, for example about request members that the app does not know.
	// It may be called by several goroutines at once. nil: warnings are dropped.
	Warned func([]protocol.Warning)
}

// Client calls the API of an app.
type Client struct {
	opt       Options
	responded atomic.Bool // true once any app has responded, with any status
}

// New creates a client. It sends no request.
func New(o Options) (*Client, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("client: the URL of an app is missing")
	}
	if o.HTTP == nil {
		o.HTTP = http.DefaultClient
	}
	o.URLs = slices.Clone(o.URLs)
	for i, base := range o.URLs {
		o.URLs[i] = strings.TrimRight(base, "/")
	}
	return &Client{opt: o}, nil
}

// Call sends one API request to the first app that responds. If in is not nil, it is encoded as the request body; if
// out is not nil, the response is decoded into it.
// Call does not send a request that violates the limits of the API; the reason of the error is
// protocol.ReasonValidation.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	if err := protocol.CheckRequest(in); err != nil {
		return err
	}
	if err := protocol.CheckPath(path); err != nil {
		return err
	}
	return c.atAnyApp(ctx, func(base string) error { return c.request(ctx, method, base+path, in, out) })
}

// atAnyApp calls send for one app after another until an app responds.
func (c *Client) atAnyApp(ctx context.Context, send func(base string) error) (failed error) {
	for _, base := range c.opt.URLs {
		failed = send(base)
		switch {
		case failed == nil || protocol.ReasonOf(failed) != "":
			return failed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		failed = unreached(base, failed)
	}
	return failed
}

func (c *Client) request(ctx context.Context, method, to string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		// the error of package url contains the URL, which can contain a password
		return errors.New(mask.URL(err.Error()))
	}
	r.Header.Set("Content-Type", "application/json")
	if key := idempotencyKey(in); key != "" {
		if err := checkKey(key); err != nil {
			return err
		}
		r.Header.Set(protocol.HeaderIdempotencyKey, key)
	}
	r.Header.Set(protocol.HeaderControlVersion, protocol.ControlVersion)
	r.Header.Set(protocol.HeaderWorkerVersion, protocol.WorkerVersion)
	if c.opt.Namespace != "" {
		r.Header.Set(protocol.HeaderNamespace, c.opt.Namespace)
	}
	if c.opt.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.opt.Token)
	}
	answer, err := c.opt.HTTP.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	c.responded.Store(true)
	raw, err := httpjson.ReadAll(io.LimitReader(answer.Body, maxAnswer), answer.ContentLength)
	if err != nil {
		return err
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return refusal(base(to, r.URL), answer, raw)
	}
	c.warn(raw)
	if out == nil {
		return nil
	}
	err = json.Unmarshal(raw, out)
	if err != nil && !json.Valid(raw) {
		return fmt.Errorf(notAnApp, mask.URL(base(to, r.URL)))
	}
	return err
}

// warn calls Options.Warned with the warnings of a response.
func (c *Client) warn(raw []byte) {
	if c.opt.Warned == nil || !bytes.Contains(raw, []byte(`"warnings"`)) {
		return
	}
	var in struct {
		Warnings []protocol.Warning `json:"warnings"`
	}
	if json.Unmarshal(raw, &in) == nil && len(in.Warnings) > 0 {
		c.opt.Warned(in.Warnings)
	}
}

const notAnApp = "the server at %s is not a Sojourn app"

// base returns the URL of the app: the URL to without the path and query of u.
func base(to string, u *url.URL) string { return strings.TrimSuffix(to, u.RequestURI()) }

// refusal returns the error that an error response describes. If the body is not JSON, the body becomes the message. A
// 404 without JSON is not from an app: an app answers every 404 with JSON.
func refusal(base string, answer *http.Response, raw []byte) error {
	status := answer.Status
	body := struct {
		protocol.ErrorBody
		Outcome string `json:"outcome"`
		// for callers that build request paths themselves; Message contains the same advice
		Hint     string `json:"hint"`
		Workflow string `json:"workflow_id"`
		Plane    struct {
			Operation string `json:"operation"`
		} `json:"control_plane"`
	}{ErrorBody: protocol.ErrorBody{Reason: protocol.Reason(status), Message: strings.TrimSpace(string(raw))}}
	if json.Unmarshal(raw, &body) != nil && answer.StatusCode == http.StatusNotFound {
		body.Message = fmt.Sprintf(notAnApp, mask.URL(base))
	}
	doubt := ""
	switch {
	case body.Outcome != "unknown":
	case (body.Plane.Operation == "start" || body.Plane.Operation == "") && body.Workflow != "":
		doubt = "; it is unknown whether the run was started: repeating the request with workflow ID " + body.Workflow +
			" is safe and starts no second run"
	default:
		doubt = "; it is unknown whether the request was executed: check before you repeat it"
	}
	message := strings.TrimSuffix(body.Message, "; "+body.Hint)
	return &protocol.Error{Reason: body.Reason, Message: message + doubt, Fields: body.Fields}
}

// Unreachable reports that no app responded: the request was not received.
type Unreachable struct {
	URL string // URL of the last app that was tried
	Err error
}

// Error returns the URL and the cause. A password in the URL is masked.
func (e *Unreachable) Error() string {
	return fmt.Sprintf("no app answers at %s: %v", mask.URL(e.URL), e.Err)
}

// Unwrap returns the cause.
func (e *Unreachable) Unwrap() error { return e.Err }

// unreached returns a short explanation of why no app responded.
func unreached(base string, err error) error {
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return &Unreachable{base, dial.Err}
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("the app at %s speaks plain HTTP; use http://", mask.URL(base))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the app at %s did not respond within %s", mask.URL(base), patience)
	}
	return err
}
