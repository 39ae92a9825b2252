package client

import (
	"context"
	"maps"
)

type headersKey struct{}

// WithHeaders returns a context whose starts, signals, updates and queries carry headers, in addition to those of ctx;
// a name that ctx has already gets the new value. A request may have 32 headers, of 8 KiB together. Workflow code reads
// them with workflow.Headers, and activities of activity runs with activity.Headers. The history of the run contains
// the headers of its start, signals and updates, so every reader of the run can see them.
func WithHeaders(ctx context.Context, headers map[string]string) context.Context {
	return context.WithValue(ctx, headersKey{}, headersOf(ctx, headers))
}

// headersOf returns the headers of a request: those of its context and its own.
func headersOf(ctx context.Context, own map[string]string) map[string]string {
	all := map[string]string{}
	if outer, ok := ctx.Value(headersKey{}).(map[string]string); ok {
		maps.Copy(all, outer)
	}
	maps.Copy(all, own)
	return all
}
