package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Update is a handle of an update that the app has accepted.
type Update struct {
	ID      string // update ID
	Name    string
	run     *Workflow
	request protocol.UpdateRequest
}

// UpdateOptions are the options of an update.
type UpdateOptions struct {
	// RequestID identifies the request, at most 255 bytes: a repeated request with the same ID and content returns the
	// update that the first one sent; with other content the reason of the error is ReasonRequestConflict. Empty: a new
	// ID.
	RequestID string
	// Headers accompany the update; its handler reads them. They are added to those of [WithHeaders]. At most 32, of
	// 8 KiB together.
	Headers map[string]string
}

// StartUpdate sends an update and returns once the workflow has accepted it, without waiting for its result. If a
// validator rejects the update before that, the reason of the error is ReasonUpdateRejected. If the validator, which
// runs again right before the handler, rejects it only then, the reason is ReasonUpdateFailed.
func (w *Workflow) StartUpdate(
	ctx context.Context, name string, args []any, o UpdateOptions,
) (u *Update, err error) {
	err = w.intercept(ctx, workflow.OpUpdate, name, args, o.Headers, func(
		ctx context.Context, headers map[string]string,
	) error {
		raw, err := w.client.rawArgs(args)
		if err != nil {
			return err
		}
		u = &Update{Name: name, run: w, request: protocol.UpdateRequest{
			UpdateName: name, Input: raw, RequestID: o.RequestID, WaitFor: protocol.WaitAccepted, WaitTimeout: new(int64(60)),
			Headers: headers,
		}}
		if o.RequestID == "" {
			u.request.RequestID = apiclient.RequestID()
		}
		for {
			a, err := u.send(ctx)
			if err != nil {
				return err
			}
			if !a.WaitTimedOut || a.UpdateStatus == protocol.WaitCompleted {
				u.ID = a.UpdateID
				u.request.WaitFor = protocol.WaitCompleted
				return nil
			}
		}
	})
	return ifNil(err, u)
}

// Result waits for the result of the update and decodes it into out, unless nil. If the handler returned an error, or
// the run closed before the update ended, the reason of the error is ReasonUpdateFailed.
func (u *Update) Result(ctx context.Context, out any) error {
	for { // repeating the request with the same ID waits for the same update
		a, err := u.send(ctx)
		if err != nil {
			return err
		}
		if a.UpdateStatus == protocol.WaitCompleted {
			return decode(u.run.client.codecs, a.ResultEnvelope, out)
		}
	}
}

func (u *Update) send(ctx context.Context) (a protocol.UpdateResponse, err error) {
	return a, u.run.call(ctx, http.MethodPost, u.run.path("/update/"+url.PathEscape(u.Name)), u.request, &a)
}
