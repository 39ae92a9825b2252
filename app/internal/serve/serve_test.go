package serve_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// exchange is a call of a fake API. It records which methods were called.
type exchange struct {
	*serve.Call
	verb func(*serve.Call) (serve.Response, error)
	got  []string
}

func (x *exchange) Do() (serve.Response, error) { return x.verb(x.Call) }

func (x *exchange) Failed(err error) error {
	x.got = append(x.got, "failed")
	return err
}

func (x *exchange) Status(e *protocol.Error) int { return e.Reason.Status() }

func (x *exchange) Members(e *protocol.Error, _ int) map[string]any { return httpjson.Members(e) }

func (x *exchange) AddEnvelope(_ int, _ any, raw []byte) ([]byte, error) {
	return httpjson.Append(raw, httpjson.Member("beside", []byte("1"))), nil
}

func (x *exchange) ResponseLost() { x.got = append(x.got, "lost") }

// brokenWriter is a caller that cannot receive the response.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, http.ErrHandlerTimeout }

// Every request is counted once under its status, and a lost response calls Lost, so that the API can undo its
// effects.
func TestEveryRequestIsAnsweredAndCountedOnce(t *testing.T) {
	type body struct {
		Name string `json:"name"`
	}
	rt := serve.Route{
		Method: "POST", Pattern: "/things/{thing}", Operation: "do", Roles: auth.Roles, Limit: time.Second,
		Shape: serve.Shape{Needs: []string{"name"}, MaxBody: 32},
	}
	reply := func(c *serve.Call) (serve.Response, error) {
		var in body
		err := c.Need(&in)
		return serve.Response{Status: 201, Body: in}, err
	}
	for name, c := range map[string]struct {
		body, version string
		gone, broken  bool
		anywhere      bool
		verb          func(*serve.Call) (serve.Response, error)
		status        int
		reason, got   string
	}{
		"an answer": {body: `{"name":"n"}`, version: "1", verb: reply, status: 201},
		"another version": {
			body: `{"name":"n"}`, version: "2", verb: reply, status: 400, reason: "unsupported_protocol_version", got: "failed",
		},
		"no such namespace": {
			version: "1", body: `{}`, verb: reply, status: 404, reason: "namespace_not_found", got: "failed",
		},
		"without what it needs": {
			body: `{}`, version: "1", verb: reply, status: 422, reason: "validation_failed", got: "failed",
		},
		"longer than its shape": {
			body: `{"name":"` + strings.Repeat("n", 32) + `"}`, version: "1", verb: reply, status: 413,
			reason: "payload_too_large", got: "failed",
		},
		"a verb that panics": {version: "1", verb: func(*serve.Call) (serve.Response, error) {
			panic("at the disco")
		}, status: 500, reason: "internal", got: "failed"},
		"a verb over its limit": {version: "1", verb: func(c *serve.Call) (serve.Response, error) {
			<-c.Ctx.Done()
			return serve.Response{}, c.Ctx.Err()
		}, status: 503, got: "failed"},
		"a response that the verb builds": {version: "1", verb: func(c *serve.Call) (serve.Response, error) {
			c.W.WriteHeader(202)
			return serve.Response{Status: 202}, nil
		}, status: 202},
		"a caller that hung up": {version: "1", gone: true, verb: func(c *serve.Call) (serve.Response, error) {
			return serve.Response{}, c.Ctx.Err()
		}, status: serve.HungUp, got: "failed"},
		"a lost connection":        {body: `{"name":"n"}`, version: "1", broken: true, verb: reply, status: 201, got: "lost"},
		"a namespace not asked of": {body: `{"name":"n"}`, version: "1", anywhere: true, verb: reply, status: 201},
	} {
		t.Run(name, func(t *testing.T) {
			var counted []string
			p := serve.Pipeline{
				Auth: auth.New(auth.Options{None: true}), Header: "Version", Version: "1", Log: zerolog.Nop(),
				CheckVersion: func(reply string) error {
					if reply != "1" {
						return protocol.Refuse(protocol.ReasonUnsupportedVersion, "not %s", reply)
					}
					return nil
				},
				HasNamespace: func(context.Context, string) error {
					if c.anywhere || name == "no such namespace" {
						return protocol.Refuse(protocol.ReasonNamespaceNotFound, "not there")
					}
					return nil
				},
				Observe: func(operation string, status int, _ time.Duration) {
					counted = append(counted, fmt.Sprint(operation, " ", status))
				},
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.gone {
				cancel()
			}
			r := httptest.NewRequestWithContext(ctx, rt.Method, "http://localhost/things/a", strings.NewReader(c.body))
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set("Version", c.version)
			r.Header.Set("Content-Type", "application/json")
			rec := httptest.NewRecorder()
			var w http.ResponseWriter = rec
			if c.broken {
				w = brokenWriter{rec}
			}
			rt := rt
			rt.Anywhere = c.anywhere
			x := &exchange{Call: serve.NewCall(w, r, rt), verb: c.verb}
			func() {
				// The connection of a caller that disconnected is aborted, since an empty 200 would look like success.
				defer func() {
					if broke := recover(); (broke == any(http.ErrAbortHandler)) != c.gone {
						t.Errorf("the handler ended with %v", broke)
					}
				}()
				p.Serve(x)
			}()
			if want := fmt.Sprint("do ", c.status); !slices.Equal(counted, []string{want}) {
				t.Errorf("counted %q, want %q", counted, want)
			}
			if got := strings.Join(x.got, " "); got != c.got {
				t.Errorf("the plane received %q, want %q", got, c.got)
			}
			if raw := rec.Body.String(); c.reason != "" &&
				(rec.Code != c.status || !strings.Contains(raw, `"reason":"`+c.reason+`"`)) {
				t.Errorf("answered %d %s", rec.Code, raw)
			}
			if raw := rec.Body.String(); raw != "" &&
				(!strings.Contains(raw, `"beside":1`) || rec.Header().Get("Version") != "1") {
				t.Errorf("nothing beside the answer: %v %s", rec.Header(), raw)
			}
		})
	}
}
