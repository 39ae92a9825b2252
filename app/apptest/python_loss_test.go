package apptest_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// lossy is a proxy that drops the first response to every request that may be repeated: the app has executed the
// request, and the caller, whose connection breaks, does not know.
type lossy struct {
	only string // part of the bodies of the requests to drop responses to; empty: all
	mu   sync.Mutex
	seen map[[sha256.Size]byte]bool
	lost map[string]int // by the last segment of the path
}

func (l *lossy) serve(t *testing.T, a *apptest.App) string {
	t.Helper()
	u, err := url.Parse(a.URL())
	if err != nil {
		t.Fatal(err)
	}
	l.seen, l.lost = map[[sha256.Size]byte]bool{}, map[string]int{}
	proxy := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(u) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: func(r *http.Response) error {
			if l.loses(r.Request) {
				_, err := io.Copy(io.Discard, r.Body) // the app has sent the whole response
				return fmt.Errorf("lost on the way: %w", err)
			}
			return nil
		},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// loses reports whether to drop the response to this request: it does so for the first request with a body. It excludes
// starts, registrations and ends of runs, because this SDK sends nothing that identifies a repetition of them.
func (l *lossy) loses(r *http.Request) bool {
	p := r.URL.Path
	word := p[strings.LastIndexByte(p, '/')+1:]
	if r.Method != http.MethodPost || r.GetBody == nil ||
		slices.Contains([]string{"workflows", "register", "cancel", "terminate"}, word) {
		return false
	}
	body, err := r.GetBody()
	if err != nil {
		return false
	}
	raw, err := io.ReadAll(body)
	if err != nil || !strings.Contains(string(raw), l.only) {
		return false
	}
	key := sha256.Sum256(append([]byte(p+"\n"), raw...))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[key] {
		return false
	}
	l.seen[key] = true
	l.lost[word]++
	return true
}

func TestPythonLosesEveryFirstAnswer(t *testing.T) {
	t.Parallel()
	python(t)
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		var way lossy
		through := way.serve(t, a)
		w := workThrough(t, a, through, "py-1", "50")
		casesThrough(t, through, "updates", "signals_are_kept_in_order", "side_effects", "parallel_list_in_reverse",
			"typed_errors_at_the_client",
			"continue_as_new", "session_keeps_state", "queries")
		r := run(t, a, "long_run", 15)
		var sum int
		output(t, a, r, &sum)
		if sum != 105 {
			t.Errorf("the sum is %d", sum)
		}
		page, err := a.View().History(t.Context(), protocol.HistoryQuery{Target: r})
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]int{}
		for _, e := range page.Events {
			kinds[e.Type()]++
			if d, ok := e.Data.(*history.ActivityCompleted); ok && d.Attempt.Number != 1 {
				t.Errorf("step %d took %d attempts", d.Sequence, d.Attempt.Number)
			}
		}
		if kinds["ActivityScheduled"] != 15 || kinds["ActivityCompleted"] != 15 || kinds["WorkflowCompleted"] != 1 {
			t.Errorf("history has %v", kinds)
		}
		w.stop()
		way.mu.Lock()
		defer way.mu.Unlock()
		for _, word := range []string{"poll", "complete", "note", "deposit", "state"} {
			if way.lost[word] == 0 {
				t.Errorf("no answer to %s was lost: %v", word, way.lost)
			}
		}
	})
}
