package serve_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/internal/budget"
)

// cuts is a server whose route /things is cut while it reads the last byte of a body.
type cuts struct {
	*httptest.Server
	bytes *budget.Budget
	atEnd func(r *http.Request) // called when the last byte of a body was read
	delay func()                // called before the server sets the read deadline
	set   chan struct{}         // closed when that deadline was set
	plain chan struct{}         // closed when the route /plain has read its body
}

// watchedWriter tells the test when the server sets a read deadline. The server sets it to cut a request off: to stop
// reading its body, because another caller needs the memory.
type watchedWriter struct {
	http.ResponseWriter
	s *cuts
}

func (w watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w watchedWriter) SetReadDeadline(at time.Time) error {
	w.s.delay()
	defer close(w.s.set)
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(at)
}

// watchedBody calls atEnd at the end of a body.
type watchedBody struct {
	io.ReadCloser
	s *cuts
	r *http.Request
}

func (b watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.s.atEnd(b.r)
	}
	return n, err
}

func newCuts(t *testing.T) *cuts {
	s := &cuts{
		bytes: budget.New(1 << 20), delay: func() {}, set: make(chan struct{}), plain: make(chan struct{}),
	}
	p := serve.Pipeline{
		Auth: auth.New(auth.Options{None: true}), Header: "Version", Version: "1", Log: zerolog.Nop(), Budget: s.bytes,
		CheckVersion: func(string) error { return nil },
	}
	rt := serve.Route{
		Method: "POST", Pattern: "/things", Operation: "do", Roles: auth.Roles, Shape: serve.Shape{MaxBody: 64 << 10},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /things", func(w http.ResponseWriter, r *http.Request) {
		w = watchedWriter{w, s}
		r.Body = watchedBody{r.Body, s, r}
		p.Serve(&exchange{Call: serve.NewCall(w, r, rt), verb: func(c *serve.Call) (serve.Response, error) {
			var in map[string]string
			if err := c.Read(&in); err != nil {
				return serve.Response{}, err
			}
			return serve.Response{Status: 201, Body: struct{}{}}, c.Ctx.Err()
		}})
	})
	mux.HandleFunc("POST /plain", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(s.plain)
		s.await(t, s.set)
		select {
		case <-r.Context().Done():
		case <-time.After(100 * time.Millisecond): // a read deadline cancels the context at once
			_, _ = io.WriteString(w, "plain")
		}
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *cuts) await(t *testing.T, ch <-chan struct{}) {
	select {
	case <-ch:
	case <-time.After(10 * time.Second):
		t.Error("the cut did not happen")
	}
}

// overfill reserves more bytes than the budget has, so that the running request is cut.
func (s *cuts) overfill() { s.bytes.Force(budget.Owner{Token: "other"}, 1<<20) }

// post returns the status and the body of the response.
func (s *cuts) post(t *testing.T, path, body string) (int, string) {
	t.Helper()
	res, err := s.Client().Post(s.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return 0, ""
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return res.StatusCode, string(raw)
}

// To count the bytes of a request allocates nothing.
func TestCountingBytesAllocatesNothing(t *testing.T) {
	allocations := func(bytes *budget.Budget) float64 {
		p := serve.Pipeline{
			Auth: auth.New(auth.Options{None: true}), Header: "Version", Version: "1", Log: zerolog.Nop(), Budget: bytes,
			CheckVersion: func(string) error { return nil },
		}
		rt := serve.Route{Method: "POST", Pattern: "/things", Operation: "do", Roles: auth.Roles}
		var held *budget.Grant
		verb := func(c *serve.Call) (serve.Response, error) {
			if held == nil { // the budget knows a busy caller between requests
				held = bytes.Force(budget.Owner{Namespace: c.NS, Token: c.Principal.Name}, 1)
			}
			_, err := c.Body()
			if err == nil {
				err = budget.Load(c.Ctx, 1000)
			}
			return serve.Response{Status: 200, Body: 1}, err
		}
		return testing.AllocsPerRun(1000, func() {
			r := httptest.NewRequestWithContext(t.Context(), rt.Method, "http://localhost/things", strings.NewReader(`{}`))
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			if p.Serve(&exchange{Call: serve.NewCall(w, r, rt), verb: verb}); w.Code != 200 {
				t.Fatal(w.Code, w.Body)
			}
		})
	}
	if without, with := allocations(nil), allocations(budget.New(1<<30)); with > without {
		t.Errorf("a request allocates %.0f times, and %.0f times where its bytes are counted", without, with)
	}
}

// large is a body whose request counts with more bytes than the smallest request that may be cut.
var large = `{"text":"` + strings.Repeat("x", 20<<10) + `"}`

// The read deadline that cuts a request off may expire after the last byte of the body. net/http then cancels the
// context of the request, but its caller still waits for a response.
func TestARequestThatIsCutAtItsLastByteIsRefused(t *testing.T) {
	s := newCuts(t)
	s.atEnd = func(r *http.Request) {
		s.overfill()
		s.await(t, r.Context().Done())
	}
	if status, body := s.post(t, "/things", large); status != 429 || !strings.Contains(body, `"reason":"overloaded"`) {
		t.Errorf("got %d %q, want 429 overloaded", status, body)
	}
}

// A cut runs in another goroutine. A read deadline that it sets after the request has ended would end the next request
// on the connection.
func TestALateCutDoesNotEndTheNextRequest(t *testing.T) {
	s := newCuts(t)
	delayed := make(chan struct{})
	s.delay = func() {
		close(delayed)
		select {
		case <-s.plain:
		case <-time.After(300 * time.Millisecond): // the first request waits for its cut
		}
	}
	s.atEnd = func(*http.Request) {
		s.overfill()
		s.await(t, delayed)
	}
	if status, body := s.post(t, "/things", large); status != 429 || body == "" {
		t.Errorf("the request that was cut: %d %q, want 429 and a body", status, body)
	}
	if status, body := s.post(t, "/plain", `{}`); status != 200 || body != "plain" {
		t.Errorf("the next request: %d %q", status, body)
	}
}
