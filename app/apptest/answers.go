package apptest

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/openapi"
	"github.com/sojourn-run/sojourn/docs"
)

// maxCheckedBody is the maximum size of responses that are checked: checking megabytes of history would take most of a
// test's time.
const maxCheckedBody = 256 << 10

var publishedSchema = sync.OnceValues(func() (*openapi.Checker, error) { return openapi.NewChecker(docs.OpenAPI) })

// checkDescribed fails the test for every response below /api that does not match the published API description.
func checkDescribed(t testing.TB) func(http.Handler) http.Handler {
	check, err := publishedSchema()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	wrong := map[string]error{} // by operation and status: one error of each is enough
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, err := range wrong {
			t.Errorf("an answer is not as described: %v", err)
		}
	})
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, "/api/socket.io") ||
				r.Method == http.MethodHead {
				next.ServeHTTP(w, r)
				return
			}
			recorder := &recordingWriter{ResponseWriter: w}
			next.ServeHTTP(recorder, r)
			body, whole := recorder.text()
			if !whole || r.Context().Err() != nil {
				return
			}
			if err := check.Response(r.Pattern, recorder.status, w.Header(), body); err != nil {
				mu.Lock()
				defer mu.Unlock()
				wrong[r.Pattern+strconv.Itoa(recorder.status)] = err
			}
		})
	}
}

// recordingWriter records a response.
type recordingWriter struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
	long   bool
}

func (l *recordingWriter) WriteHeader(status int) {
	l.status = status
	l.ResponseWriter.WriteHeader(status)
}

func (l *recordingWriter) Write(b []byte) (int, error) {
	if l.status == 0 {
		l.status = http.StatusOK
	}
	if l.long = l.long || l.body.Len()+len(b) > maxCheckedBody; !l.long {
		l.body.Write(b)
	}
	return l.ResponseWriter.Write(b)
}

// Unwrap supports deadlines and flushes.
func (l *recordingWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// text returns the decompressed body; false if it was too long to keep.
func (l *recordingWriter) text() ([]byte, bool) {
	if l.long || l.status == 0 {
		return nil, false
	}
	if l.Header().Get("Content-Encoding") != "gzip" {
		return l.body.Bytes(), true
	}
	z, err := gzip.NewReader(&l.body)
	if err != nil {
		return nil, false
	}
	raw, err := io.ReadAll(z)
	return raw, err == nil
}
