package client

import (
	"context"
	"maps"

	"github.com/sojourn-run/sojourn/internal/userfunc"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// intercept sends a request inside the interceptors of the client. own are the headers in the options of the request;
// send gets these, those of the context, and the changes of the interceptors: to the headers of the call, and by
// WithHeaders to the context that they pass on.
func (c *Client) intercept(
	ctx context.Context, call workflow.Call, own map[string]string,
	send func(ctx context.Context, headers map[string]string) error,
) error {
	first := headersOf(ctx, nil)
	call.Headers = headersOf(ctx, own)
	return userfunc.Around(ctx, c.interceptors, func(
		i workflow.Interceptor, ctx context.Context, next func(context.Context) error,
	) error {
		return i.InterceptClient(ctx, &call, next)
	}, func(ctx context.Context) error {
		headers := headersOf(ctx, nil)
		// An interceptor may have removed a header that the context of the caller has.
		maps.DeleteFunc(headers, func(name, value string) bool {
			was, ok := first[name]
			return ok && was == value
		})
		maps.Copy(headers, call.Headers)
		return send(ctx, headers)
	})
}
