package slogbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/rs/zerolog"
)

// recordWriter is a zerolog.LevelWriter that converts each line to a record of a handler. It is also the
// zerolog.Sampler of its logger, so that lines which the handler disables are never built.
type recordWriter struct{ handler slog.Handler }

// Sample reports whether the handler is enabled for level.
func (w recordWriter) Sample(level zerolog.Level) bool {
	return w.handler.Enabled(context.Background(), slogLevel(level))
}

func (w recordWriter) Write(line []byte) (int, error) { return w.WriteLevel(zerolog.NoLevel, line) }

func (w recordWriter) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	r := slog.NewRecord(time.Now(), slogLevel(level), "", 0)
	if err := addFields(&r, line); err != nil {
		return 0, err
	}
	if err := w.handler.Handle(context.Background(), r); err != nil {
		return 0, err
	}
	return len(line), nil
}

// addFields reads the JSON object of a line. The message becomes the message of the record, other members become
// attributes in their order.
func addFields(r *slog.Record, line []byte) error {
	d := json.NewDecoder(bytes.NewReader(line))
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("log line %q: %w", line, err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return fmt.Errorf("log line %q: %w", line, err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("log line %q: %w", line, err)
		}
		switch key {
		case zerolog.LevelFieldName:
		case zerolog.MessageFieldName:
			r.Message = attrValue(value).String()
		default:
			r.AddAttrs(slog.Attr{Key: fmt.Sprint(key), Value: attrValue(value)})
		}
	}
	return nil
}

// attrValue converts a JSON value. Arrays and objects stay JSON.
func attrValue(text json.RawMessage) slog.Value {
	switch text[0] {
	case '[', '{':
		return slog.AnyValue(text)
	case '"', 't', 'f', 'n':
		var v any
		if json.Unmarshal(text, &v) == nil {
			return slog.AnyValue(v)
		}
	default:
		n := json.Number(text)
		if i, err := n.Int64(); err == nil {
			return slog.Int64Value(i)
		}
		if f, err := n.Float64(); err == nil {
			return slog.Float64Value(f)
		}
	}
	return slog.StringValue(string(text))
}

// slogLevel is the inverse of the level conversion of zerolog.SlogHandler.
func slogLevel(level zerolog.Level) slog.Level {
	switch level {
	case zerolog.TraceLevel:
		return slog.LevelDebug - 4
	case zerolog.DebugLevel:
		return slog.LevelDebug
	case zerolog.WarnLevel:
		return slog.LevelWarn
	case zerolog.ErrorLevel, zerolog.FatalLevel, zerolog.PanicLevel:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}
