package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, o Options) *Proxy {
	t.Helper()
	if o.Network == "" {
		o.Network, o.Address = "tcp", "127.0.0.1:0"
	}
	p, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// server responds with the address through which it was reached, listens on all of loopback, and returns its port.
func server(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func answer(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Proxy-Authorization") != "" {
		_, _ = io.WriteString(w, "the credential arrived")
		return
	}
	host, _, _ := net.SplitHostPort(r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
	_, _ = io.WriteString(w, "reached "+host)
}

// get requests a page through a proxy.
func get(t *testing.T, proxy, page string) (int, string) {
	t.Helper()
	at, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at), DisableKeepAlives: true}}
	res, err := c.Get(page)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, strings.TrimSpace(string(text))
}

// connect requests a tunnel with CONNECT. It returns the status line of the response, the body if the proxy opened no
// tunnel, and the connection.
func connect(t *testing.T, p *Proxy, proxy, to string) (string, string, net.Conn) {
	t.Helper()
	c, err := net.Dial(p.Addr().Network(), p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	at, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := at.User.Password()
	asked := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: to}, Host: to, Header: http.Header{}}
	asked.SetBasicAuth(at.User.Username(), secret)
	asked.Header.Set("Proxy-Authorization", asked.Header.Get("Authorization"))
	asked.Header.Del("Authorization")
	if err := asked.Write(c); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(io.MultiReader(oneByOne{c})), asked)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode == http.StatusOK {
		return res.Status, "", c
	}
	text, _ := io.ReadAll(res.Body)
	return res.Status, strings.TrimSpace(string(text)), c
}

// oneByOne reads at most as much as it was asked to.
type oneByOne struct{ io.Reader }

func (o oneByOne) Read(b []byte) (int, error) { return o.Reader.Read(b[:min(len(b), 1)]) }

func TestProxyReachesNeighboursOnTheList(t *testing.T) {
	port := server(t)
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			o := Options{Allow: []string{"127.0.0.1:" + port}}
			if network == "unix" {
				o.Network, o.Address = "unix", filepath.Join(t.TempDir(), "s")
			}
			p := listen(t, o)
			pass := p.Admit("a")
			if network == "tcp" {
				if status, text := get(t, pass.URL(), "http://127.0.0.1:"+port); status != 200 || text != "reached 127.0.0.1" {
					t.Errorf("got %d %q", status, text)
				}
			}
			line, _, c := connect(t, p, pass.URL(), "127.0.0.1:"+port)
			if line != "200 Connection established" {
				t.Fatalf("got %s", line)
			}
			_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			if text, err := io.ReadAll(c); err != nil || !bytes.HasSuffix(text, []byte("reached 127.0.0.1")) {
				t.Errorf("got %q, %v", text, err)
			}
		})
	}
}

func TestProxyCarriesTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(answer))
	defer s.Close()
	p := listen(t, Options{Allow: []string{"127.0.0.1"}})
	at, _ := url.Parse(p.Admit("a").URL())
	c := &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyURL(at), DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	res, err := c.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); string(text) != "reached 127.0.0.1" {
		t.Errorf("got %q", text)
	}
}

// A refusal states its reason in the body and, for a tunnel, in the status line, which clients show. It is logged once.
func TestRejectionNamesItsReason(t *testing.T) {
	port := server(t)
	var logged bytes.Buffer
	p := listen(t, Options{
		Logger: zerolog.New(&logged), Closed: []string{"http://127.0.0.1:" + port}, Allow: []string{"127.0.0.0/8"},
		Resolver: names(map[string]string{"inside.test": "192.168.0.9", "app.test": "127.0.0.1"}),
	})
	pass := p.Admit("sb-1")
	for to, want := range map[string]string{
		"169.254.169.254:80": "a metadata", "[::1]:80": "a loopback", "inside.test:443": "resolves to 192.168.0.9, a private",
		"127.0.0.1:" + port: "the app's", "app.test:" + port: "the app's", "127.0.0.9:" + port: "the app's",
		p.Addr().String(): "the proxy's", "0x7f000001:" + port: "the app's", "[fd00:ec2::254]:80": "a metadata",
	} {
		for range 2 {
			line, text, _ := connect(t, p, pass.URL(), to)
			if !strings.HasPrefix(line, "403 Forbidden: the worker denied the connection to ") ||
				!strings.Contains(line, want) || !strings.Contains(text, want) {
				t.Errorf("CONNECT %s: %s, %s", to, line, text)
			}
			status, text := get(t, pass.URL(), "http://"+to+"/")
			if status != 403 || !strings.Contains(text, want) || !strings.HasPrefix(text, "the worker denied the connection") {
				t.Errorf("GET %s: %d %s", to, status, text)
			}
		}
		logLines := 0
		for line := range strings.Lines(logged.String()) {
			if strings.Contains(line, want) && strings.Contains(line, fmt.Sprintf("%q", to)) {
				logLines++
			}
		}
		if logLines != 1 {
			t.Errorf("%s was logged %d times:\n%s", to, logLines, &logged)
		}
	}
}

func TestProxyAsksForTheCredentialOfARunningExecutor(t *testing.T) {
	port := server(t)
	p := listen(t, Options{Allow: []string{"127.0.0.1"}})
	at := "127.0.0.1:" + port
	ended, a, b := p.Admit("ended"), p.Admit("a"), p.Admit("b")
	ended.Revoke()
	aURL, _ := url.Parse(a.URL())
	bURL, _ := url.Parse(b.URL())
	secret, _ := bURL.User.Password()
	for name, user := range map[string]*url.Userinfo{
		"none": nil, "empty": url.UserPassword("", ""), "no secret": url.UserPassword("a", ""),
		"another's secret": url.UserPassword("a", secret), "an executor that ended": url.UserPassword("ended", ended.secret),
		"nobody": url.UserPassword("c", secret),
	} {
		to := *aURL
		to.User = user
		if status, text := get(t, to.String(), "http://"+at); status != 407 || !strings.Contains(text, "credential") {
			t.Errorf("%s: %d %s", name, status, text)
		}
		if user != nil {
			if line, _, _ := connect(t, p, to.String(), at); !strings.HasPrefix(line, "407 ") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
	if status, text := get(t, b.URL(), "http://"+at); status != 200 || text != "reached 127.0.0.1" {
		t.Errorf("its own: %d %s", status, text)
	}
}

// The proxy closes the connections of an executor when it ends, even if they are idle.
func TestTunnelsEndWithTheExecutor(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p := listen(t, Options{Allow: []string{"127.0.0.1"}})
	pass, other := p.Admit("a"), p.Admit("b")
	_, _, c := connect(t, p, pass.URL(), silent.Addr().String())
	far, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	_, _, kept := connect(t, p, other.URL(), silent.Addr().String())
	stays, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer stays.Close()
	pass.Revoke()
	_ = far.SetDeadline(time.Now().Add(20 * time.Second))
	for _, end := range []net.Conn{c, far} {
		if n, err := end.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%d bytes, %v", n, err)
		} else if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Error("the tunnel is open")
		}
	}
	if _, err := io.WriteString(stays, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(kept, make([]byte, 1)); err != nil {
		t.Errorf("another executor's tunnel: %v", err)
	}
}

// A side that has closed its sending direction still receives data.
func TestTunnelIsHalfClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c)
		_, _ = c.Write(bytes.ToUpper(all))
	}()
	p := listen(t, Options{Allow: []string{"127.0.0.1"}})
	_, _, c := connect(t, p, p.Admit("a").URL(), l.Addr().String())
	_, _ = io.WriteString(c, "words")
	_ = c.(*net.TCPConn).CloseWrite()
	if all, err := io.ReadAll(c); err != nil || string(all) != "WORDS" {
		t.Errorf("got %q, %v", all, err)
	}
}

func TestExecutorHasSoManyConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := listen(t, Options{Allow: []string{"127.0.0.1"}})
	a, b := p.Admit("a"), p.Admit("b")
	for i := range maxPerPass {
		if line, _, _ := connect(t, p, a.URL(), l.Addr().String()); !strings.HasPrefix(line, "200 ") {
			t.Fatalf("connection %d: %s", i, line)
		}
	}
	if line, _, _ := connect(t, p, a.URL(), l.Addr().String()); !strings.HasPrefix(line, "429 ") {
		t.Errorf("one more: %s", line)
	}
	if line, _, _ := connect(t, p, b.URL(), l.Addr().String()); !strings.HasPrefix(line, "200 ") {
		t.Errorf("of another executor: %s", line)
	}
}

// Idle connections occupy at most the connection slots of the proxy and release them on timeout.
func TestProxyHasSoManyPlaces(t *testing.T) {
	port := server(t)
	p := listen(t, Options{Allow: []string{"127.0.0.1"}})
	p.listener.(*limitedListener).free <- struct{}{} // another connection
	took := 1
	for ; took < cap(p.listener.(*limitedListener).free)-1; took++ {
		p.listener.(*limitedListener).free <- struct{}{}
	}
	pass := p.Admit("a")
	silent, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for len(p.listener.(*limitedListener).free) <= took { // wait until it was accepted
		runtime.Gosched()
	}
	refused, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	_ = refused.SetDeadline(time.Now().Add(20 * time.Second))
	if n, err := refused.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	} else if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		t.Error("one more than there are places was taken")
	}
	_ = silent.Close()
	for len(p.listener.(*limitedListener).free) > took {
		runtime.Gosched()
	}
	if status, text := get(t, pass.URL(), "http://127.0.0.1:"+port); status != 200 {
		t.Errorf("after that: %d %s", status, text)
	}
	if n := places(); n < 1 || n > maxConns {
		t.Errorf("%d places", n)
	}
}

func TestProxyIsNoServer(t *testing.T) {
	p := listen(t, Options{})
	at, _ := url.Parse(p.Admit("a").URL())
	secret, _ := at.User.Password()
	for _, page := range []string{"/", "/etc/passwd"} {
		r, _ := http.NewRequest(http.MethodGet, "http://"+p.Addr().String()+page, nil)
		r.SetBasicAuth(at.User.Username(), secret)
		r.Header.Set("Proxy-Authorization", r.Header.Get("Authorization"))
		res, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", page, res.Status)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, to := range []string{"127.0.0.1:0", "127.0.0.1:99999"} {
		if line, _, _ := connect(t, p, p.Admit("b").URL(), to); !strings.HasPrefix(line, "400 ") {
			t.Errorf("CONNECT %s: %s", to, line)
		}
	}
}

// The proxy checks the target of a redirect like any other request.
func TestRedirectTargetsAreChecked(t *testing.T) {
	inside := server(t)
	outside := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:"+inside+"/", http.StatusFound))
	t.Cleanup(outside.Close)
	p := listen(t, Options{Allow: []string{outside.Listener.Addr().String()}})
	status, text := get(t, p.Admit("a").URL(), outside.URL)
	if status != http.StatusForbidden || !strings.Contains(text, "denied the connection to 127.0.0.1:"+inside) {
		t.Errorf("sent on to an address that is not allowed: %d %q", status, text)
	}
}
