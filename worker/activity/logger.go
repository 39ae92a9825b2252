package activity

import (
	"bytes"
	"context"
	"log/slog"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/slogbridge"
)

// Logger writes lines for people: they are stored with the attempt, for the dashboard and for sojourn activity logs,
// and also written to the worker's log. A line is its message, followed by its attributes as key=value. All levels are
// stored. Outside an activity it writes nothing.
func Logger(ctx context.Context) *slog.Logger {
	rt, ok := FromContext(ctx)
	if !ok {
		return slog.New(slog.DiscardHandler)
	}
	return slogbridge.Slog(zerolog.New(lines{rt}))
}

// lines is where a Logger writes to.
type lines struct{ rt Runtime }

// Write logs an event without a level.
func (l lines) Write(p []byte) (int, error) { return l.WriteLevel(zerolog.InfoLevel, p) }

// WriteLevel writes an event as one log line.
func (l lines) WriteLevel(level zerolog.Level, p []byte) (int, error) {
	var line bytes.Buffer
	w := zerolog.ConsoleWriter{
		Out: &line, NoColor: true, PartsOrder: []string{zerolog.CallerFieldName, zerolog.MessageFieldName},
	}
	if _, err := w.Write(p); err != nil {
		return 0, err
	}
	name := "info"
	switch {
	case level <= zerolog.DebugLevel:
		name = "debug"
	case level == zerolog.WarnLevel:
		name = "warn"
	case level >= zerolog.ErrorLevel && level != zerolog.NoLevel:
		name = "error"
	}
	l.rt.Log(name, string(bytes.TrimSpace(line.Bytes())))
	return len(p), nil
}
