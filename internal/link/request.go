package link

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/internal/mask"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

const (
	workerRoutes = "/api/worker"
	maxAnswer    = 64 << 20
)

// do makes one request and decodes its response. A refusal is a *protocol.Error. If the request did not reach the app,
// or another server answered, do ends the connection.
func (c *httpConn) do(ctx context.Context, verb, path string, in, out any) error {
	if !c.begin() {
		return fmt.Errorf("%s: %w", c, c.Err())
	}
	defer c.calls.Done()
	raw, err := encode(in)
	if err != nil {
		return err
	}
	asked := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	status, answer, err := c.exchange(ctx, verb, workerRoutes+path, raw)
	switch {
	case err != nil && c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case err != nil && asked.Err() != nil:
		return asked.Err()
	case err != nil:
		c.closeWith(err)
		return err
	case status/100 == 2:
		if err := json.Unmarshal(answer, out); err != nil {
			return fmt.Errorf("response of %s: %w", path, err)
		}
		return nil
	}
	return c.refused(path, status, answer)
}

func encode(in any) ([]byte, error) {
	if in == nil {
		return nil, nil
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	if len(raw) > httpjson.MaxBatchBody {
		return nil, fmt.Errorf("%w: a request of %d bytes", socketio.ErrPayloadTooLarge, len(raw))
	}
	return raw, nil
}

func (c *httpConn) exchange(
	ctx context.Context, verb, path string, body []byte,
) (status int, answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, verb, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, errors.New(mask.URL(err.Error())) // the error contains the URL
	}
	for k, v := range c.header {
		r.Header[k] = v
	}
	r.Header.Set(protocol.HeaderWorkerVersion, protocol.WorkerVersion)
	if release := c.registeredRelease(); release != "" {
		r.Header.Set(protocol.HeaderRelease, release)
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	// The HTTP client must not repeat requests: after a request that may have arrived, app and worker compare their
	// leases.
	response, err := c.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = httpjson.ReadAll(io.LimitReader(response.Body, maxAnswer), response.ContentLength)
	return response.StatusCode, answer, err
}

// refused reads a response other than 2xx. A response without a reason is not from the app.
func (c *httpConn) refused(path string, status int, answer []byte) error {
	var refusal map[string]any
	_ = json.Unmarshal(answer, &refusal) // if it cannot be decoded, there is no reason either
	reason, _ := refusal["reason"].(string)
	message, _ := refusal["message"].(string)
	switch {
	case reason == "" && status == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: a proxy before %s refused the request", socketio.ErrPayloadTooLarge, c)
	case reason == "":
		err := fmt.Errorf(
			"%s%s: status %d without a reason; the response is not from a Sojourn app: %.200s", c, path, status, answer,
		)
		if !gatewayTimeout(status) {
			c.closeWith(err)
		}
		return err
	case protocol.Reason(reason).Away():
		return errors.New(message) // the request may have been executed
	case status == http.StatusUnauthorized:
		c.closeWith(errors.New(message)) // the token is no longer valid; the next dial reports the reason
	}
	for _, known := range []string{
		"reason", "message", "error", "protocol_version", "server_capabilities", "validation_errors",
	} {
		delete(refusal, known)
	}
	e := protocol.Refuse(protocol.Reason(reason), "%s", message)
	if len(refusal) > 0 {
		e.Details = refusal
	}
	return e
}

// gatewayTimeout reports whether a proxy ended a long poll by its timeout. The app is still reachable.
func gatewayTimeout(status int) bool {
	return status == http.StatusGatewayTimeout || status == http.StatusRequestTimeout || status == 524
}
