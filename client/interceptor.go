package client

import (
	"context"

	"github.com/sojourn-run/sojourn/internal/userfunc"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// intercept sends a request inside the interceptors of the client. own are the headers in the options of the request;
// send gets these, those of the context, and the changes of the interceptors.
func (c *Client) intercept(
	ctx context.Context, call workflow.Call, own map[string]string,
	send func(ctx context.Context, headers map[string]string) error,
) error {
	call.Headers = headersOf(ctx, own)
	return userfunc.Around(ctx, c.interceptors, func(
		i workflow.Interceptor, ctx context.Context, next func(context.Context) error,
	) error {
		return i.InterceptClient(ctx, &call, next)
	}, func(ctx context.Context) error { return send(ctx, headersOf(ctx, call.Headers)) })
}
