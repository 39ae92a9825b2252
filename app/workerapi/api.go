// Package workerapi serves the worker protocol over HTTP: it decodes, authorises, calls one verb of the broker and encodes.
package workerapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Broker is what the worker protocol asks of the control plane.
type Broker interface {
	Register(context.Context, protocol.RegisterRequest) (protocol.RegisterAnswer, error)
	Deregister(context.Context, protocol.DeregisterRequest) (protocol.DeregisterAnswer, error)
	WorkerHeartbeat(context.Context, protocol.WorkerHeartbeat) (protocol.WorkerHeartbeatAnswer, error)
	Poll(context.Context, protocol.PollRequest) (protocol.PollAnswer, error)
	Complete(context.Context, protocol.CompleteRequest) (protocol.CompleteBatchAnswer, error)
	HeartbeatTask(context.Context, protocol.HeartbeatRequest) (protocol.HeartbeatAnswer, error)
	ClaimTask(context.Context, protocol.ClaimRequest) (protocol.PollAnswer, error)
	ClaimStatus(context.Context, protocol.ClaimRequest) (protocol.ClaimStatus, error)
	AttemptStatus(context.Context, protocol.HeartbeatRequest) (protocol.AttemptStatus, error)
	HistoryPage(context.Context, protocol.HistoryRequest) (protocol.HistoryPage, error)
	CreateSession(context.Context, protocol.SessionCreate) (protocol.SessionAnswer, error)
	HeartbeatSession(context.Context, protocol.SessionVerb) (protocol.SessionAnswer, error)
	ReleaseSession(context.Context, protocol.SessionVerb) (protocol.SessionAnswer, error)
	CloseSession(context.Context, protocol.SessionVerb) (protocol.SessionAnswer, error)
	// SDK is what a worker registered as its SDK and version; empty for one that is not registered.
	SDK(ctx context.Context, namespace, worker string) string
}

// Options of the worker protocol.
type Options struct {
	Broker  Broker
	Auth    *auth.Auth
	Log     zerolog.Logger
	Observe func(operation string, status int, took time.Duration) // called after every answer; nil: nobody counts
	// Settings is what workers of ours are handed; nil: nothing.
	Settings func() protocol.WorkerSettings
	// HasNamespace refuses a namespace that is not there; nil: all are.
	HasNamespace func(ctx context.Context, name string) error
}

// API is the handler of everything below /api/worker/.
type API struct {
	opt          Options
	mux          *http.ServeMux
	capabilities protocol.ServerCapabilities
	tail         []byte // the members that answers carry, errors included
}

// New makes the handler.
func New(o Options) *API {
	a := &API{opt: o, mux: http.NewServeMux(), capabilities: capabilities()}
	can, err := httpjson.Encode(a.capabilities)
	if err != nil {
		panic("workerapi: capabilities: " + err.Error())
	}
	a.tail = append(httpjson.Member("protocol_version", []byte(`"`+Version+`"`)), ',')
	a.tail = append(a.tail, httpjson.Member("server_capabilities", can)...)
	for _, rt := range table() {
		rt.Shape = shapes[rt.Operation]
		a.mux.HandleFunc(rt.Method+" "+rt.Pattern, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, rt) })
	}
	return a
}

// Protocol is the advertised version and what the server can do, as cluster info shows them.
func (a *API) Protocol() (version string, capabilities protocol.ServerCapabilities) {
	return Version, a.capabilities
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if status, allow := httpjson.Unrouted(a.mux, r); status != 0 {
		a.refuse(w, r, httpjson.NoRoute(w, r, status, allow), nil, nil)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// call is one request on its way to the broker.
type call struct {
	*http.Request
	w   http.ResponseWriter
	ctx context.Context
	who *auth.Principal
	ns  string

	refused     map[string]any          // members a refusal carries beside its own
	statuses    map[protocol.Reason]int // statuses this verb answers with instead of a reason's own
	undelivered func()                  // what to do when the answer cannot be delivered
}

// tell adds a member to the answer in case it is a refusal.
func (c *call) tell(name string, value any) {
	if c.refused == nil {
		c.refused = map[string]any{}
	}
	c.refused[name] = value
}

// read decodes the body.
func (c *call) read(v any) error { return httpjson.Read(c.w, c.Request, httpjson.MaxBody, v) }

// answer is what a verb says: a status and a body.
type answer struct {
	status int
	body   any
}

// serve takes a request through the checks in their order: who calls, its role, the version, the namespace, the body.
func (a *API) serve(w http.ResponseWriter, r *http.Request, rt route) {
	began := time.Now()
	c := &call{Request: r, w: w}
	status := 0
	defer func() {
		if p := recover(); p != nil {
			if p == any(http.ErrAbortHandler) {
				panic(p)
			}
			a.opt.Log.Error().Str("operation", rt.Operation).Interface("panic", p).Bytes("stack", debug.Stack()).Msg("handler panicked")
			status = a.refuse(w, r, protocol.Refuse(protocol.ReasonInternal, "internal error"), c.refused, nil)
			if c.undelivered != nil {
				c.undelivered()
			}
		}
		if a.opt.Observe != nil {
			a.opt.Observe(rt.Operation, status, time.Since(began))
		}
	}()
	said, err := a.run(c, rt)
	if err != nil {
		if c.undelivered != nil {
			c.undelivered()
		}
		status = a.refuse(w, r, err, c.refused, c.statuses)
		return
	}
	status = said.status
	tail := a.tail
	if rt.Shape.Bare {
		tail = nil
	}
	if err := a.write(w, r, said.status, said.body, tail); err != nil && c.undelivered != nil {
		c.undelivered()
	}
}

func (a *API) run(c *call, rt route) (answer, error) {
	var err error
	if c.who, err = a.opt.Auth.Admit(c.Request, rt.Route); err != nil {
		return answer{}, err
	}
	if !rt.Sojourn {
		if err := checkVersion(c.Header.Get(VersionHeader)); err != nil {
			return answer{}, err
		}
	}
	if c.ns, err = auth.Namespace(c.Request, c.who); err != nil {
		return answer{}, err
	}
	if a.opt.HasNamespace != nil {
		if err := a.opt.HasNamespace(c.Context(), c.ns); err != nil {
			return answer{}, err
		}
	}
	if err := httpjson.CheckPath(c.Request, rt.Pattern); err != nil {
		return answer{}, err
	}
	limit := rt.limit
	if limit == 0 {
		limit = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	c.ctx = ctx
	said, err := rt.verb(a, c)
	if err == nil && c.Context().Err() != nil {
		return answer{}, context.Cause(c.Context()) // the caller is gone: nobody would read the answer
	}
	return said, err
}

// namespace refuses a body that speaks of another namespace than the request, whose caller was checked for that one only.
func (c *call) namespace(said *string) error {
	if *said != "" && *said != c.ns {
		return protocol.Invalid("namespace", "the request is about namespace %s; send X-Namespace to change that", c.ns)
	}
	*said = c.ns
	return nil
}

// write sends an answer with the members of tail behind its own.
func (a *API) write(w http.ResponseWriter, r *http.Request, status int, body any, tail []byte) error {
	raw, err := httpjson.Encode(body)
	if err != nil {
		a.opt.Log.Error().Err(err).Str("path", r.URL.Path).Msg("encode an answer")
		status, raw = http.StatusInternalServerError, []byte(`{"reason":"internal","error":"internal error","message":"internal error"}`)
	}
	if len(tail) > 0 {
		raw = httpjson.Append(raw, tail)
	}
	w.Header().Set(VersionHeader, Version)
	written := httpjson.Write(w, r, status, raw)
	return errors.Join(err, written)
}

// refuse answers with a refusal and returns the status.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error, beside map[string]any, statuses map[protocol.Reason]int) int {
	e := httpjson.Refusal(store.Refusal(err))
	status := e.Reason.Status()
	if s, ok := statuses[e.Reason]; ok {
		status = s
	}
	if r.Context().Err() != nil {
		return 499 // the caller hung up; logs of proxies know this number
	}
	body := maps.Clone(beside)
	if body == nil {
		body = map[string]any{}
	}
	maps.Copy(body, httpjson.Members(e))
	body["error"] = e.Message
	if _, admits := body["admitted"]; admits {
		body["status"] = status
	}
	httpjson.Hints(w, status)
	if status >= http.StatusInternalServerError {
		a.opt.Log.Error().Err(err).Str("path", r.URL.Path).Int("status", status).Msg("request failed")
	}
	_ = a.write(w, r, status, body, a.tail) // nobody is left to tell
	return status
}
