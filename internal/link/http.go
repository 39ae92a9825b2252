package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/certs"
	"github.com/sojourn-run/sojourn/internal/mask"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// HTTP is the carrier over plain requests, for networks that block sockets. It calls the routes that workers in any
// language call. A worker tries the apps in an order that depends on its ID; see route.
//
// The app cannot send notices over HTTP. Responses to heartbeats report cancelled attempts, ended sessions and a
// changed release. Therefore the worker sends heartbeats more often, and each lists all its leases.
type HTTP struct {
	URLs   []string // URLs of apps, such as "http://127.0.0.1:7700"
	Header http.Header
	TLS    certs.Rules // called for each TCP connection; nil: the default
	// NetDial replaces how connections are made, for tests and proxies.
	NetDial func(ctx context.Context, network, address string) (net.Conn, error)
	// Refresh is the interval at which the settings are fetched: a minute.
	Refresh time.Duration
	// ReturnWithin is the time within which a worker returns to the app that it prefers: 10 min.
	ReturnWithin time.Duration

	route route
}

// idleTime is the idle timeout of TCP connections. It is shorter than that of proxies and apps, so that no request is
// sent on a connection that they are closing.
const idleTime = 30 * time.Second

// Dial connects to one app by fetching the settings.
func (c *HTTP) Dial(ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices) (Conn, error) {
	url := c.route.next(c.URLs, hello.WorkerID)
	if url == "" {
		return nil, errNoURL
	}
	conn, err := c.conn(url, hello, notices)
	if err != nil {
		return nil, err
	}
	s, err := conn.fetch(ctx)
	if err != nil {
		c.route.failed(url)
		conn.Close()
		if reason := protocol.ReasonOf(err); reason != "" {
			return nil, &Refused{URL: url, Reason: string(reason), Cause: err}
		}
		return nil, err
	}
	conn.hello.settings = &s
	context.AfterFunc(conn.ctx, func() { c.route.failed(url) })
	return conn, nil
}

// check fetches the settings of the app at url if it is ready.
func (c *HTTP) check(ctx context.Context, url string, hello protocol.ChannelAuth) (protocol.WorkerSettings, error) {
	conn, err := c.conn(url, hello, nil)
	if err != nil {
		return protocol.WorkerSettings{}, err
	}
	defer conn.Close()
	status, _, err := conn.exchange(ctx, http.MethodGet, "/readyz", nil)
	switch {
	case err != nil:
		return protocol.WorkerSettings{}, err
	case status != http.StatusOK:
		return protocol.WorkerSettings{}, fmt.Errorf("%s is not ready: status %d", conn, status)
	}
	return conn.fetch(ctx)
}

func (c *HTTP) conn(
	url string, hello protocol.ChannelAuth, notices protocol.WorkerNotices,
) (*httpConn, error) {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: c.NetDial, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: idleTime, TLSHandshakeTimeout: 10 * time.Second,
	}
	if err := c.TLS.Transport(transport); err != nil {
		return nil, err
	}
	conn := &httpConn{notices: notices, apps: len(c.URLs), refresh: c.Refresh, header: c.Header.Clone()}
	conn.place = place{
		route: &c.route, url: url, within: c.ReturnWithin,
		check: func(ctx context.Context, url string) (protocol.WorkerSettings, error) {
			return c.check(ctx, url, hello)
		},
	}
	if conn.refresh <= 0 {
		conn.refresh = time.Minute
	}
	if conn.header == nil {
		conn.header = http.Header{}
	}
	if hello.Token != "" {
		conn.header.Set("Authorization", "Bearer "+hello.Token)
	}
	if hello.Namespace != "" {
		conn.header.Set(protocol.HeaderNamespace, hello.Namespace)
	}
	conn.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	conn.hello.worker = hello.WorkerID
	conn.ctx, conn.cancel = context.WithCancelCause(context.Background())
	conn.polls, conn.stopPolls = context.WithCancel(conn.ctx)
	return conn, nil
}

// httpConn is the state that the requests of one worker to one app share. It ends with the first request that did not
// reach the app, or whose response was not from the app. Worker and app then compare their leases, as after the loss of
// a socket.
type httpConn struct {
	place
	apps    int // number of configured app URLs
	client  *http.Client
	header  http.Header
	notices protocol.WorkerNotices
	refresh time.Duration

	ctx       context.Context
	cancel    context.CancelCauseFunc
	polls     context.Context // context of polls; ends when the worker drains
	stopPolls context.CancelFunc

	mu     sync.Mutex     // guards the fields below
	calls  sync.WaitGroup // no call starts once over is set
	closed bool
	hello  struct {
		worker, incarnation, release string
		// Settings that Dial fetched and that Settings has not returned yet.
		settings *protocol.WorkerSettings
	}
	last      protocol.WorkerSettings
	fetchedAt time.Time // time at which settings were fetched
}

// Settings returns the settings that Dial received, and afterwards requests them from the app.
func (c *httpConn) Settings(ctx context.Context, _ protocol.MachineInformation) (protocol.WorkerSettings, error) {
	c.mu.Lock()
	first := c.hello.settings
	c.hello.settings = nil
	c.mu.Unlock()
	if first != nil {
		return *first, nil
	}
	return c.fetch(ctx)
}

func (c *httpConn) fetch(ctx context.Context) (s protocol.WorkerSettings, err error) {
	if err = c.do(ctx, http.MethodGet, "/settings", nil, &s); err != nil {
		return s, err
	}
	if s.Release == "" {
		return s, errors.New("settings without APP_VERSION")
	}
	c.mu.Lock()
	c.last, c.fetchedAt = s, time.Now()
	c.mu.Unlock()
	return s, nil
}

// Quiet reports that the app cannot send notices.
func (c *httpConn) Quiet() bool { return true }

// applyHeartbeat applies the parts of a heartbeat response that other carriers receive as notices.
func (c *httpConn) applyHeartbeat(ctx context.Context, a protocol.WorkerHeartbeatResponse) {
	if a.Drain && c.apps > 1 {
		c.closeWith(errors.New("the app is shutting down"))
		return
	}
	c.mu.Lock()
	known, fetchedAt := c.last, c.fetchedAt
	c.mu.Unlock()
	if a.AppRelease == known.Release && time.Since(fetchedAt) < c.refresh {
		return
	}
	if s, err := c.fetch(ctx); err == nil && s != known {
		_ = c.notices.RefreshSettings(ctx) // after an error, the next heartbeat tries again
	}
}

func (c *httpConn) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.calls.Add(1)
	return true
}

// closeWith ends the connection and all its calls.
func (c *httpConn) closeWith(cause error) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel(cause)
}

func (c *httpConn) Done() <-chan struct{} { return c.ctx.Done() }
func (c *httpConn) Err() error            { return context.Cause(c.ctx) }
func (c *httpConn) String() string        { return mask.URL(c.url) }

func (c *httpConn) Close() {
	c.closeWith(fmt.Errorf("connection to %s closed", c))
	c.calls.Wait() // the calls end with the context
	c.client.CloseIdleConnections()
}

// Apps returns the number of configured app URLs.
func (c *HTTP) Apps() int { return len(c.URLs) }
