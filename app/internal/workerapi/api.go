// Package workerapi serves the worker protocol over HTTP: it decodes and authorises requests, calls methods of the
// broker and encodes responses.
package workerapi

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/admission"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Claims are the requests of clients that name a task by its ID.
type Claims interface {
	LeaseTask(context.Context, protocol.LeaseRequest) (protocol.PollResponse, error)
	LeaseStatus(context.Context, protocol.LeaseRequest) (protocol.LeaseStatus, error)
	AttemptStatus(context.Context, protocol.HeartbeatRequest) (protocol.AttemptStatus, error)
}

// Workers provides information about registered workers.
type Workers interface {
	// SDK returns the SDK and version of a worker's registration; empty if the worker is not registered.
	SDK(ctx context.Context, namespace, worker string) string
}

// Options of the worker protocol.
type Options struct {
	Verbs   protocol.WorkerVerbs
	Claims  Claims
	Workers Workers
	Auth    *auth.Auth
	Log     zerolog.Logger
	Observe func(operation string, status int, took time.Duration) // called after every response; nil: no counts
	// Unknown counts unknown members of requests; nil: they are not counted.
	Unknown func(operation string, members int)
	// Settings returns the settings of Sojourn workers; nil: the app has none.
	Settings func(namespace string) protocol.WorkerSettings
	MaxPolls int // maximum of polls that are held at once: 10,000
	// HasNamespace returns an error for a namespace that does not exist; nil: all namespaces exist.
	HasNamespace func(ctx context.Context, name string) error
	Budget       *budget.Budget     // bytes in flight; nil: no limit
	Admission    *admission.Limiter // requests in progress; nil: no limit
}

// API is the handler of everything below /api/worker/.
type API struct {
	opt          Options
	mux          *http.ServeMux
	pipe         serve.Pipeline
	capabilities protocol.ServerCapabilities
	tail         []byte         // members that all responses contain, including errors
	held         *budget.Budget // limits the polls that are held at once
}

// New returns the handler.
func New(o Options) *API {
	if o.MaxPolls <= 0 {
		o.MaxPolls = maxPolls
	}
	a := &API{opt: o, mux: http.NewServeMux(), capabilities: capabilities(), held: budget.Places(o.MaxPolls)}
	can, err := httpjson.Encode(a.capabilities)
	if err != nil {
		panic("workerapi: capabilities: " + err.Error())
	}
	a.tail = append(httpjson.Member("protocol_version", []byte(`"`+Version+`"`)), ',')
	a.tail = append(a.tail, httpjson.Member("server_capabilities", can)...)
	a.pipe = serve.Pipeline{
		Auth: o.Auth, HasNamespace: o.HasNamespace, Header: VersionHeader, Version: Version, CheckVersion: checkVersion,
		Broken:  httpjson.Append([]byte(`{"reason":"internal","error":"internal error","message":"internal error"}`), a.tail),
		Observe: o.Observe, Log: o.Log, Budget: o.Budget, Admission: o.Admission,
	}
	for _, rt := range routeTable() {
		rt.Shape = shapes[rt.Operation]
		a.mux.HandleFunc(rt.Method+" "+rt.Pattern, func(w http.ResponseWriter, r *http.Request) {
			a.pipe.Serve(&call{Call: serve.NewCall(w, r, rt.Route), api: a, rt: rt})
		})
	}
	return a
}

// Protocol returns the protocol version and the capabilities of the server for the cluster info.
func (a *API) Protocol() (version string, capabilities protocol.ServerCapabilities) {
	return Version, a.capabilities
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.pipe.Routed(a.mux, w, r, func() serve.Exchange {
		rt := route{Route: serve.Route{Operation: "unknown"}}
		return &call{Call: serve.NewCall(w, r, rt.Route), api: a, rt: rt}
	})
}

// call is one request to the broker.
type call struct {
	*serve.Call
	api *API
	rt  route

	refused     map[string]any          // members of an error response in addition to the error's own
	statuses    map[protocol.Reason]int // statuses of this route that replace the default of a reason
	undelivered func()                  // called if the response cannot be delivered
}

// addErrorMember adds a member to the response in case it is an error.
func (c *call) addErrorMember(name string, value any) {
	if c.refused == nil {
		c.refused = map[string]any{}
	}
	c.refused[name] = value
}

// response is the result of a verb: a status and a body.
type response struct {
	status int
	body   any
}

// Do calls the verb in the caller's name.
func (c *call) Do() (serve.Response, error) {
	c.Ctx = auth.With(c.Ctx, c.Principal)
	if err := c.ReadQuery(auth.NamespaceParameter); err != nil {
		return serve.Response{}, err
	}
	out, err := c.rt.verb(c.api, c)
	if n := c.Unknown.Count; n > 0 && c.api.opt.Unknown != nil {
		c.api.opt.Unknown(c.rt.Operation, n)
	}
	if err == nil && c.Context().Err() != nil {
		err = context.Cause(c.Context()) // the caller has disconnected and cannot read the response
	}
	return serve.Response{Status: out.status, Body: out.body}, err
}

// Failed undoes what a verb acquired for its caller, such as leases, and converts an error with an unknown outcome into
// its form.
func (c *call) Failed(err error) error {
	c.ResponseLost()
	return c.outcome(c.rt, err)
}

// ResponseLost undoes what a verb acquired for a caller that did not receive the response.
func (c *call) ResponseLost() {
	if c.undelivered != nil {
		c.undelivered()
	}
}

// Status returns the status of the reason, unless the route replaces it.
func (c *call) Status(e *protocol.Error) int {
	if s, ok := c.statuses[e.Reason]; ok {
		return s
	}
	return e.Reason.Status()
}

// Members returns the members of an error response: the members that the verb set, the error's own, and its message in
// the member that clients of the contract read.
func (c *call) Members(e *protocol.Error, status int) map[string]any {
	body := maps.Clone(c.refused)
	if body == nil {
		body = map[string]any{}
	}
	maps.Copy(body, httpjson.Members(e))
	body["error"] = e.Message
	if _, admits := body["admitted"]; admits {
		body["status"] = status
	}
	return body
}

// AddEnvelope adds the protocol version and the server's capabilities, except to their own documents.
func (c *call) AddEnvelope(status int, _ any, raw []byte) ([]byte, error) {
	if c.rt.Shape.Bare && status < http.StatusBadRequest {
		return raw, nil
	}
	return append(append(httpjson.Reopen(raw), c.api.tail...), '}'), nil
}

// namespace returns an error for a body that names another namespace than the request: the caller's access was checked
// for the request's namespace only.
func (c *call) namespace(name *string) error {
	if *name != "" && *name != c.NS {
		return protocol.Invalid("namespace", "is not the namespace of the request (%s); set the header X-Namespace", c.NS)
	}
	*name = c.NS
	return nil
}
