package workflowtest

import (
	"context"
	"errors"
	"sync"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// errCut is the error of calls over a connection that was cut.
var errCut = errors.New("the test has cut the connection of the worker")

// faults is the carrier of a worker whose connection a test can cut or suspend.
type faults struct {
	link.Carrier
	cut context.Context // ends when the connection is cut
	end context.CancelFunc

	mu      sync.Mutex    // guards the fields below
	frozen  chan struct{} // closed when no freeze is left; nil: the worker is not frozen
	freezes int           // freezes that have not been thawed
	conns   []*faultyConn
}

func newFaults(carrier link.Carrier) *faults {
	f := &faults{Carrier: carrier}
	f.cut, f.end = context.WithCancel(context.Background())
	return f
}

// Dial connects to the app, unless the connection is cut.
func (f *faults) Dial(ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices) (
	link.Conn, error,
) {
	if err := f.pass(ctx); err != nil {
		return nil, err
	}
	inner, err := f.Carrier.Dial(ctx, hello, notices)
	if err != nil {
		return nil, err
	}
	conn := &faultyConn{Conn: inner, faults: f}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, conn)
	return conn, nil
}

// pass waits while the worker is frozen. It fails if the connection is cut.
func (f *faults) pass(ctx context.Context) error {
	f.mu.Lock()
	frozen := f.frozen
	f.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-f.cut.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if f.cut.Err() != nil {
		return errCut
	}
	return nil
}

// kill cuts the connection for good.
func (f *faults) kill() {
	f.end()
	f.mu.Lock()
	conns := f.conns
	f.mu.Unlock()
	for _, c := range conns {
		c.Conn.Close()
	}
}

// freeze suspends all calls until thaw is called. If freezes overlap, the last thaw resumes the calls.
func (f *faults) freeze() (thaw func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.freezes++; f.freezes == 1 {
		f.frozen = make(chan struct{})
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.freezes--; f.freezes == 0 {
			close(f.frozen)
			f.frozen = nil
		}
	}
}

// faultyConn is a connection over which calls wait or fail as the test demands.
type faultyConn struct {
	link.Conn
	faults *faults
}

// through sends a request when the worker is not frozen, and returns the response when it is not frozen. If the
// connection is cut meanwhile, the response is lost.
func through[I, O any](
	ctx context.Context, c *faultyConn, in I, send func(context.Context, I) (O, error),
) (out O, err error) {
	var none O
	if err := c.faults.pass(ctx); err != nil {
		return none, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.faults.cut, cancel)()
	out, err = send(ctx, in)
	if lost := c.faults.pass(ctx); lost != nil {
		return none, lost
	}
	return out, err
}

func (c *faultyConn) Register(ctx context.Context, in protocol.RegisterRequest) (protocol.RegisterResponse, error) {
	return through(ctx, c, in, c.Conn.Register)
}

func (c *faultyConn) Deregister(
	ctx context.Context, in protocol.DeregisterRequest,
) (protocol.DeregisterResponse, error) {
	return through(ctx, c, in, c.Conn.Deregister)
}

func (c *faultyConn) WorkerHeartbeat(
	ctx context.Context, in protocol.WorkerHeartbeat,
) (protocol.WorkerHeartbeatResponse, error) {
	return through(ctx, c, in, c.Conn.WorkerHeartbeat)
}

func (c *faultyConn) Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	return through(ctx, c, in, c.Conn.Poll)
}

func (c *faultyConn) Complete(
	ctx context.Context, in protocol.CompleteRequest,
) (protocol.CompleteBatchResponse, error) {
	return through(ctx, c, in, c.Conn.Complete)
}

func (c *faultyConn) HeartbeatTask(
	ctx context.Context, in protocol.HeartbeatRequest,
) (protocol.HeartbeatResponse, error) {
	return through(ctx, c, in, c.Conn.HeartbeatTask)
}

func (c *faultyConn) RecordLogs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	return through(ctx, c, in, c.Conn.RecordLogs)
}

func (c *faultyConn) HistoryPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	return through(ctx, c, in, c.Conn.HistoryPage)
}

func (c *faultyConn) CreateSession(ctx context.Context, in protocol.SessionCreate) (protocol.SessionResponse, error) {
	return through(ctx, c, in, c.Conn.CreateSession)
}

func (c *faultyConn) HeartbeatSession(
	ctx context.Context, in protocol.SessionVerb,
) (protocol.SessionResponse, error) {
	return through(ctx, c, in, c.Conn.HeartbeatSession)
}

func (c *faultyConn) ReleaseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return through(ctx, c, in, c.Conn.ReleaseSession)
}

func (c *faultyConn) CloseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return through(ctx, c, in, c.Conn.CloseSession)
}

func (c *faultyConn) Settings(
	ctx context.Context, in protocol.MachineInformation,
) (protocol.WorkerSettings, error) {
	return through(ctx, c, in, c.Conn.Settings)
}
