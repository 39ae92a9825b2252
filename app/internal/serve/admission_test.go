package serve_test

import (
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
		hold, slow bool
	}{
		"small":                 {plain, 2, 2, false, false},
		"held":                  {with(held), 2, requests, false, false},
		"a small outcome":       {with(reserved), 2, requests, false, false},
		"a large outcome":       {with(reserved), 512 << 10, 1, false, false},
		"held after its work":   {plain, 2, requests, true, false},
		"read by a slow caller": {plain, 2, requests, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := serve.Pipeline{
					Auth: auth.New(auth.Options{None: true}), Header: "Version", Version: "1", Log: zerolog.Nop(),
					CheckVersion: func(string) error { return nil },
					Admission: admission.New(admission.Options{
						OthersActive: func(string) bool { return true },
						Delay:        func() time.Duration { return time.Second }, Processors: 1,
					}),
				}
				var began, refusals atomic.Int32
				end := make(chan struct{})
				c.route.Shape.MaxBody = 1 << 20
				for range requests {
					go func() {
						body := strings.NewReader(`"` + strings.Repeat("x", c.bytes-2) + `"`)
						r := httptest.NewRequestWithContext(t.Context(), c.route.Method, "http://localhost/things", body)
						r.RemoteAddr = "127.0.0.1:1"
						r.Header.Set("Content-Type", "application/json")
						recorder := httptest.NewRecorder()
						var w http.ResponseWriter = recorder
						if c.slow {
							w = slowWriter{recorder, end}
						}
						p.Serve(&exchange{Call: serve.NewCall(w, r, c.route), verb: func(call *serve.Call) (serve.Response, error) {
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
				n, refused := began.Load(), refusals.Load()
				if want := requests - c.inProgress; c.route.Reserved && (n != requests || refused != 0) ||
					!c.route.Reserved && refused != want {
					t.Errorf("after the maximum wait %d requests were served and %d refused", n, refused)
				}
				close(end)
				synctest.Wait()
			})
		})
	}
}
