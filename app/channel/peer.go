package channel

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/socketio"
)

// Peer is a worker at the other end of one connection: the principal of its calls. What a call says about who the
// worker is counts for nothing beside it.
type Peer struct {
	Principal any // what Authenticate returned; nil in the same process
	WorkerID  string
	Namespace string

	token string // presented again to Authenticate from time to time; a secret

	polls     context.Context // of the worker's polls; ends when the worker drains
	stopPolls context.CancelFunc

	mu          sync.Mutex // guards what follows
	registering sync.Mutex // held while an implicit registration is made
	registered  bool
	incarnation string
	release     string          // from the machine information
	concurrency int             // likewise
	machine     json.RawMessage // not yet told to the broker, which does not know the worker before it registers
}

// calls is a context of the peer's calls: the verbs judge by its token which workers it may speak for.
func (p *Peer) calls(ctx context.Context) context.Context {
	if who, ok := p.Principal.(*auth.Principal); ok {
		return auth.With(ctx, who)
	}
	return ctx
}

// browser is the principal of a dashboard socket.
type browser struct {
	principal any
	token     string
	topics    topics
}

func newPeer(hello protocol.ChannelAuth, principal any) (*Peer, error) {
	p := &Peer{Principal: principal, WorkerID: hello.WorkerID, Namespace: hello.Namespace, token: hello.Token}
	p.polls, p.stopPolls = context.WithCancel(context.Background())
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	switch {
	case hello.Protocol != protocol.ChannelVersion:
		return nil, &socketio.ConnectError{
			Message: "this app speaks protocol 1 of the worker channel", Reason: string(protocol.ReasonUnsupportedVersion),
			Data: map[string]any{"supported": []int{protocol.ChannelVersion}},
		}
	case p.WorkerID == "" || len(p.WorkerID) > protocol.MaxName || p.WorkerID == protocol.RoomWorkers:
		return nil, &socketio.ConnectError{
			Message: "workerId must be 1 to 255 bytes", Reason: string(protocol.ReasonValidation),
		}
	case len(p.Namespace) > protocol.MaxName:
		return nil, &socketio.ConnectError{
			Message: "namespace must be at most 255 bytes", Reason: string(protocol.ReasonValidation),
		}
	}
	return p, nil
}

// admitWorker is CONNECT of the workers' namespace.
func (c *Channel) admitWorker(ctx context.Context, r *socketio.ConnectRequest) (any, error) {
	var hello protocol.ChannelAuth
	if len(r.Auth) == 0 || json.Unmarshal(r.Auth, &hello) != nil {
		return nil, &socketio.ConnectError{
			Message: "auth must be {token, workerId, protocol: 1}", Reason: string(protocol.ReasonMalformedPayload),
		}
	}
	var principal any
	if c.opt.Worker != nil {
		var err error
		if principal, err = c.opt.Worker(ctx, hello.Token, r.HTTP); err != nil {
			return nil, c.keepOut(err, "worker", hello.WorkerID)
		}
	}
	p, err := newPeer(hello, principal)
	if err != nil {
		return nil, err
	}
	if err := c.allow(p, nil); err != nil {
		return nil, c.keepOut(err, "worker", hello.WorkerID)
	}
	if err := c.verbs.Reaches(p.calls(ctx), p.Namespace, p.WorkerID); err != nil {
		return nil, c.keepOut(err, "worker", hello.WorkerID)
	}
	return p, nil
}

// admitBrowser is CONNECT of the dashboard's namespace.
func (c *Channel) admitBrowser(ctx context.Context, r *socketio.ConnectRequest) (any, error) {
	var hello struct {
		Token string `json:"token"`
	}
	if len(r.Auth) > 0 && json.Unmarshal(r.Auth, &hello) != nil {
		return nil, &socketio.ConnectError{Message: "auth must be {token}", Reason: string(protocol.ReasonMalformedPayload)}
	}
	b := &browser{token: hello.Token}
	if c.opt.Dashboard != nil {
		var err error
		if b.principal, err = c.opt.Dashboard(ctx, hello.Token, r.HTTP); err != nil {
			return nil, c.keepOut(err, "dashboard", "")
		}
	}
	return b, nil
}

// keepOut is what a caller is told who may not come in: nothing of why its token is wrong.
func (c *Channel) keepOut(err error, who, id string) error {
	c.log.Warn().Str("who", who).Str("worker_id", id).Err(err).Msg("connection refused")
	switch protocol.ReasonOf(err) {
	case protocol.ReasonWorkerNotFound:
		return &socketio.ConnectError{Message: "there is no such worker", Reason: string(protocol.ReasonWorkerNotFound)}
	case protocol.ReasonForbidden:
		return &socketio.ConnectError{Message: "the token does not allow this", Reason: string(protocol.ReasonForbidden)}
	}
	return &socketio.ConnectError{Message: "a valid token is needed", Reason: string(protocol.ReasonUnauthorized)}
}

func (c *Channel) allow(p *Peer, queues []string) error {
	if c.opt.Allow == nil || p.Principal == nil { // nobody was asked, or the worker is part of this process
		return nil
	}
	return c.opt.Allow(p.Principal, p.Namespace, queues)
}

// recheck looks from time to time at who is connected, so that a token which ended, or whose revocation went unheard,
// ends its connections.
func (c *Channel) recheck() {
	tick := time.NewTicker(c.opt.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-tick.C:
		}
		c.Recheck(c.life)
	}
}

// Recheck looks at who is connected: call it when tokens may have changed. A connection whose principal may no longer
// do what it could ends; one that may do something else comes back as that.
func (c *Channel) Recheck(ctx context.Context) {
	for _, s := range c.workers.Sockets() {
		if p, ok := s.Principal().(*Peer); ok && c.opt.Worker != nil {
			c.recheckOne(ctx, s, c.opt.Worker, p.Principal, p.token)
		}
	}
	for _, s := range c.browsers.Sockets() {
		if b, ok := s.Principal().(*browser); ok && c.opt.Dashboard != nil {
			c.recheckOne(ctx, s, c.opt.Dashboard, b.principal, b.token)
		}
	}
}

func (c *Channel) recheckOne(ctx context.Context, s *socketio.Socket, who Authenticate, principal any, token string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	if c.opt.Still != nil {
		err = c.opt.Still(ctx, principal)
	} else {
		_, err = who(ctx, token, s.Request())
	}
	// Only a refusal ends a connection: a store that does not answer says nothing about the token.
	if reason := protocol.ReasonOf(err); reason == protocol.ReasonUnauthorized || reason == protocol.ReasonForbidden {
		c.log.Warn().Str("socket", s.ID()).Str("reason", string(reason)).Msg("token no longer valid, connection closed")
		s.Close(nil)
	}
}

// still refuses a worker whose token ended since it was let in: whatever told this app of it may come late.
func (c *Channel) still(ctx context.Context, p *Peer) error {
	if c.opt.Still == nil || p.Principal == nil { // nobody was asked, or the worker is part of this process
		return nil
	}
	return c.opt.Still(ctx, p.Principal)
}

// observe takes the machine information of a settings call. What is malformed is stored as nothing: a worker must never
// be kept from work by its telemetry.
func (c *Channel) observe(ctx context.Context, p *Peer, args []json.RawMessage) {
	if len(args) == 0 || bytes.Equal(args[0], []byte("null")) {
		return
	}
	var m protocol.MachineInformation
	if err := json.Unmarshal(args[0], &m); err != nil {
		c.counts.malformedMachines.Add(1)
		c.log.Warn().Str("worker_id", p.WorkerID).Err(err).Msg("machine information is malformed and was not stored")
		return
	}
	c.meet(ctx, p, m, args[0])
}
