package apptest_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
)

// logLines collects the log of a running app.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// with returns the lines that contain a text.
func (l *logLines) with(text string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// A session is acquired, renewed and released. At info level the app logs one line, at the release.
func TestASessionHolderIsLoggedOnce(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		lines := &logLines{}
		c := caller{t, apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) {
			o.Log = zerolog.New(lines).Level(zerolog.InfoLevel)
		}}), "default"}
		register(c, "w", "")
		for _, id := range []string{"one", "two"} {
			c.want(201, "POST", "/api/worker/sessions", `{"worker_id":"w","session_id":"`+id+`"}`)
			c.want(200, "POST", "/api/worker/sessions/"+id+"/heartbeat", `{"worker_id":"w"}`)
			c.want(200, "POST", "/api/worker/sessions/"+id+"/release", `{"worker_id":"w"}`)
		}
		until(t, "the end of the last session is logged", func() bool { return len(lines.with(`"two"`)) > 0 })
		for _, id := range []string{"one", "two"} {
			got := lines.with(`"session_id":"` + id + `"`)
			if len(got) != 1 || !strings.Contains(got[0], `"session released"`) || !strings.Contains(got[0], `"worker_id":"w"`) {
				t.Errorf("session %s: %d lines: %s", id, len(got), got)
			}
		}
		if got := lines.with("session"); len(got) != 2 {
			t.Errorf("%d lines about sessions: %s", len(got), got)
		}
	})
}
