// Package egress is the HTTP proxy of executors: it connects to public addresses and to addresses on an allow list.
//
// The proxy resolves a name, checks each address, and connects to a checked address without resolving again. A request
// presents the credential of its executor, a [Pass]; when the pass ends, its connections are closed.
package egress

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// Options set up a [Proxy].
type Options struct {
	Network, Address string   // where to listen: tcp and 127.0.0.1:0, or unix and a path
	Allow            []string // addresses that are allowed although they are not public: HOST, HOST:PORT or CIDR
	Closed           []string // URLs and host:port of the app: never allowed, even if Allow contains them
	Resolver         Resolver // nil: the machine's resolver
	Logger           zerolog.Logger
}

// These are fixed times and counts.
const (
	dialTime      = 15 * time.Second
	headerTime    = 10 * time.Second
	idleTime      = time.Minute
	maxPerPass    = 128  // concurrent connections through the proxy
	maxConns      = 2048 // concurrent connections to the proxy
	maxRemembered = 1000 // refused addresses that are not logged again
)

// Proxy serves executors until it is closed.
type Proxy struct {
	rule     *rule
	log      zerolog.Logger
	listener net.Listener
	server   *http.Server
	work     sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	passes map[string]*Pass
	logged map[string]struct{} // refused addresses that were logged
	closed bool
}

// Pass holds the credentials and connections of one executor at the proxy.
type Pass struct {
	id, secret string
	proxy      *Proxy
	transport  *http.Transport
	forward    *httputil.ReverseProxy

	mu      sync.Mutex // guards the fields below
	open    map[io.Closer]struct{}
	used    int
	revoked bool
}

// Listen starts a proxy.
func Listen(o Options) (*Proxy, error) {
	r := &rule{resolver: o.Resolver, machine: ownAddresses, resolved: map[string]lookup{}}
	if r.resolver == nil {
		r.resolver = net.DefaultResolver
	}
	for _, text := range o.Allow {
		e, err := ParseEntry(text)
		if err != nil {
			return nil, err
		}
		r.allow = append(r.allow, e)
	}
	for _, text := range o.Closed {
		e, err := parseEndpoint(text, "the app's")
		if err != nil {
			return nil, err
		}
		r.closed = append(r.closed, e)
	}
	l, err := net.Listen(o.Network, o.Address) //nolint:noctx // nothing waits to listen
	if err != nil {
		return nil, fmt.Errorf("egress proxy: %w", err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		self, err := parseEndpoint(a.String(), "the proxy's")
		if err != nil {
			_ = l.Close()
			return nil, err
		}
		r.closed = append(r.closed, self)
	}
	p := &Proxy{
		rule: r, log: o.Logger, listener: &limitedListener{Listener: l, free: make(chan struct{}, places())},
		passes: map[string]*Pass{}, logged: map[string]struct{}{},
	}
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	p.work.Go(func() { _ = p.server.Serve(p.listener) })
	return p, nil
}

// places returns the maximum number of connections of the proxy. With their outgoing connections they use at most half
// of the worker's file descriptors.
func places() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur/4 >= maxConns {
		return maxConns
	}
	return int(l.Cur / 4) //nolint:gosec // less than maxConns
}

// Addr returns the address on which the proxy listens.
func (p *Proxy) Addr() net.Addr { return p.listener.Addr() }

// Port returns the TCP port on which the proxy listens, or 0 if it listens on a Unix socket.
func (p *Proxy) Port() int {
	if a, ok := p.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// Close closes all connections of the proxy and waits until their goroutines have ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	var all []*Pass
	for _, pass := range p.passes {
		all = append(all, pass)
	}
	p.mu.Unlock()
	_ = p.server.Close()
	for _, pass := range all {
		pass.Revoke()
	}
	p.work.Wait()
}

// Admit creates a pass for the executor with an ID.
func (p *Proxy) Admit(id string) *Pass {
	pass := &Pass{id: id, secret: rand.Text(), proxy: p, open: map[io.Closer]struct{}{}}
	pass.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return pass.dial(ctx, address) },
		// Responses reach handlers as the server sent them.
		DisableCompression: true, MaxIdleConns: 16, IdleConnTimeout: 30 * time.Second,
	}
	pass.forward = &httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {}, Transport: pass.transport, FlushInterval: -1,
		ErrorLog:     log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { pass.fail(w, err) },
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passes[id] = pass
	return pass
}

// URL returns the proxy's URL for an executor with this pass, for HTTP_PROXY. For a proxy on a Unix socket the URL
// contains a placeholder address, which the shims replace.
func (p *Pass) URL() string {
	at := "127.0.0.1:9"
	if p.proxy.Port() != 0 {
		at = p.proxy.Addr().String()
	}
	return "http://" + p.id + ":" + p.secret + "@" + at
}

// Revoke ends the pass and closes all its connections.
func (p *Pass) Revoke() {
	p.proxy.mu.Lock()
	if p.proxy.passes[p.id] == p {
		delete(p.proxy.passes, p.id)
	}
	p.proxy.mu.Unlock()
	p.mu.Lock()
	p.revoked = true
	open := p.open
	p.open = map[io.Closer]struct{}{}
	p.mu.Unlock()
	for c := range open {
		_ = c.Close()
	}
	p.transport.CloseIdleConnections()
}

// track registers a connection that Revoke closes.
func (p *Pass) track(c io.Closer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.revoked {
		_ = c.Close()
		return errors.New("the executor has ended")
	}
	p.open[c] = struct{}{}
	return nil
}

func (p *Pass) untrack(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// acquire counts a running request; the caller must release it.
func (p *Pass) acquire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used >= maxPerPass {
		return false
	}
	p.used++
	return true
}

func (p *Pass) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
}

// ServeHTTP answers one request to the proxy.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.begin() {
		return
	}
	defer p.work.Done()
	pass := p.authenticate(r)
	switch {
	case pass == nil:
		w.Header().Set("Proxy-Authenticate", `Basic realm="sojourn"`)
		respond(w, http.StatusProxyAuthRequired, "the worker's proxy needs the credentials of a running executor")
	case r.Method == http.MethodConnect && !hasPort(r.Host):
		respond(w, http.StatusBadRequest, "CONNECT needs HOST:PORT")
	case r.Method != http.MethodConnect && (r.URL.Scheme != "http" || r.URL.Host == ""):
		respond(w, http.StatusBadRequest, "this is a proxy: it accepts CONNECT, and requests for http://HOST/…")
	case !pass.acquire():
		respond(w, http.StatusTooManyRequests, fmt.Sprintf(
			"the executor has reached its limit of %d connections through the worker's proxy", maxPerPass,
		))
	default:
		defer pass.release()
		if r.Method == http.MethodConnect {
			pass.tunnel(w, r)
			return
		}
		pass.forward.ServeHTTP(w, r)
	}
}

// hasPort reports whether an address consists of a host and a port number.
func hasPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && n > 0
}

// begin counts a request that Close waits for.
func (p *Proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.work.Add(1)
	return true
}

// authenticate returns the pass that matches the credentials of a proxy request, or nil.
func (p *Proxy) authenticate(r *http.Request) *Pass {
	encoded, basic := strings.CutPrefix(r.Header.Get("Proxy-Authorization"), "Basic ")
	shown, err := base64.StdEncoding.DecodeString(encoded)
	id, secret, two := strings.Cut(string(shown), ":")
	if !basic || err != nil || !two {
		return nil
	}
	p.mu.Lock()
	pass := p.passes[id]
	p.mu.Unlock()
	if pass == nil || subtle.ConstantTimeCompare([]byte(pass.secret), []byte(secret)) != 1 {
		return nil
	}
	return pass
}

// dial connects to an address if the rules allow it.
func (p *Pass) dial(ctx context.Context, address string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("invalid port %q", portText)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	all, err := p.proxy.rule.check(ctx, host, uint16(port))
	if err != nil {
		return nil, err
	}
	var failed error
	for i, to := range all {
		attempt, done := ctx, func() {}
		if end, ok := ctx.Deadline(); ok { // reserve time for the remaining addresses
			attempt, done = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(all)-i))
		}
		c, err := (&net.Dialer{}).DialContext(attempt, "tcp", to.String())
		done()
		if err == nil {
			if err := p.track(c); err != nil {
				return nil, err
			}
			return &trackedConn{Conn: c, pass: p}, nil
		}
		failed = err
	}
	return nil, failed
}

// trackedConn is a connection of a pass.
type trackedConn struct {
	net.Conn
	pass *Pass
}

func (k *trackedConn) Close() error {
	k.pass.untrack(k.Conn)
	return k.Conn.Close()
}

// CloseWrite half-closes the connection.
func (k *trackedConn) CloseWrite() error { return endWrite(k.Conn) }

// tunnel connects client and server and copies data in both directions until both have closed.
func (p *Pass) tunnel(w http.ResponseWriter, r *http.Request) {
	there, err := p.dial(r.Context(), r.Host)
	if err != nil {
		p.fail(&tunnelRefusal{ResponseWriter: w}, err)
		return
	}
	defer there.Close()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		respond(w, http.StatusInternalServerError, "this connection cannot be made a tunnel")
		return
	}
	defer here.Close()
	if p.track(here) != nil {
		return
	}
	defer p.untrack(here)
	_ = here.SetDeadline(time.Time{})
	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	var out sync.WaitGroup
	out.Go(func() { copyAndClose(there, bufferedReader(buffered.Reader, here)) })
	copyAndClose(here, there)
	out.Wait()
}

// copyAndClose copies until the end of from and then half-closes to. => carry copies from one connection to the other
// until the end of from, and then half-closes to.
func copyAndClose(to net.Conn, from io.Reader) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		if c, ok := from.(io.Closer); ok {
			_ = c.Close()
		}
		return
	}
	if endWrite(to) != nil {
		_ = to.Close()
	}
}

func endWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// bufferedReader returns a reader of a connection that starts with the bytes that ahead has buffered.
func bufferedReader(buffered *bufio.Reader, c net.Conn) io.Reader {
	n := buffered.Buffered()
	if n == 0 {
		return c
	}
	first, _ := buffered.Peek(n)
	return &after{Reader: io.MultiReader(strings.NewReader(string(first)), c), Closer: c}
}

type after struct {
	io.Reader
	io.Closer
}

// fail responds that the connection failed, and why.
func (p *Pass) fail(w http.ResponseWriter, err error) {
	var refused *Refused
	var timeout net.Error
	switch {
	case errors.As(err, &refused):
		p.proxy.logRefusal(p.id, refused)
		respond(w, http.StatusForbidden, refused.Error())
	case errors.As(err, &timeout) && timeout.Timeout():
		respond(w, http.StatusGatewayTimeout, "the worker's proxy got no response: "+err.Error())
	default:
		respond(w, http.StatusBadGateway, "the worker's proxy could not connect: "+err.Error())
	}
}

// logRefusal logs a refused address once.
func (p *Proxy) logRefusal(id string, r *Refused) {
	at := hostPort(r.Host, r.Port)
	p.mu.Lock()
	_, before := p.logged[at]
	full := len(p.logged) >= maxRemembered
	if !before && !full {
		p.logged[at] = struct{}{}
	}
	p.mu.Unlock()
	if !before && !full {
		p.log.Warn().Str("executor", id).Str("address", at).Str("reason", r.Why).Msg("egress denied")
	}
}

// respond sends a response with a status and an explanation.
func respond(w http.ResponseWriter, status int, sentence string) {
	if t, ok := w.(*tunnelRefusal); ok {
		t.respond(status, sentence)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, sentence+"\n")
}

// tunnelRefusal also writes the explanation into the status line, because many clients show only that line of a refused
// CONNECT.
type tunnelRefusal struct{ http.ResponseWriter }

func (t *tunnelRefusal) respond(status int, sentence string) {
	c, _, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		respond(t.ResponseWriter, status, sentence)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(headerTime))
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, sentence)
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s: %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"+
		"Connection: close\r\n\r\n%s\n", status, http.StatusText(status), line, len(sentence)+1, sentence)
}

// limitedListener accepts at most as many connections as there are slots.
type limitedListener struct {
	net.Listener
	free chan struct{}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			_ = c.Close() // a client with so many connections must not delay the others
		}
	}
}

type limitedConn struct {
	net.Conn
	release func()
}

func (p *limitedConn) Close() error {
	p.release()
	return p.Conn.Close()
}

// CloseWrite half-closes the connection.
func (p *limitedConn) CloseWrite() error { return endWrite(p.Conn) }
