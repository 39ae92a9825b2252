package activity

import (
	"bytes"
	"context"
	"log/slog"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/slogbridge"
)

// Logger returns a logger for the activity's log. Lines are stored with the attempt, for the dashboard and for "sojourn
// activity logs", and also written to the worker's log. A line consists of its message and its attributes as key=value.
// All levels are stored. Outside an activity the logger drops all lines.
func Logger(ctx context.Context) *slog.Logger {
	rt, ok := FromContext(ctx)
	if !ok {
		return slog.New(slog.DiscardHandler)
	}
	return slogbridge.Slog(zerolog.New(lines{rt}))
}

// lines is the writer to which a Logger writes.
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
