// Package process sets up a process: log, garbage collector and shutdown signals.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/rs/zerolog"
)

// These are the exit codes for a failure and for wrong usage.
const (
	ExitFailed = 1
	ExitUsage  = 2
)

// ErrStopped is the cause of a context that ended because the process received a signal.
var ErrStopped = errors.New("stopped")

// Tune configures the garbage collector for a program with few long-lived and many short-lived objects, unless GOGC is
// set: a third more throughput for some memory, which is returned to the system when the process is idle.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
		go tidyUp()
	}
}

// Interrupts returns a context that ends at the first SIGINT or SIGTERM; the second ends the process at once. Call stop
// when nothing is left to drain.
func Interrupts() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		s, ok := <-c
		if !ok {
			return
		}
		cancel(fmt.Errorf("%w: %s", ErrStopped, s))
		if _, ok := <-c; ok {
			os.Exit(ExitFailed)
		}
	}()
	return ctx, func() {
		signal.Stop(c)
		close(c)
		cancel(nil)
	}
}

// Logger returns a logger that writes to w from a level on, for people (console) or programs (json). An unknown level
// means info.
func Logger(w io.Writer, level, format string) zerolog.Logger {
	if format == "console" {
		w = Console(w)
	}
	SetLevel(level)
	return zerolog.New(w).With().Timestamp().Logger()
}

// Console writes logs for people: one line per event, and the lines of a stack below it. On a terminal a line begins
// with the time, in a file with the date, time and zone.
func Console(w io.Writer) zerolog.ConsoleWriter {
	at := time.RFC3339
	if Terminal(w) {
		at = time.TimeOnly
	}
	return zerolog.ConsoleWriter{
		Out: w, TimeFormat: at, NoColor: os.Getenv("NO_COLOR") != "" || !Terminal(w),
		FieldsExclude: []string{stackField},
		FormatExtra: func(event map[string]any, line *bytes.Buffer) error {
			text, _ := event[stackField].(string)
			for l := range strings.Lines(text) {
				line.WriteString("\n    " + strings.Map(printable, strings.TrimRight(l, "\r\n")))
			}
			return nil
		},
	}
}

// stackField is the key of a stack in an event.
const stackField = "stack"

// printable removes control characters, which a terminal would execute: parts of a stack come from the code of
// handlers.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\t' {
		return -1
	}
	return r
}

// Durations in logs are in seconds, as in metrics and in the API, without a unit.
func init() { zerolog.DurationFieldUnit = time.Second }

// SetLevel sets the minimum level of all loggers of this process. An unknown level means info.
func SetLevel(level string) {
	l, err := zerolog.ParseLevel(level)
	if err != nil {
		l = zerolog.InfoLevel
	}
	zerolog.SetGlobalLevel(l)
}

// Terminal reports whether w is a terminal.
func Terminal(w io.Writer) bool {
	if behind, ok := w.(interface{ Unwrap() io.Writer }); ok {
		return Terminal(behind.Unwrap())
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
