package link

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Local is the carrier of a worker in the app's process. It calls the app's methods directly, without encoding and
// without a token. Both sides share the memory of arguments and results, so neither may change them after the call.
type Local struct {
	// Join adds the worker at the app, which sends notices to it; leave removes the worker.
	Join func(
		hello protocol.ChannelAuth, notices protocol.WorkerNotices,
	) (conn protocol.WorkerConnection, leave func(), err error)
}

type localConn struct {
	protocol.WorkerConnection
	deregister func()
	ctx        context.Context
	cancel     context.CancelFunc
}

// Dial connects the worker to the app that runs in the same process.
func (c Local) Dial(_ context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices) (Conn, error) {
	app, deregister, err := c.Join(hello, notices)
	if err != nil {
		return nil, err
	}
	conn := &localConn{WorkerConnection: app, deregister: deregister}
	conn.ctx, conn.cancel = context.WithCancel(context.Background())
	return conn, nil
}

func (c *localConn) Done() <-chan struct{} { return c.ctx.Done() }
func (c *localConn) Err() error            { return context.Cause(c.ctx) }
func (c *localConn) String() string        { return "this process" }

func (c *localConn) Close() {
	if c.ctx.Err() == nil {
		c.deregister()
	}
	c.cancel()
}
