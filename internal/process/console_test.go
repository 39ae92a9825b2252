package process

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestStackIsPrintedBelowItsLine(t *testing.T) {
	var b strings.Builder
	log := zerolog.New(Console(&b))
	log.Error().Str("run_id", "R1").Str("stack", "goroutine 7:\nshop.Pay()\n\t/shop/main.go:12 \x1b[2J\r\n").Msg("failed")
	log.Info().Dur("took", 1500*time.Millisecond).Msg("next")
	want := "<nil> ERR failed run_id=R1\n    goroutine 7:\n    shop.Pay()\n    \t/shop/main.go:12 [2J\n<nil> INF next took=1.5\n"
	if b.String() != want {
		t.Errorf("got\n%q, want\n%q", b.String(), want)
	}
}

// Logs are formatted for a terminal, and in full for a file.
func TestLogLinesInAFileStartWithTheDate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	log := Logger(behind{file}, "info", "console")
	log.Info().Msg("app started")
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at, rest, _ := strings.Cut(string(raw), " ")
	when, err := time.Parse(time.RFC3339, at)
	if err != nil || time.Since(when) > time.Hour || rest != "INF app started\n" {
		t.Errorf("got %q, %v", raw, err)
	}
	terminal, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device like any terminal
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if c := Console(behind{terminal}); c.TimeFormat != time.TimeOnly {
		t.Errorf("at a terminal a line begins with %s", c.TimeFormat)
	}
}

// behind wraps a writer.
type behind struct{ io.Writer }

func (b behind) Unwrap() io.Writer { return b.Writer }
