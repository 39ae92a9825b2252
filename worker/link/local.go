package link

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
)

// Local is the carrier of a worker in the app's own process: calls pass Go values to the app's table, without JSON and
// without a token.
type Local struct {
	// Join enters the worker at the app, which calls notices to tell it something; leave takes it out again.
	Join func(hello protocol.ChannelAuth, notices rpc.Handlers) (caller rpc.Caller, leave func(), err error)
}

type localConn struct {
	rpc.Caller
	leave  func()
	ctx    context.Context
	cancel context.CancelFunc
}

// Dial joins the app of this process.
func (c Local) Dial(_ context.Context, hello protocol.ChannelAuth, notices rpc.Handlers) (Conn, error) {
	caller, leave, err := c.Join(hello, notices)
	if err != nil {
		return nil, err
	}
	conn := &localConn{Caller: caller, leave: leave}
	conn.ctx, conn.cancel = context.WithCancel(context.Background())
	return conn, nil
}

func (c *localConn) Settings(
	ctx context.Context, m protocol.MachineInformation,
) (s protocol.WorkerSettings, err error) {
	err = c.Call(ctx, protocol.MethodSettings, m, &s)
	return s, err
}

func (c *localConn) Done() <-chan struct{} { return c.ctx.Done() }
func (c *localConn) Err() error            { return context.Cause(c.ctx) }
func (c *localConn) String() string        { return "this process" }

func (c *localConn) Close() {
	if c.ctx.Err() == nil {
		c.leave()
	}
	c.cancel()
}
