package slogbridge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/slogbridge"
)

func TestAttributesGroupsAndLevelsOfSlogArriveInZerolog(t *testing.T) {
	var out bytes.Buffer
	l := slogbridge.Slog(zerolog.New(&out).Level(zerolog.DebugLevel)).With("run_id", "r")
	g := l.WithGroup("http").With("method", "GET").WithGroup("tls")
	l.Debug("a", "n", 1, "err", errors.New("broken"))
	g.Info("b", "version", "1.3", slog.Group("peer", "name", "x"))
	l.Warn("c", slog.Group("", "inline", true))
	l.Error("d", "value", secret{})
	g.Warn("e")
	l.Log(t.Context(), slog.LevelDebug-4, "below the level")
	want := []map[string]any{
		{"level": "debug", "message": "a", "run_id": "r", "n": 1.0, "err": "broken"},
		{
			"level": "info", "message": "b", "run_id": "r", "http.method": "GET", "http.tls.version": "1.3",
			"http.tls.peer.name": "x",
		},
		{"level": "warn", "message": "c", "run_id": "r", "inline": true},
		{"level": "error", "message": "d", "run_id": "r", "value": "hidden"},
		{"level": "warn", "message": "e", "run_id": "r", "http.method": "GET"},
	}
	if d := cmp.Diff(want, lines(t, &out)); d != "" {
		t.Error(d)
	}
}

type secret struct{}

func (secret) LogValue() slog.Value { return slog.StringValue("hidden") }

// zerolog's SlogHandler fails this suite of the standard library without the wrapper of this package.
func TestSlogHandlerPassesTheSuiteOfTheStandardLibrary(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return slogbridge.Slog(zerolog.New(&out)).Handler()
	}, func(t *testing.T) map[string]any {
		all := readLines(t, &out)
		if len(all) != 1 {
			t.Fatalf("got %d lines, want 1", len(all))
		}
		nested := map[string]any{}
		for key, v := range all[0] {
			if key == "message" {
				key = slog.MessageKey
			}
			at, path := nested, strings.Split(key, ".")
			for _, group := range path[:len(path)-1] {
				if _, ok := at[group].(map[string]any); !ok {
					at[group] = map[string]any{}
				}
				at, _ = at[group].(map[string]any)
			}
			at[path[len(path)-1]] = v
		}
		return nested
	})
}

func TestLinesOfZerologArriveAsRecords(t *testing.T) {
	var got []slog.Record
	l := slogbridge.Zerolog(slog.New(recorder{&got}).With("worker_id", "w"))
	l.Debug().Str("text", "a \"b\"").Int64("big", 9007199254740993).Bool("yes", true).Msg("one")
	l.Warn().Err(errors.New("broken")).Float64("share", 0.5).Strs("queues", []string{"a", "b"}).Msg("two")
	l.Error().Interface("nothing", nil).Send()
	l.Log().Msg("three")
	want := []string{
		`DEBUG one text="a \"b\"" big=9007199254740993 yes=true`,
		`WARN two error=broken share=0.5 queues="[\"a\",\"b\"]"`,
		`ERROR  nothing=<nil>`,
		`INFO three`,
	}
	if d := cmp.Diff(want, texts(t, got)); d != "" {
		t.Error(d)
	}
	got[0].Attrs(func(a slog.Attr) bool {
		if a.Key == "big" && a.Value.Kind() != slog.KindInt64 {
			t.Errorf("an integer arrives as %s", a.Value.Kind())
		}
		return true
	})
	if since := time.Since(got[0].Time); since < 0 || since > time.Minute {
		t.Errorf("the record's time is %s", got[0].Time)
	}
}

func TestZerologReturnsTheLoggerGivenToSlog(t *testing.T) {
	var out bytes.Buffer
	l := slogbridge.Zerolog(slogbridge.Slog(zerolog.New(&out).Level(zerolog.InfoLevel)).With("worker_id", "w"))
	l.Info().Dur("took", 1500*time.Microsecond).Msg("as it is")
	l.Debug().Msg("below the level")
	if d := cmp.Diff(`{"level":"info","worker_id":"w","took":1.5,"message":"as it is"}`+"\n", out.String()); d != "" {
		t.Error(d)
	}
}

// A LevelVar can change the level of a handler at any time.
func TestALevelThatTheHandlerDisablesCostsNoAllocation(t *testing.T) {
	var level slog.LevelVar
	var out bytes.Buffer
	level.Set(slog.LevelError)
	l := slogbridge.Zerolog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: &level})))
	s := slogbridge.Slog(zerolog.New(io.Discard).Level(zerolog.ErrorLevel))
	for name, write := range map[string]func(){
		"zerolog on slog": func() { l.Info().Str("run_id", "r").Int("attempt", 1).Msg("dropped") },
		"slog on zerolog": func() { s.Info("dropped", "run_id", "r") },
	} {
		if n := testing.AllocsPerRun(100, write); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
	if out.Len() > 0 {
		t.Errorf("a disabled line is written: %s", &out)
	}
	level.Set(slog.LevelInfo)
	l.Info().Msg("written")
	if !strings.Contains(out.String(), "written") {
		t.Errorf("got %q", &out)
	}
}

type recorder struct{ to *[]slog.Record }

func (r recorder) Enabled(context.Context, slog.Level) bool { return true }
func (r recorder) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r recorder) WithGroup(string) slog.Handler            { return r }

func (r recorder) Handle(_ context.Context, record slog.Record) error {
	*r.to = append(*r.to, record)
	return nil
}

func texts(t *testing.T, all []slog.Record) (out []string) {
	t.Helper()
	for _, r := range all {
		var b bytes.Buffer
		h := slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: onlyAttributes})
		if err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		line := r.Level.String() + " " + r.Message + " " + strings.TrimSpace(b.String())
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

func onlyAttributes(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey {
		return slog.Attr{}
	}
	return a
}

func readLines(t *testing.T, out *bytes.Buffer) (all []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(out.Bytes()) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, m)
	}
	return all
}

// lines are those of out without their times.
func lines(t *testing.T, out *bytes.Buffer) []map[string]any {
	t.Helper()
	all := readLines(t, out)
	for _, m := range all {
		delete(m, "time")
	}
	return all
}
