package serve_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/admission"
	"github.com/sojourn-run/sojourn/app/internal/serve"
)

// slowWriter is a caller that reads its response only when the test allows it.
type slowWriter struct {
	*httptest.ResponseRecorder
	read chan struct{}
}

func (w slowWriter) Write(p []byte) (int, error) {
	<-w.read
	return w.ResponseRecorder.Write(p)
}

// limitedPipeline returns the pipeline of an app with one processor that limits requests in progress.
func limitedPipeline() serve.Pipeline {
	return serve.Pipeline{
		Auth: auth.New(auth.Options{None: true}), Header: "Version", Version: "1", Log: zerolog.Nop(),
		CheckVersion: func(string) error { return nil },
		Admission: admission.New(admission.Options{
			OthersActive: func(string) bool { return true },
			Delay:        func() time.Duration { return time.Second }, Processors: 1,
		}),
	}
}

// While processors are short and another namespace is active, an app with one processor runs two requests of a
// namespace at once. Requests that wait for an event, small outcomes of workers and callers that read slowly take no
// place.
func TestRequestsInProgressAreLimited(t *testing.T) {
	const requests = 20
	plain := serve.Route{Method: "POST", Pattern: "/things", Operation: "do", Roles: auth.Roles}
	with := func(change func(rt *serve.Route)) serve.Route {
		rt := plain
		change(&rt)
		return rt
	}
	held := func(rt *serve.Route) { rt.Limit = serve.Held }
	reserved := func(rt *serve.Route) { rt.Reserved = true }
	for name, c := range map[string]struct {
		route      serve.Route
		bytes      int // size of the body
		inProgress int32
		hold       bool // the verb holds the request
		slow       bool // the caller reads the response slowly
	}{
		"small":                 {plain, 2, 2, false, false},
		"held":                  {with(held), 2, requests, false, false},
		"a small outcome":       {with(reserved), 2, requests, false, false},
		"a large outcome":       {with(reserved), 512 << 10, 1, false, false},
		"held after its work":   {plain, 2, requests, true, false},
		"without a body":        {plain, 0, 2, false, false},
		"read by a slow caller": {plain, 2, requests, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := limitedPipeline()
				var began, refusals atomic.Int32
				end := make(chan struct{})
				c.route.Shape.MaxBody = 1 << 20
				for range requests {
					go func() {
						body := strings.NewReader(strings.Repeat("1", c.bytes))
						r := httptest.NewRequestWithContext(t.Context(), c.route.Method, "http://localhost/things", body)
						r.RemoteAddr = "127.0.0.1:1"
						r.Header.Set("Content-Type", "application/json")
						recorder := httptest.NewRecorder()
						var w http.ResponseWriter = recorder
						if c.slow {
							w = slowWriter{recorder, end}
						}
						p.Serve(&exchange{Call: serve.NewCall(w, r, c.route), verb: func(call *serve.Call) (serve.Response, error) {
							if _, err := call.Body(); err != nil {
								return serve.Response{}, err
							}
							if began.Add(1); c.hold {
								call.Hold()
							}
							if !c.slow {
								<-end
							}
							return serve.Response{Status: http.StatusOK, Body: 1}, nil
						}})
						if recorder.Code == http.StatusTooManyRequests {
							refusals.Add(1)
						}
					}()
				}
				synctest.Wait()
				if n := began.Load(); n != c.inProgress {
					t.Errorf("%d of %d requests are in progress, want %d", n, requests, c.inProgress)
				}
				time.Sleep(6 * time.Second) // longer than a request may wait
				synctest.Wait()
				n, refused, counted := began.Load(), refusals.Load(), p.Admission.Stats().Refused
				if want := requests - c.inProgress; c.route.Reserved && (n != requests || refused != 0) ||
					!c.route.Reserved && refused != want || counted != int64(refused) {
					t.Errorf("after the maximum wait %d requests were served, %d refused and %d counted", n, refused, counted)
				}
				close(end)
				synctest.Wait()
			})
		})
	}
}

// A caller that sends its body slowly takes no place.
func TestSlowBodiesOccupyNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limitedPipeline()
		var served atomic.Int32
		send := func(body io.Reader) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/things", body)
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set("Content-Type", "application/json")
			rt := serve.Route{Method: "POST", Pattern: "/things", Operation: "do", Roles: auth.Roles}
			p.Serve(&exchange{
				Call: serve.NewCall(httptest.NewRecorder(), r, rt),
				verb: func(c *serve.Call) (serve.Response, error) {
					_, err := c.Body()
					if err == nil {
						served.Add(1)
					}
					return serve.Response{Status: http.StatusOK, Body: 1}, err
				},
			})
		}
		body, rest := io.Pipe()
		for range 10 {
			go send(body)
		}
		synctest.Wait()
		send(strings.NewReader(`1`))
		if n := served.Load(); n != 1 {
			t.Errorf("%d requests were served next to slow bodies, want 1", n)
		}
		_ = rest.Close()
		synctest.Wait()
	})
}
