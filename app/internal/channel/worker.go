package channel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/internal/workerconn"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// worker is a worker at the other end of a socket: the principal of its calls.
type worker struct {
	*workerconn.Conn
	token string // passed to Authenticate again from time to time; a secret
}

// browser is the principal of a dashboard socket.
type browser struct {
	principal any
	token     string
	topics    topics
}

// admitWorker handles CONNECT of the workers' namespace.
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
			return nil, c.connectRefusal(err, "worker", hello.WorkerID)
		}
	}
	p, err := c.peers.NewConn(hello, principal)
	if err != nil {
		return nil, releaseMismatch(err)
	}
	if err := c.peers.Admit(ctx, p); err != nil {
		return nil, c.connectRefusal(err, "worker", hello.WorkerID)
	}
	return &worker{p, hello.Token}, nil
}

// releaseMismatch returns the error for any worker that this app cannot serve.
func releaseMismatch(err error) error {
	var e *protocol.Error
	if !errors.As(err, &e) {
		return err
	}
	return &socketio.ConnectError{Message: e.Message, Reason: string(e.Reason), Data: e.Details}
}

// admitBrowser handles CONNECT of the dashboard's namespace.
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
			return nil, c.connectRefusal(err, "dashboard", "")
		}
	}
	return b, nil
}

// connectRefusal returns the error for a rejected caller, without the reason why its token is invalid.
func (c *Channel) connectRefusal(err error, caller, id string) error {
	c.log.Warn().Str("who", caller).Str("worker_id", id).Err(err).Msg("connection refused")
	switch protocol.ReasonOf(err) {
	case protocol.ReasonWorkerNotFound:
		return &socketio.ConnectError{Message: "there is no such worker", Reason: string(protocol.ReasonWorkerNotFound)}
	case protocol.ReasonForbidden:
		return &socketio.ConnectError{Message: "the token does not allow this", Reason: string(protocol.ReasonForbidden)}
	}
	return &socketio.ConnectError{Message: "a valid token is needed", Reason: string(protocol.ReasonUnauthorized)}
}

// openWorker sets up a new worker socket. Until the settings are fetched, only calls about leased jobs are served.
func (c *Channel) openWorker(s *socketio.Socket) {
	p, _ := s.Principal().(*worker)
	deregister, err := c.peers.Add(p.Conn, notices{s})
	if err != nil {
		s.Close(err)
		return
	}
	rpc.Serve(s, c.early, c.serving)
	var once sync.Once
	s.On(protocol.EventFetchSettings, func(ctx context.Context, args []json.RawMessage) ([]any, error) {
		c.observe(ctx, p, args)
		once.Do(func() { rpc.Serve(s, c.handlers, c.serving) })
		return []any{c.peers.WorkerSettings(p.Namespace)}, nil
	})
	level := zerolog.InfoLevel
	if c.peers.RejectedBefore(p.Conn) {
		level = zerolog.DebugLevel // such a worker reconnects often, and the reason was logged
	}
	c.log.WithLevel(level).Str("worker_id", p.WorkerID).Msg("worker connected")
	context.AfterFunc(s.Context(), func() {
		deregister()
		c.log.WithLevel(level).Str("worker_id", p.WorkerID).AnErr("cause", s.Err()).Msg("worker disconnected")
	})
}

// observe stores the machine information of a settings call. Malformed information is dropped: telemetry must never
// stop a worker from working.
func (c *Channel) observe(ctx context.Context, p *worker, args []json.RawMessage) {
	if len(args) == 0 || bytes.Equal(args[0], []byte("null")) {
		return
	}
	var m protocol.MachineInformation
	if err := json.Unmarshal(args[0], &m); err != nil {
		c.counts.malformedMachines.Add(1)
		c.log.Warn().Str("worker_id", p.WorkerID).Err(err).Msg("machine information is malformed and was not stored")
		return
	}
	p.RecordMachine(ctx, m, args[0])
}

// recheckConnections checks all connections periodically, so that an expired token, or a revocation without a
// notification, closes its connections.
func (c *Channel) recheckConnections() {
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

// Recheck checks all connections; call it when tokens may have changed. It closes the connections of a principal that
// has lost rights; a principal with other rights connects again.
func (c *Channel) Recheck(ctx context.Context) {
	for _, s := range c.workers.Sockets() {
		if p, ok := s.Principal().(*worker); ok && c.opt.Worker != nil {
			c.recheckOne(ctx, s, c.opt.Worker, p.Principal, p.token)
		}
	}
	for _, s := range c.browsers.Sockets() {
		if b, ok := s.Principal().(*browser); ok && c.opt.Dashboard != nil {
			c.recheckOne(ctx, s, c.opt.Dashboard, b.principal, b.token)
		}
	}
}

func (c *Channel) recheckOne(ctx context.Context, s *socketio.Socket, auth Authenticate, principal any, token string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	if c.opt.Revalidate != nil {
		err = c.opt.Revalidate(ctx, principal)
	} else {
		_, err = auth(ctx, token, s.Request())
	}
	// Only a refusal closes a connection: an unavailable store does not show that the token is invalid.
	if reason := protocol.ReasonOf(err); reason == protocol.ReasonUnauthorized || reason == protocol.ReasonForbidden {
		c.log.Warn().Str("socket", s.ID()).Str("reason", string(reason)).Msg("token no longer valid, connection closed")
		s.Close(nil)
	}
}
