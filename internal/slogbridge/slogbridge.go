// Package slogbridge converts zerolog loggers to slog loggers and back: the public Go API uses log/slog, the code of
// app and worker uses zerolog.
package slogbridge

import (
	"context"
	"log/slog"

	"github.com/rs/zerolog"
)

// Slog returns a logger that writes to l. Attributes become fields of l; a group is a prefix of their keys, followed by
// a dot.
func Slog(l zerolog.Logger) *slog.Logger { return slog.New(newHandler(l, "")) }

// Zerolog returns a logger that writes to l. It is the inverse of Slog. If the handler of l does not come from Slog,
// each line is converted to a record: fields become attributes with the same keys, and durations are numbers of
// seconds. A level that l disables costs one call of its Enabled method. nil: nothing is logged.
func Zerolog(l *slog.Logger) zerolog.Logger {
	if l == nil {
		return zerolog.Nop()
	}
	if h, ok := l.Handler().(*handler); ok && h.group == "" {
		return h.logger
	}
	w := recordWriter{l.Handler()}
	return zerolog.New(w).Sample(w)
}

// handler is the handler of Slog. zerolog's own handler applies a group also to attributes that were added before the
// group; this one adds attributes to the logger at once, which also serializes them only once.
type handler struct {
	logger zerolog.Logger
	inner  *zerolog.SlogHandler
	group  string // keys of open groups, joined by dots
}

func newHandler(l zerolog.Logger, group string) *handler {
	return &handler{logger: l, inner: zerolog.NewSlogHandler(l), group: group}
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.inner.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if h.group == "" || r.NumAttrs() == 0 {
		return h.inner.Handle(ctx, r)
	}
	attrs := make([]slog.Attr, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	grouped := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	grouped.AddAttrs(slog.Attr{Key: h.group, Value: slog.GroupValue(attrs...)})
	return h.inner.Handle(ctx, grouped)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var fields []any
	for _, a := range attrs {
		fields = appendFields(fields, h.group, a)
	}
	if len(fields) == 0 {
		return h
	}
	return newHandler(h.logger.With().Fields(fields).Logger(), h.group)
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return newHandler(h.logger, join(h.group, name))
}

// appendFields appends the key and the value of an attribute, or of each attribute of a group.
func appendFields(fields []any, prefix string, a slog.Attr) []any {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		for _, member := range v.Group() {
			fields = appendFields(fields, join(prefix, a.Key), member)
		}
		return fields
	}
	if a.Key == "" {
		return fields
	}
	return append(fields, join(prefix, a.Key), v.Any())
}

func join(prefix, key string) string {
	switch {
	case prefix == "":
		return key
	case key == "":
		return prefix
	}
	return prefix + "." + key
}
