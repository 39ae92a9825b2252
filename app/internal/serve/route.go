package serve

import (
	"net/http"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Plane is the API to which a route belongs. It determines the version headers and the form of errors.
type Plane string

// These are the planes.
const (
	Control Plane = "control" // the contract's control plane
	Work    Plane = "worker"  // the contract's worker protocol
	Own     Plane = "sojourn" // Sojourn's own routes, which the contract does not have
)

// Route is one line of a transport's table: the request and the roles of its callers.
type Route struct {
	Method    string
	Pattern   string // a pattern of net/http, with {name} for a part of the path
	Operation string
	Plane     Plane
	Roles     []auth.Role // any of these roles, or one that contains it; empty: every caller, without a token
	Sojourn   bool        // not part of the published API: no version header is required
	Anywhere  bool        // served whether the request's namespace exists or not
	Probe     bool        // a health probe, which is also served from the reserve of file descriptors
	// maximum duration; 0: 30 s. If it is set, requests may be held, and end when their caller loses access
	Limit time.Duration
	// its bytes come from the part of the budget that is reserved for outcomes, heartbeats, renewals and session verbs
	Reserved bool
	Reads    int64 // bytes that a request may load from the store besides its body; 0: few
	Shape    Shape // its request and responses
}

// Held is the limit of a request that waits for a task or a worker: the maximum wait plus the time for the response.
const Held = 75 * time.Second

// ManyReads is the size that a route which loads payloads counts for its reads.
const ManyReads = 4 << 20

// defaultLimit is the time limit of requests that are not held.
const defaultLimit = 30 * time.Second

// Shape describes a route's request and responses by their Go types. The API description is generated from it, and
// tests check every response against it.
type Shape struct {
	Summary string   // one line for people
	Body    any      // value of the type that the body is decoded into, whose tags contain its limits; nil: no body
	Needs   []string // required members of the body; "a|b": one of the two
	Query   any      // struct whose members are the parameters of the query; nil: no parameters
	// the route reads the header Idempotency-Key
	IdempotencyKey bool
	// the successful responses, by status: a value of the type that is encoded, or a Media
	Responses map[int]any
	Refuses   []protocol.Reason // in addition to the reasons that every route of its kind has
	MaxBody   int64             // maximum size of the body in bytes; 0: the default
	// the response is a document without the members that the API adds to every response
	Bare bool
}

// AnyOf describes a response that has one of these bodies.
type AnyOf []any

// Media is a response other than JSON, by its media type.
type Media string

// OK describes a response with status 200 and this body.
func OK(body any) map[int]any { return map[int]any{http.StatusOK: body} }

// Responses describes one response with another status.
func Responses(status int, body any) map[int]any { return map[int]any{status: body} }

// Open reports whether the route needs no token.
func (t Route) Open() bool { return len(t.Roles) == 0 }
