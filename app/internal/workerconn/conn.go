package workerconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Conn is a worker at the other end of one connection. The connection determines the worker's identity; the identity in
// a request is overwritten.
type Conn struct {
	Principal any // authenticated caller; nil in the same process
	WorkerID  string
	Namespace string

	registry  *Registry
	polls     context.Context // context of the worker's polls; ends when the worker drains
	stopPolls context.CancelFunc

	mu          sync.Mutex // guards the fields below
	registering sync.Mutex // held during an implicit registration
	registered  bool
	incarnation string
	release     string          // release in the machine information
	concurrency int             // maximum number of concurrent activities in the machine information
	machine     json.RawMessage // not yet sent to the broker: the worker has not registered
}

var _ protocol.WorkerConnection = (*Conn)(nil)

// reserved is a worker ID that no worker may use: an older protocol used it for all workers.
const reserved = "WORKERS"

// NewConn returns the state of a new connection, and rejects a connection that no app could serve.
func (s *Registry) NewConn(hello protocol.ChannelAuth, principal any) (*Conn, error) {
	p := &Conn{Principal: principal, WorkerID: hello.WorkerID, Namespace: hello.Namespace, registry: s}
	p.polls, p.stopPolls = context.WithCancel(context.Background())
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	switch {
	case hello.Protocol != protocol.ChannelVersion:
		return nil, protocol.Refuse(
			protocol.ReasonUnsupportedVersion, "this app speaks protocol 1 of the worker channel",
		).With("supported", []int{protocol.ChannelVersion})
	case p.WorkerID == "" || len(p.WorkerID) > protocol.MaxName || p.WorkerID == reserved:
		return nil, protocol.Refuse(protocol.ReasonValidation, "workerId must be 1 to 255 bytes")
	case len(p.Namespace) > protocol.MaxName:
		return nil, protocol.Refuse(protocol.ReasonValidation, "namespace must be at most 255 bytes")
	}
	return p, nil
}

// Admit rejects a connection whose token is for another namespace, or may not act for the worker with its ID.
func (s *Registry) Admit(ctx context.Context, p *Conn) error {
	if err := s.allow(p, nil); err != nil {
		return err
	}
	return s.checkVisible(ctx, p, p.WorkerID)
}

// RejectedBefore reports whether the release gate has already rejected this worker. A worker with several app addresses
// tries them in turn until it finds an app of the same release.
func (s *Registry) RejectedBefore(p *Conn) bool {
	return s.opt.Workers != nil && s.opt.Workers.Gated(p.Namespace, p.WorkerID)
}

// checkVisible rejects a connection whose token may not act for the worker with an ID.
func (s *Registry) checkVisible(ctx context.Context, p *Conn, worker string) error {
	if s.opt.Workers == nil {
		return nil
	}
	return s.opt.Workers.CheckVisible(p.callContext(ctx), p.Namespace, worker)
}

func (s *Registry) allow(p *Conn, queues []string) error {
	if s.opt.Allow == nil || p.Principal == nil { // no check is configured, or the worker is part of this process
		return nil
	}
	return s.opt.Allow(p.Principal, p.Namespace, queues)
}

// callContext returns the context for calls over this connection. By its token the requests decide for which workers it
// may act.
func (p *Conn) callContext(ctx context.Context) context.Context {
	if principal, ok := p.Principal.(*auth.Principal); ok {
		return auth.With(ctx, principal)
	}
	return ctx
}

// checkOwner rejects a call about a task that another worker leased. The broker checks the rest with the task.
func (p *Conn) checkOwner(owner string) error {
	if owner == p.WorkerID {
		return nil
	}
	if principal, ok := p.Principal.(*auth.Principal); ok && principal.Bound() {
		// a caller with a restricted token must not learn which worker leased the task
		return protocol.Refuse(protocol.ReasonTaskNotFound, "job not found")
	}
	return protocol.Refuse(
		protocol.ReasonLeaseOwnerMismatch, "the job is leased to %.64s", owner,
	).With("lease_owner", owner)
}

// errPanic is the error that a caller gets after a panic in the app.
var errPanic = errors.New("internal error")

// serve handles one call of a connection if its token is still valid; a notification of its revocation may arrive late.
// A panic fails this call only, so a worker in the app's process cannot crash the app.
func serve[In, Out any](
	ctx context.Context, p *Conn, in In, verb func(context.Context, In) (Out, error),
) (out Out, err error) {
	defer func() {
		if what := recover(); what != nil {
			p.registry.log.Error().Str("worker_id", p.WorkerID).Str("stack", string(debug.Stack())).Msg(
				fmt.Sprint("panic: ", what),
			)
			err = errPanic
		}
	}()
	if p.registry.opt.Revalidate != nil && p.Principal != nil { // nil: the worker is part of this process
		if err := p.registry.opt.Revalidate(ctx, p.Principal); err != nil {
			return out, refusal(err)
		}
	}
	if out, err = verb(p.callContext(ctx), in); err != nil {
		return out, refusal(err)
	}
	return out, nil
}

// refusal converts an error of the store into the error that workers get. Other errors are returned unchanged.
func refusal(err error) error {
	err = store.Refusal(err)
	var e *protocol.Error
	if errors.As(err, &e) && e.Reason.Away() { // the words of the HTTP worker protocol
		return protocol.Refuse(protocol.ReasonBackendUnavailable, "%s", e.Message).With("outcome", "unknown").With(
			"retryable", true,
		).With("retry_after_seconds", 1)
	}
	return err
}
