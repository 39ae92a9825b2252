// Package serve is the request pipeline of both HTTP APIs: routing, limits, authentication, memory budget, typed
// errors.
//
// Every request passes the same checks in the same order: caller, role, protocol version, namespace, path parameters,
// deadline. Every response is encoded and counted here. The APIs express their differences in an Exchange, so a check
// that is added here applies to both.
package serve

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/admission"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/internal/connlimit"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Pipeline checks each request of one HTTP API (the control API or the worker API), runs its handler and writes its
// response.
type Pipeline struct {
	Auth *auth.Auth
	// rejects a namespace that does not exist; nil: all namespaces exist
	HasNamespace func(ctx context.Context, name string) error

	Header, Version string                     // header with the version of the API in every response
	CheckVersion    func(version string) error // checks the version in Header of a request to the contract's routes
	Dashboard       bool                       // a caller with the dashboard's cookie need not send a version
	Broken          []byte                     // the body if a response cannot be encoded

	Budget    *budget.Budget     // bytes in flight; nil: no limit
	Admission *admission.Limiter // requests in progress; nil: no limit

	Observe func(operation string, status int, took time.Duration) // called after every response; nil: no counts
	Log     zerolog.Logger
}

// Call is one request on its way to its handler.
type Call struct {
	*http.Request
	W     http.ResponseWriter
	Route Route

	// Results of the checks. Ctx is the handler's context: it ends when the caller disconnects, at the route's limit
	// and, for a held request, when its caller loses access.
	Ctx       context.Context
	Principal *auth.Principal // nil on open routes
	NS        string          // the namespace

	// Unknown lists the members of the request that the route does not read. Strict rejects a request that has any.
	Unknown httpjson.Unknown
	Strict  bool

	raw      []byte          // the body; nil: not read yet
	inFlight budget.Grant    // bytes of the body and of the response
	loads    budget.Context  // counts the bytes that are loaded for the response
	place    admission.Place // among the requests in progress
	pipeline *Pipeline       // whose limits apply to the request
	full     bool            // it was rejected because no bytes were free
	cutter   cutter

	parameters url.Values // parameters of the query; nil: not parsed

	auth    *auth.Auth
	end     func()        // releases Ctx
	began   time.Time     // start of the request
	working time.Duration // duration until the request was held; 0: it was not held
}

// Exchange is a call of one API. The API has a type for its calls, which embeds Call.
type Exchange interface {
	base() *Call

	// Do runs the route's verb.
	Do() (Response, error)
	// Failed converts the error of a check or verb into the error for the caller.
	Failed(err error) error
	// Status returns the HTTP status of an error, and Members the members of its body.
	Status(e *protocol.Error) int
	Members(e *protocol.Error, status int) map[string]any
	// AddEnvelope adds the members of this API's envelope to an encoded response, whose memory it may change.
	AddEnvelope(status int, body any, raw []byte) ([]byte, error)
	// ResponseLost is called when the answer did not reach the caller.
	ResponseLost()
}

// Response is the status and body of a response. Without a body, the handler has written the response itself.
type Response struct {
	Status int
	Body   any
}

// NewCall begins a request of a route.
func NewCall(w http.ResponseWriter, r *http.Request, rt Route) *Call {
	return &Call{Request: r, W: w, Route: rt, cutter: cutter{w: w}}
}

func (c *Call) base() *Call { return c } //nolint:unused // of Exchange: the call type of each API embeds a Call

// maxBody returns the maximum size of the body in bytes.
func (c *Call) maxBody() int64 {
	if c.Route.Shape.MaxBody > 0 {
		return c.Route.Shape.MaxBody
	}
	return httpjson.MaxBody
}

// begin sets the context of the handler, which ends after limit. The context of a held request also ends when the
// caller loses access.
func (c *Call) begin(limit time.Duration, held bool) {
	ctx, release := context.Context(&c.loads), func() {}
	if held {
		ctx, release = c.auth.TrackRequest(ctx, c.Principal)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	c.Ctx, c.end = ctx, func() { cancel(); release() }
}

// Hold makes the rest of a request held, for a handler that has done its work and now waits for an event: Ctx gets the
// limit of held requests, the request counts the bytes of a held request, and the wait does not count in the duration
// of the operation.
func (c *Call) Hold() {
	c.place.Leave()
	c.end()
	c.begin(Held, true)
	c.raw = []byte{} // not nil: it was read
	c.inFlight.Shrink(plainReads)
	c.working = time.Since(c.began)
}

// Body returns the request's body, or nil if there is none.
func (c *Call) Body() (raw []byte, err error) {
	if c.raw == nil {
		c.allowCut(reading)
		c.raw, err = httpjson.Body(c.W, c.Request, c.maxBody())
		c.endCut()
		// The deadline may have passed right after the last byte: then net/http has cancelled the request's context.
		if c.inFlight.WasCut() {
			c.raw, err = nil, overloaded()
			c.W.Header().Set("Connection", "close")
		}
		if err == nil && c.pipeline != nil && c.ContentLength != 0 {
			err = c.pipeline.enter(c)
		}
	}
	return c.raw, err
}

// cutter ends the reading of a request or the writing of its response by a deadline of the connection, when the budget
// needs the bytes of the request for another caller.
type cutter struct {
	w     http.ResponseWriter
	mu    sync.Mutex // guards phase
	phase phase
}

// phase is the phase of a request that the budget may end.
type phase int

const (
	neither phase = iota
	reading       // the body is read
	writing       // the response is written
)

// Cut ends the current phase. It does nothing between phases: by then the connection may serve another request.
func (c *cutter) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch connection := http.NewResponseController(c.w); c.phase { // errors: setting deadlines worked before
	case reading:
		_ = connection.SetReadDeadline(time.Now())
	case writing:
		_ = connection.SetWriteDeadline(time.Now()) // net/http removes it after the request
	case neither:
	}
}

func (c *cutter) enter(p phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = p
}

// allowCut lets the budget end a phase of the request until endCut is called. A request that was cut is not cut again
// while its error is written, not even by a pending Cut.
func (c *Call) allowCut(p phase) {
	if c.inFlight.WasCut() {
		return
	}
	c.cutter.enter(p)
	c.inFlight.MayBeCut(&c.cutter)
}

func (c *Call) endCut() {
	c.inFlight.MayBeCut(nil)
	c.cutter.enter(neither)
}

// ReadSoFar returns the body without its long strings if the request was rejected for its size before it was read: the
// members that the error must repeat.
func (c *Call) ReadSoFar() []byte {
	if c.raw != nil || c.Request.Body == nil {
		return c.raw
	}
	return httpjson.Skim(http.MaxBytesReader(c.W, c.Request.Body, c.maxBody()))
}

func overloaded() error {
	return protocol.Refuse(protocol.ReasonOverloaded, "%v; try again", budget.ErrOverloaded)
}

// A request counts the memory of its body while decoded, encoded and committed, and of the data that it loads.
const (
	bodyFactor  = 6
	plainReads  = 16 << 10
	replyFactor = 2 // an encoded response is in memory as a value and as text

	smallBody = 64 << 10 // body size of a reserved route that never waits for memory
	// size of a request of any route, with all that it counts, that waits only if its caller already uses much memory
	smallRequest = 64 << 10
)

// reserve reserves the bytes of a request in the budget, before its body is read.
func (p *Pipeline) reserve(c *Call) (err error) {
	if p.Budget == nil || c.Route.Open() {
		return nil
	}
	body := c.ContentLength
	switch {
	case c.Request.Body == nil || c.Request.Body == http.NoBody:
		body = 0
	case body > c.maxBody():
		body = 0 // it will be rejected without being read
	case body < 0:
		body = c.maxBody()
	}
	n := bodyFactor*body + max(plainReads, c.Route.Reads)
	c.inFlight.Open(p.Budget, c.Principal.Owner(c.NS))
	switch {
	case c.Route.Reserved && c.ContentLength >= 0 && body <= smallBody, c.Route.Limit == Held && n <= smallRequest:
		// The number of polls is limited, and a claim reserves the memory of their tasks. In a burst of polls, claims
		// hold all bytes for moments; no other poll may be refused for that.
		c.inFlight.Force(n)
		return nil
	case n <= smallRequest && c.inFlight.Small(n):
		return nil
	}
	class := budget.Ordinary
	if c.Route.Reserved {
		class = budget.Reserved
	}
	if err = c.inFlight.Acquire(c.Context(), n, class); errors.Is(err, budget.ErrOverloaded) {
		if body > 0 {
			c.W.Header().Set("Connection", "close") // the body is not waited for
		}
		c.full = true
		return overloaded()
	}
	return err
}

// Read decodes the body.
func (c *Call) Read(v any) error {
	raw, err := c.Body()
	if err != nil {
		return err
	}
	return c.Decode(raw, v)
}

// Decode decodes the body, or a part of it, and adds the members that v does not have to Unknown.
func (c *Call) Decode(raw []byte, v any) error {
	unknown, err := httpjson.DecodeReporting(raw, v)
	c.Unknown.Add(unknown)
	if err == nil && c.Strict {
		err = unknown.Refusal()
	}
	return err
}

// Parameters returns the parameters of the query, which are parsed once. Do not change them.
func (c *Call) Parameters() url.Values {
	if c.parameters == nil {
		c.parameters = c.URL.Query()
	}
	return c.parameters
}

// ReadQuery adds the query parameters that the route does not read to Unknown, and rejects them if the call is strict.
// also names the parameters that every route of the API reads.
func (c *Call) ReadQuery(also ...string) error {
	if c.URL.RawQuery == "" {
		return nil
	}
	unknown := httpjson.UnknownParameters(c.Parameters(), c.Route.Shape.Query, also...)
	c.Unknown.Add(unknown)
	if c.Strict {
		return unknown.Refusal()
	}
	return nil
}

// ReadKnown is Read of a strict call: it rejects a body with members that v does not have.
func (c *Call) ReadKnown(v any) error {
	c.Strict = true
	return c.Read(v)
}

// Need is Read, and also rejects a body without the required members of the route's shape.
func (c *Call) Need(v any) error {
	if err := c.Read(v); err != nil {
		return err
	}
	return httpjson.Missing(v, c.Route.Shape.Needs)
}

// Routed serves a request with the routes of the API, or responds that there is no route. unknown creates the
// exchange for that response.
func (p *Pipeline) Routed(mux *http.ServeMux, w http.ResponseWriter, r *http.Request, unknown func() Exchange) {
	status, allow := httpjson.Unrouted(mux, r)
	if status == 0 {
		mux.ServeHTTP(w, r)
		return
	}
	p.refuse(unknown(), httpjson.NoRoute(w, r, status, allow))
}

// Serve runs the checks and the verb of a request, and writes the response.
func (p *Pipeline) Serve(x Exchange) {
	status := 0
	c := x.base()
	c.began = time.Now()
	defer func() {
		c.place.Leave()
		c.inFlight.Release()
		c.loads.Grant.Release()
	}()
	defer func() {
		if broke := recover(); broke != nil {
			if broke == any(http.ErrAbortHandler) {
				panic(broke)
			}
			p.Log.Error().Str("operation", c.Route.Operation).Interface("panic", broke).Bytes("stack", debug.Stack()).
				Msg("handler panicked")
			status = p.refuse(x, x.Failed(protocol.Refuse(protocol.ReasonInternal, "internal error")))
		}
		if p.Observe != nil {
			p.Observe(c.Route.Operation, status, cmp.Or(c.working, time.Since(c.began)))
		}
		if status == HungUp { // without it, net/http would send an empty 200 to a caller that is still connected
			panic(http.ErrAbortHandler)
		}
	}()
	out, err := p.run(x)
	if err != nil {
		c.full = c.full || protocol.ReasonOf(err) == protocol.ReasonOverloaded
		status = p.refuse(x, x.Failed(err))
		return
	}
	if status = out.Status; out.Body == nil {
		return
	}
	if err := p.write(x, out.Status, out.Body); err != nil {
		p.Log.Debug().Err(err).Str("operation", c.Route.Operation).Msg("failed to write a response")
		x.ResponseLost()
	}
}

// run checks the request in the order above and calls its handler.
func (p *Pipeline) run(x Exchange) (Response, error) {
	c := x.base()
	var err error
	if c.Principal, err = p.Auth.Admit(c.Request, c.Route.Roles); err != nil {
		return Response{}, err
	}
	if c.Principal != nil {
		connlimit.From(c.Context()).Leave()
	}
	if connlimit.Reserved(c.Context()) && !c.Route.Probe {
		c.full = true
		return Response{}, protocol.Refuse(protocol.ReasonOverloaded, "%v; try again", connlimit.ErrReserved)
	}
	if !c.Route.Sojourn && !(p.Dashboard && c.Principal != nil && c.Principal.Method == auth.ByCookie) {
		if err := p.CheckVersion(c.Header.Get(p.Header)); err != nil {
			return Response{}, err
		}
	}
	about := auth.Namespace
	if c.Route.Anywhere {
		about = auth.StartNamespace // identity and access are served for any namespace restriction of the token
	}
	if c.NS, err = about(c.Request, c.Principal); err != nil {
		return Response{}, err
	}
	if p.HasNamespace != nil && !c.Route.Anywhere && !c.Route.Open() {
		if err := p.HasNamespace(c.Context(), c.NS); err != nil {
			return Response{}, err
		}
	}
	if err := httpjson.CheckPath(c.Request, c.Route.Pattern); err != nil {
		return Response{}, err
	}
	if err := p.reserve(c); err != nil {
		return Response{}, err
	}
	c.loads.Context = c.Context()
	c.loads.Grant.Open(p.Budget, c.Principal.Owner(c.NS))
	c.auth = p.Auth
	c.begin(cmp.Or(c.Route.Limit, defaultLimit), c.Route.Limit != 0)
	defer func() { c.end() }()
	// A request with a body is admitted when the body was read: a slow caller takes no place.
	c.pipeline = p
	if c.ContentLength == 0 {
		if err := p.enter(c); err != nil {
			return Response{}, err
		}
	}
	out, err := x.Do()
	if errors.Is(err, budget.ErrOverloaded) {
		err = overloaded()
	}
	if refusal := auth.Revoked(c.Ctx); refusal != nil && (err != nil || out.Body != nil) {
		// a stream has started its response, and ends
		return Response{}, refusal
	}
	return out, err
}

// requestUnit is the body size per unit of the limit of requests in progress: a larger body counts as several requests.
const requestUnit = 128 << 10

// enter waits until the request, whose body was read, is admitted. Small requests of the reserved part never wait, and
// neither do those that may be held: they mostly wait for an event.
func (p *Pipeline) enter(c *Call) error {
	size := len(c.raw)
	if p.Admission == nil || c.Route.Open() || c.Route.Limit != 0 || c.Route.Reserved && size <= smallBody {
		return nil
	}
	err := c.place.Enter(c.Ctx, p.Admission, c.NS, 1+size/requestUnit)
	if errors.Is(err, admission.ErrOverloaded) {
		if c.Route.Reserved { // large outcomes of workers wait, and are not refused
			return nil
		}
		p.Admission.CountRefusal()
		c.full = true
		return protocol.Refuse(protocol.ReasonOverloaded, "%v; try again", err)
	}
	return err
}

// responses are buffers of encoded responses, of at most maxPooled bytes.
var responses = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

const maxPooled = 64 << 10

// write encodes and sends a response. An error means that the caller did not receive it.
func (p *Pipeline) write(x Exchange, status int, body any) error {
	c := x.base()
	buffer := responses.Get().(*[]byte)
	raw, err := httpjson.AppendValue((*buffer)[:0], body)
	if err == nil {
		raw, err = x.AddEnvelope(status, body, raw)
	}
	encoded := raw
	if err != nil {
		p.Log.Error().Err(err).Str("operation", c.Route.Operation).Str("path", c.URL.Path).Msg("failed to encode a response")
		status, raw = http.StatusInternalServerError, p.Broken
	}
	c.W.Header().Set(p.Header, p.Version)
	// the rest was for the response, which is counted now
	c.loads.Grant.Shrink(c.loads.Grant.Bytes() / budget.LoadFactor)
	c.inFlight.Force(replyFactor * int64(len(raw)))
	c.place.Leave()
	c.allowCut(writing)
	defer c.endCut()
	err = errors.Join(err, httpjson.Write(c.W, c.Request, status, raw))
	if err == nil && cap(encoded) <= maxPooled { // after an error, an HTTP/2 connection may still read the buffer
		*buffer = encoded
		responses.Put(buffer)
	}
	return err
}

// HungUp is the status under which a request is counted whose caller has disconnected; logs of proxies use this number.
const HungUp = 499

// refuse writes an error response and returns its status.
func (p *Pipeline) refuse(x Exchange, err error) int {
	c := x.base()
	e := httpjson.Refusal(store.Refusal(err))
	status := x.Status(e)
	if c.Context().Err() != nil && !c.inFlight.WasCut() {
		return HungUp
	}
	httpjson.StatusHeaders(c.W, status)
	if n, ok := e.Details[protocol.RetryAfter].(int); ok {
		c.W.Header().Set("Retry-After", strconv.Itoa(n))
	}
	if status >= http.StatusInternalServerError && !c.full {
		store.Error(&p.Log, err).Str("operation", c.Route.Operation).Str("path", c.URL.Path).Int("status", status).
			Msg("request failed")
	}
	if err := p.write(x, status, x.Members(e, status)); err != nil {
		p.Log.Debug().Err(err).Str("operation", c.Route.Operation).Msg("failed to write an error response")
	}
	return status
}
