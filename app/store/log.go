package store

import (
	"errors"

	"github.com/rs/zerolog"
)

// Warn begins the log line of a failure. While the database is unavailable, the level is debug: the store itself logs
// the beginning and the end of an outage.
func Warn(log *zerolog.Logger, err error) *zerolog.Event { return failure(log, zerolog.WarnLevel, err) }

// Error is like Warn, with level error.
func Error(log *zerolog.Logger, err error) *zerolog.Event {
	return failure(log, zerolog.ErrorLevel, err)
}

func failure(log *zerolog.Logger, level zerolog.Level, err error) *zerolog.Event {
	if errors.Is(err, ErrUnavailable) {
		level = zerolog.DebugLevel
	}
	return log.WithLevel(level).Err(err)
}
