// Package client starts, queries, signals, updates and ends workflows from Go programs, over the HTTP API of an app.
//
// A Client is safe for concurrent use, and so are its handles. An error response is an *Error with its reason. The
// result of a workflow that did not complete is a *NotCompleted error, which describes the closed run. If no app
// responds, the error is an *Unreachable.
package client

import (
	"context"
	"net/http"
	"slices"

	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Options configures a client.
type Options struct {
	URLs      []string     // URLs of apps that share one database; the client uses the first app that responds
	Token     string       // API token; empty: requests carry no token
	Namespace string       // default: "default"
	HTTP      *http.Client // default: http.DefaultClient
	// Warned is called with the warnings of a response, for example about request members that the app does not know. It
	// may be called by several goroutines at once. nil: warnings are dropped.
	Warned func([]Warning)
	// Interceptors run around starts, signals, updates and queries, the first one outermost. Of their methods, a client
	// calls InterceptClient.
	Interceptors []workflow.Interceptor
	// Codecs encode the arguments that the client sends, in this order, and decode the results that it receives; see
	// package codec. Set those of the workers.
	Codecs []codec.Codec
}

// Warning describes a part of a request that the app accepted but that is probably a mistake.
type Warning struct {
	// unknown_attribute, unknown_member, unknown_build, name_not_allowed or session_missing
	Code    string `json:"code"`
	Subject string `json:"subject"` // the attribute, the member or the session, as the request names it
	Message string `json:"message"` // for people
}

// Client calls the API of an app.
type Client struct {
	api       *apiclient.Client
	namespace string // empty: default

	interceptors []workflow.Interceptor
	codecs       codecs.Chain
}

// New creates a client. It sends no request.
func New(o Options) (*Client, error) {
	in := apiclient.Options{URLs: o.URLs, Token: o.Token, Namespace: o.Namespace, HTTP: o.HTTP}
	if warned := o.Warned; warned != nil {
		in.Warned = func(list []protocol.Warning) {
			all := make([]Warning, len(list))
			for i, w := range list {
				all[i] = Warning(w)
			}
			warned(all)
		}
	}
	chain := codecs.Of(o.Codecs)
	if err := chain.Check(); err != nil {
		return nil, err
	}
	api, err := apiclient.New(in)
	if err != nil {
		return nil, err
	}
	return &Client{api, o.Namespace, slices.Clone(o.Interceptors), chain}, nil
}

// Call sends one API request to the first app that responds. path begins with /api. If in is not nil, it is encoded as
// the request body; if out is not nil, the response is decoded into it. Programs should prefer the other methods.
//
// Call does not send a request that violates the limits of the API; see [ErrInvalidOptions].
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	return public(c.api.Call(ctx, method, path, in, out))
}
