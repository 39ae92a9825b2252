package workflow

import "maps"

// Headers returns a copy of the headers of the request that the code handles: in an update or query handler, those of
// the update or the query; elsewhere those of the start or continuation of this run. For a signal, see
// [SignalChannel.Headers].
func Headers(ctx Context) map[string]string { return maps.Clone(ctx.inner().received) }

// WithHeaders returns a context whose activities, children, signals to other workflows and ContinueAsNew carry headers,
// in addition to those of ctx; a name that ctx has already gets the new value. A command may have 32 headers, of 8 KiB
// together; one with more fails with ErrInvalidOptions.
//
// Headers are not passed on automatically: neither the headers of the run nor those of ctx reach code that a child or
// the next run calls. A replay does not compare headers, so new code may set other headers for old runs.
func WithHeaders(ctx Context, headers map[string]string) Context {
	c := *ctx.inner()
	all := make(map[string]string, len(c.headers)+len(headers))
	maps.Copy(all, c.headers)
	maps.Copy(all, headers)
	c.headers = all
	return &c
}

// Headers returns a copy of the headers of the signal that the code received last from this channel.
func (s *SignalChannel) Headers() map[string]string { return maps.Clone(s.headers) }
