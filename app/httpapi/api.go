// Package httpapi serves the control plane and everything else on the app's port: it decodes, authorises, calls one verb of the broker and encodes.
package httpapi

import (
	"context"
	"maps"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Broker is what the control plane's routes ask for.
type Broker interface {
	Namespaces
	Queues
	Deployments
	Schedules
	Retention
	Passes
	Attributes
	Diagnostics
	Following
	Imports
	Start(context.Context, protocol.StartRequest) (protocol.StartAnswer, error)
	Signal(context.Context, protocol.SignalRequest) (protocol.CommandReceipt, error)
	Update(context.Context, protocol.UpdateRequest) (protocol.UpdateAnswer, error)
	Query(context.Context, protocol.QueryRequest) (protocol.QueryAnswer, error)
	Cancel(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	Terminate(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	RequestCancellation(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	Repair(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	Archive(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error)
	Describe(context.Context, protocol.Target) (protocol.RunView, error)
	List(context.Context, protocol.ListRequest) (protocol.ListAnswer, error)
	Runs(context.Context, protocol.Target) ([]protocol.RunView, error)
	History(context.Context, protocol.HistoryQuery) (protocol.HistoryPage, error)
	Workers(ctx context.Context, namespace, queue, status string) ([]protocol.WorkerView, error)
	Worker(ctx context.Context, namespace, id string) (protocol.WorkerView, error)
	Deregister(context.Context, protocol.DeregisterRequest) (protocol.DeregisterAnswer, error)
	Sessions(context.Context, protocol.SessionList) (protocol.SessionPage, error)
	Session(ctx context.Context, namespace, id string) (protocol.SessionView, error)
	SessionTimeline(context.Context, protocol.SessionTimeline) (protocol.SessionTimelinePage, error)
	SessionAttempts(context.Context, protocol.SessionAttempts) (protocol.SessionAttemptPage, error)
	OperateSession(context.Context, protocol.SessionOperation) (protocol.SessionView, error)
	Overview(ctx context.Context, namespace string) (protocol.Overview, error)
	Release() string
	Ready(context.Context) error
	Audit(context.Context, store.Audit) error
	Audits(ctx context.Context, namespace string, limit int) ([]store.Audit, error)
}

// WorkerAPI is the worker protocol below /api/worker/, and what cluster info says of it.
type WorkerAPI interface {
	http.Handler
	Protocol() (version string, capabilities protocol.ServerCapabilities)
}

// Options of the control plane. Handlers that are nil are not there: their paths are unknown.
type Options struct {
	Broker    Broker
	Auth      *auth.Auth
	WorkerAPI WorkerAPI
	Socket    http.Handler         // /api/socket.io; it asks Auth by itself
	Dashboard http.Handler         // everything outside /api
	Registry  *prometheus.Registry // what /metrics shows; nil: one of its own
	Metrics   *Metrics             // counts the answers; nil: made on the registry
	App       string               // id of this process
	Log       zerolog.Logger
}

// API is the handler of the whole port.
type API struct {
	opt  Options
	mux  *http.ServeMux
	info protocol.ClusterInfo // but for the namespace
}

// New makes the handler.
func New(o Options) *API {
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(o.Registry)
	}
	a := &API{opt: o, mux: http.NewServeMux()}
	a.info = a.clusterInfo()
	for _, rt := range table() {
		a.mux.HandleFunc(rt.Method+" "+rt.Pattern, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, rt) })
	}
	return a
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := r.URL.Path
	switch {
	case p == "/api/socket.io" || strings.HasPrefix(p, "/api/socket.io/"):
		if a.opt.Socket != nil {
			a.opt.Socket.ServeHTTP(w, r)
			return
		}
	case strings.HasPrefix(p, "/api/worker/"):
		if a.opt.WorkerAPI != nil {
			a.opt.WorkerAPI.ServeHTTP(w, r)
			return
		}
	case p == "/api" || strings.HasPrefix(p, "/api/") || p == "/up" || p == "/healthz" || p == "/readyz" || p == "/metrics":
	case a.opt.Dashboard != nil:
		a.opt.Dashboard.ServeHTTP(w, r)
		return
	}
	if status, allow := httpjson.Unrouted(a.mux, r); status != 0 {
		rt := route{flow: p == "/api/workflows" || strings.HasPrefix(p, "/api/workflows/"), Route: auth.Route{Operation: "unknown"}}
		a.refuse(&call{Request: r, w: w, rt: rt}, httpjson.NoRoute(w, r, status, allow))
		return
	}
	a.mux.ServeHTTP(w, r)
}

// call is one request on its way to the broker.
type call struct {
	*http.Request
	w   http.ResponseWriter
	rt  route
	ctx context.Context
	who *auth.Principal
	ns  string

	about string // what an audited request is about, when its path does not say it
}

// read decodes the body.
func (c *call) read(v any) error { return httpjson.Read(c.w, c.Request, httpjson.MaxBody, v) }

// target is the run the path speaks of: the workflow's current one unless it names one.
func (c *call) target() protocol.Target {
	return protocol.Target{Namespace: c.ns, WorkflowID: c.PathValue("workflow"), RunID: c.PathValue("run")}
}

// answer is what a verb says: a status and a body. Without a body the verb has answered by itself.
type answer struct {
	status int
	body   any
}

func ok(body any, err error) (answer, error) { return answer{http.StatusOK, body}, err }

// serve takes a request through the checks in their order: who calls, its role, the version, the namespace, the body.
func (a *API) serve(w http.ResponseWriter, r *http.Request, rt route) {
	began, status := time.Now(), 0
	c := &call{Request: r, w: w, rt: rt}
	defer func() {
		if p := recover(); p != nil {
			if p == any(http.ErrAbortHandler) {
				panic(p)
			}
			a.opt.Log.Error().Str("operation", rt.Operation).Interface("panic", p).Bytes("stack", debug.Stack()).Msg("handler panicked")
			status = a.refuse(c, protocol.Refuse(protocol.ReasonInternal, "internal error"))
		}
		a.opt.Metrics.Observe(rt.Operation, status, time.Since(began))
	}()
	said, err := a.run(c)
	if err != nil {
		status = a.refuse(c, err)
		return
	}
	if status = said.status; said.body != nil {
		a.write(c, said.status, said.body)
	}
}

func (a *API) run(c *call) (answer, error) {
	var err error
	if c.who, err = a.opt.Auth.Admit(c.Request, c.rt.Route); err != nil {
		return answer{}, err
	}
	demanded := c.rt.Plane == auth.Control && !c.rt.Sojourn
	if demanded && c.who != nil && c.who.Method != auth.ByCookie {
		if err := checkVersion(c.Header.Get(VersionHeader)); err != nil {
			return answer{}, err
		}
	}
	about := auth.Namespace
	if c.rt.Anywhere {
		about = auth.Begins // who a caller is, and what it may see, is told whatever namespace it is bound to
	}
	if c.ns, err = about(c.Request, c.who); err != nil {
		return answer{}, err
	}
	if !c.rt.Anywhere && !c.rt.Open() {
		if err := a.opt.Broker.HasNamespace(c.Context(), c.ns); err != nil {
			return answer{}, err
		}
	}
	if err := httpjson.CheckPath(c.Request, c.rt.Pattern); err != nil {
		return answer{}, err
	}
	limit := c.rt.limit
	if limit == 0 {
		limit = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	c.ctx = ctx
	said, err := c.rt.verb(a, c)
	if err == nil && c.rt.audit != "" {
		a.record(c)
	}
	return said, err
}

// record notes an operator's action that no other write carries. The action has happened: what is wrong with the note is for the log.
func (a *API) record(c *call) {
	target := c.PathValue("workflow")
	if target == "" {
		target = c.PathValue("worker")
	}
	if c.about != "" {
		target = c.about
	}
	err := a.opt.Broker.Audit(c.ctx, store.Audit{
		Identity: c.who.Name, Action: c.rt.audit, Namespace: c.ns, Target: target, Detail: c.PathValue("run"),
	})
	if err != nil {
		a.opt.Log.Error().Err(err).Str("action", c.rt.audit).Str("target", target).Msg("note an operator's action")
	}
}

func (a *API) write(c *call, status int, body any) {
	raw, err := httpjson.Encode(body)
	if err == nil && c.rt.flow {
		var beside []byte
		if beside, err = controlPlane(c, status, body); err == nil {
			raw = httpjson.Append(raw, httpjson.Member("control_plane", beside))
		}
	}
	if err != nil {
		a.opt.Log.Error().Err(err).Str("operation", c.rt.Operation).Msg("encode an answer")
		status, raw = http.StatusInternalServerError, []byte(`{"reason":"internal","message":"internal error"}`)
	}
	c.w.Header().Set(VersionHeader, Version)
	if err := httpjson.Write(c.w, c.Request, status, raw); err != nil {
		a.opt.Log.Debug().Err(err).Str("operation", c.rt.Operation).Msg("the caller did not take the answer")
	}
}

// refuse answers with a refusal and returns the status.
func (a *API) refuse(c *call, err error) int {
	e := httpjson.Refusal(store.Refusal(err))
	status := e.Reason.Status()
	if c.Context().Err() != nil {
		return 499 // the caller hung up; logs of proxies know this number
	}
	body := httpjson.Members(e)
	if c.rt.flow {
		maps.Copy(body, rejected(c, e))
	}
	httpjson.Hints(c.w, status)
	if status >= http.StatusInternalServerError {
		a.opt.Log.Error().Err(err).Str("operation", c.rt.Operation).Int("status", status).Msg("request failed")
	}
	a.write(c, status, body)
	return status
}
