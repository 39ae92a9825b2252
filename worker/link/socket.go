package link

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
	"github.com/sojourn-run/sojourn/shared/socketio"
)

// Socket is the carrier over Socket.IO. It goes to the first of its URLs that answers, and after a failure to the next.
type Socket struct {
	URLs   []string // of apps, as "http://127.0.0.1:7700"
	Header http.Header
	TLS    *tls.Config
	// NetDial replaces how connections are made, for tests and proxies.
	NetDial func(ctx context.Context, network, address string) (net.Conn, error)
	// Failed hears of notices whose handler panicked; may be nil.
	Failed func(error)

	turn turn
}

var errNoURL = errors.New("no URL of an app")

// Refused says that an app answered and would not let the worker in.
type Refused struct {
	URL    string
	Reason string // unauthorized, forbidden, …
	Cause  error
}

func (e *Refused) Error() string {
	return fmt.Sprintf("app %s refused this worker: %v", e.URL, e.Cause)
}

// Unwrap gives the cause.
func (e *Refused) Unwrap() error { return e.Cause }

type socketConn struct {
	rpc.SocketCaller
	client *socketio.Client
	url    string
}

// Dial connects to one app.
func (c *Socket) Dial(ctx context.Context, hello protocol.ChannelAuth, notices rpc.Handlers) (Conn, error) {
	url := c.turn.of(c.URLs)
	if url == "" {
		return nil, errNoURL
	}
	client, err := socketio.Dial(ctx, url, protocol.NamespaceWorkers, hello, socketio.DialOptions{
		Header: c.Header, TLS: c.TLS, NetDial: c.NetDial,
		OnSocket: func(s *socketio.Socket) { rpc.Serve(s, notices, rpc.Serving{}) },
		Failed: func(_ *socketio.Socket, err error) {
			if c.Failed != nil {
				c.Failed(err)
			}
		},
	})
	if err != nil {
		c.turn.next()
		var refused *socketio.ConnectError
		if errors.As(err, &refused) {
			return nil, &Refused{URL: url, Reason: refused.Reason, Cause: err}
		}
		return nil, err
	}
	context.AfterFunc(client.Context(), c.turn.next) // the next try goes to another app, which may live
	return &socketConn{SocketCaller: rpc.SocketCaller{Socket: client.Socket}, client: client, url: url}, nil
}

func (c *socketConn) Settings(
	ctx context.Context, m protocol.MachineInformation,
) (s protocol.WorkerSettings, err error) {
	ack, err := c.client.EmitWithAck(ctx, protocol.EventFetchSettings, m)
	if err != nil {
		return s, err
	}
	if len(ack) == 0 {
		return s, errors.New("the app confirmed the settings call without settings")
	}
	if err := json.Unmarshal(ack[0], &s); err != nil {
		return s, fmt.Errorf("settings: %w", err)
	}
	if s.Release == "" {
		return s, fmt.Errorf("settings without APP_VERSION: %.200s", ack[0])
	}
	return s, nil
}

func (c *socketConn) Done() <-chan struct{} { return c.client.Done() }
func (c *socketConn) Err() error            { return c.client.Err() }
func (c *socketConn) String() string        { return c.url }

// closeTime is how long Close waits for handlers of notices.
const closeTime = 5 * time.Second

func (c *socketConn) Close() {
	c.client.Close(nil)
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	// Whoever still runs after that holds up nobody else.
	_ = c.client.Wait(ctx)
}

// Apps is how many apps there are to go to.
func (c *Socket) Apps() int { return len(c.URLs) }
