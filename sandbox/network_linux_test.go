package sandbox_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// names is the DNS resolver of a test. It maps host names to their IP addresses, separated by spaces.
type names map[string]string

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if n[host] == "" {
		return nil, errors.New("no such host")
	}
	var all []netip.Addr
	for _, a := range strings.Fields(n[host]) {
		all = append(all, netip.MustParseAddr(a))
	}
	return all, nil
}

// clients are handlers that fetch a page, each with the libraries of its language.
var clients = map[string]string{
	"client.mjs": `
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import dgram from 'node:dgram';
import { Worker } from 'node:worker_threads';
const how = {
  fetch: async (url) => { const r = await fetch(url); return [r.status, await r.text()]; },
  http: (url, options) => new Promise((done, no) => (url.startsWith('https') ? https : http).get(url, options ?? {}, (r) => {
    let text = ''; r.setEncoding('utf8').on('data', (t) => (text += t)).on('end', () => done([r.statusCode, text]));
  }).on('error', no)),
  thread: (url) => new Promise((done, no) => new Worker(
    "const { parentPort, workerData } = require('node:worker_threads'); fetch(workerData).then(async (r) => parentPort.postMessage([r.status, await r.text()]), (err) => parentPort.postMessage([0, err + ' ' + err.cause]));",
    { eval: true, workerData: url }).on('message', done).on('error', no)),
  agent: (url) => how.http(url, { agent: new (url.startsWith('https') ? https : http).Agent({ keepAlive: true }) }),
};
export async function main({ url, way }) {
  try { const [status, text] = await how[way](url); return { status, text }; }
  catch (err) { return { failed: String(err) + ' ' + String(err.cause ?? '') }; }
}
export const direct = ({ host, port }) => new Promise((done) => net.connect(port, host, () => done('open')).on('error', (err) => done(err.code)));
export const datagram = () => new Promise((done) => { try {
  const s = dgram.createSocket('udp4'); s.on('error', (err) => done(err.code)).send('x', 53, '127.0.0.1', (err) => done(err ? err.code : 'open'));
} catch (err) { done(err.code ?? String(err)); } });
export const way = () => process.env.HTTP_PROXY ?? '';
export async function as({ proxy, url }) { // with another credential, as any client of the proxy would
  const at = new URL(proxy);
  const connect = process.env.SOJOURN_EGRESS_SOCKET ? { path: process.env.SOJOURN_EGRESS_SOCKET } : { host: at.hostname, port: Number(at.port) };
  return new Promise((done) => {
    let text = '';
    const s = net.connect(connect, () => s.write('GET ' + url + ' HTTP/1.1\r\nHost: x\r\nConnection: close\r\nProxy-Authorization: Basic ' + btoa(at.username + ':' + at.password) + '\r\n\r\n'));
    s.on('data', (t) => (text += t)).on('close', () => done(text)).on('error', (err) => done(String(err)));
  });
}
`,
	"client.py": `
import asyncio, http.client, os, socket, subprocess, sys, urllib.request, urllib.error
from urllib.parse import urlsplit
PAGE = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except urllib.error.HTTPError as err:
    sys.exit(err.read().decode())
except Exception as err:
    sys.exit(repr(err))
"""
def urllib_(url):
    with urllib.request.urlopen(url, timeout=20) as r:
        return r.status, r.read().decode()
def tunnel(url):
    proxy, to = urlsplit(os.environ["HTTPS_PROXY"]), urlsplit(url)
    import base64
    c = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=20)
    credential = base64.b64encode(("%s:%s" % (proxy.username, proxy.password)).encode()).decode()
    c.set_tunnel(to.hostname, to.port, {"Proxy-Authorization": "Basic " + credential})
    c.request("GET", "/")
    r = c.getresponse()
    return r.status, r.read().decode()
def child(url):
    out = subprocess.run([sys.executable, "-c", PAGE, url], capture_output=True, text=True)
    return (200, out.stdout.strip()) if out.returncode == 0 else (0, out.stderr)
def requests_(url):
    import requests
    r = requests.get(url, timeout=20, verify=os.environ["SSL_CERT_FILE"])
    return r.status_code, r.text
async def streams(url):
    proxy, to = urlsplit(os.environ["HTTP_PROXY"]), urlsplit(url)
    import base64
    r, w = await asyncio.open_connection(proxy.hostname, proxy.port)
    credential = base64.b64encode(("%s:%s" % (proxy.username, proxy.password)).encode()).decode()
    w.write(("GET %s HTTP/1.0\r\nHost: %s\r\nProxy-Authorization: Basic %s\r\n\r\n" % (url, to.netloc, credential)).encode())
    text = (await r.read()).decode()
    w.close()
    return int(text.split(" ")[1]), text.split("\r\n\r\n", 1)[1]
async def main(args, ctx):
    try:
        fn = {"urllib": urllib_, "tunnel": tunnel, "child": child, "requests": requests_, "asyncio": streams}[args["way"]]
        status, text = await fn(args["url"]) if fn is streams else await asyncio.to_thread(fn, args["url"])
        return {"status": status, "text": text}
    except urllib.error.HTTPError as err:
        return {"status": err.code, "text": err.read().decode()}
    except ImportError:
        return {"status": -1}
    except Exception as err:
        return {"failed": repr(err)}
def direct(args, ctx):
    try:
        socket.create_connection((args["host"], args["port"]), timeout=20).close()
        return "open"
    except OSError as err:
        return err.strerror or repr(err)
def datagram(_, ctx):
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 53))
        return "open"
    except OSError as err:
        return err.strerror or repr(err)
def way(_, ctx):
    return os.environ.get("HTTP_PROXY", "")
async def as_(args, ctx):
    proxy = os.environ["HTTP_PROXY"]
    os.environ["HTTP_PROXY"] = args["proxy"]
    try:
        return str(await streams(args["url"]))
    finally:
        os.environ["HTTP_PROXY"] = proxy
globals()["as"] = as_
`,
}

// clientsDir returns a folder with only the handlers of a runtime.
func clientsDir(t *testing.T, runtime string) string {
	dir := t.TempDir()
	name := map[string]string{sandbox.RuntimeNode: "client.mjs", sandbox.RuntimePython: "client.py"}[runtime]
	if name == "" {
		return ""
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, name), []byte(clients[name]), 0o644), os.Chmod(filepath.Dir(dir), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

// neighbour starts a server that responds with its name, and returns its port. With TLS it writes its certificate, for
// loopback addresses and example.com, to the CA file.
func neighbour(t *testing.T, name string, authority string) string {
	return neighbourWith(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, name)
	}), authority)
}

func neighbourWith(t *testing.T, answers http.Handler, authority string) string {
	s := httptest.NewUnstartedServer(answers)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if authority == "" {
		s.Start()
	} else {
		s.StartTLS()
		certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		if err := os.WriteFile(authority, certificate, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return port
}

type page struct {
	Status int    `json:"status"`
	Text   string `json:"text"`
	Failed string `json:"failed"`
}

var waysOf = map[string][]string{
	sandbox.RuntimeNative: {"http"},
	sandbox.RuntimeNode:   {"fetch", "http", "agent", "thread"},
	sandbox.RuntimePython: {"urllib", "tunnel", "asyncio", "child", "requests"},
}

// kernels returns the mechanisms for filtered egress: port rules of Landlock, and seccomp filters alone.
func kernels(t *testing.T) map[string]lockdown.Kernel {
	here := lockdown.Offered()
	if here.Landlock == 0 || !here.Filter {
		t.Skipf("this kernel offers %+v to this process", here)
	}
	all := map[string]lockdown.Kernel{"seccomp": {Landlock: min(here.Landlock, 3), Filter: true}}
	if here.HoldsPorts() {
		all["landlock"] = here
	}
	return all
}

// Checks which addresses handlers reach with filtered egress, with each HTTP client of their language.
func TestFilteredEgress(t *testing.T) {
	for by, kernel := range kernels(t) {
		for _, target := range Targets {
			t.Run(by+"/"+target.Runtime, func(t *testing.T) { filtered(t, by, kernel, target) })
		}
	}
}

func filtered(t *testing.T, by string, kernel lockdown.Kernel, target Target) {
	authority := filepath.Join(t.TempDir(), "authority.pem")
	near, secure := neighbour(t, "near", ""), neighbour(t, "secure", authority)
	closed, app := neighbour(t, "closed", ""), neighbour(t, "app", "")
	moved := neighbourWith(t, http.RedirectHandler("http://127.0.0.1:"+closed, http.StatusFound), "")
	var logged bytes.Buffer
	o := sandbox.Options{
		Handlers: clientsDir(t, target.Runtime), Apps: []string{"http://127.0.0.1:" + app},
		EgressAllow: []string{
			"127.0.0.1:" + near, "127.0.0.1:" + moved, "near.test", "127.0.0.1:" + secure, "127.0.0.1:" + app,
		},
		Read:        []string{authority},
		Environment: []string{"NODE_EXTRA_CA_CERTS=" + authority, "SSL_CERT_FILE=" + authority},
		Logger:      zerolog.New(zerolog.SyncWriter(&logged)),
	}.WithKernel(kernel).WithResolver(names{
		"near.test": "127.0.0.1", "inside.test": "10.0.0.5", "mixed.test": "1.1.1.1 127.0.0.1",
	})
	if target.Runtime != sandbox.RuntimeNative {
		target.Activity = "client"
	}
	b := confined(t, target, o)
	if r := b.Report(); r.Egress != sandbox.EgressFiltered || r.EgressBy != by {
		t.Fatalf("egress %s by %s: %s", r.Egress, r.EgressBy, r.Reason)
	}
	session := func(entry string, args any) sandbox.Invocation { return In("s", 1, b.Call(entry, args)) }
	main := "main"
	if target.Runtime == sandbox.RuntimeNative {
		main = "page"
	}
	for _, way := range waysOf[target.Runtime] {
		ask := func(url string) page {
			return Got[page](t, b.Run(session(main, map[string]string{"url": url, "way": way})))
		}
		if ask("http://127.0.0.1:"+near).Status == -1 {
			continue // a library that is not installed on this machine
		}
		if way == "child" && by == "seccomp" { // this way has no shim, as documented
			if got := ask("http://127.0.0.1:" + near); got.Status == 200 {
				t.Errorf("a child process without a shim got %+v", got)
			}
			continue
		}
		for url, text := range map[string]string{
			"http://127.0.0.1:" + near: "near", "http://near.test:" + near: "near", "https://127.0.0.1:" + secure: "secure",
		} {
			if strings.HasPrefix(url, "https") && (way == "tunnel" || way == "asyncio") { // these do not support TLS
				continue
			}
			if got := ask(url); got.Status != 200 || got.Text != text {
				t.Errorf("%s %s: %+v", way, url, got)
			}
		}
		// Clients still verify certificates: this certificate is for other names.
		if got := ask("https://near.test:" + secure); got.Status == 200 {
			t.Errorf("%s: a certificate for another host counts: %+v", way, got)
		}
		if got := ask("http://127.0.0.1:" + moved); got.Status == 200 || strings.Contains(got.Text, "closed") {
			t.Errorf("%s: it was sent on to what is closed: %+v", way, got)
		}
		for url, why := range map[string]string{
			"http://127.0.0.1:" + closed: "a loopback", "http://[::1]:" + closed: "a loopback",
			"http://169.254.169.254/": "a metadata", "http://[fd00:ec2::254]/": "a metadata",
			"http://0x7f.1:" + closed: "a loopback", "http://127.1:" + closed: "a loopback",
			"http://0:" + closed:  "an unspecified",
			"http://inside.test/": "10.0.0.5, a private", "http://mixed.test:" + closed: "a loopback",
			"http://2130706433:" + closed: "a loopback", "http://0x7f000001:" + closed: "a loopback",
			// a name that does not resolve here
			"http://0177.0.0.1:" + closed: "a loopback", "http://localhost.:" + closed: "",
			"http://[::ffff:127.0.0.1]:" + closed: "a loopback", "http://127.0.0.1:" + app: "the app's",
			"http://near.test:" + app: "the app's", "https://10.0.0.5/": "a private",
		} {
			// http.client of Python omits the brackets in CONNECT; this client is written for the test.
			if way == "tunnel" && strings.Contains(url, "[") || way == "asyncio" && strings.HasPrefix(url, "https") {
				continue
			}
			got := ask(url)
			if got.Status == 200 || !strings.Contains(got.Text+got.Failed, why) {
				t.Errorf("%s %s: %+v", way, url, got)
			}
		}
	}
	if target.Runtime == sandbox.RuntimeNative {
		return
	}
	for _, to := range []map[string]any{
		{"host": "127.0.0.1", "port": number(t, near)},
		{"host": "127.0.0.1", "port": number(t, closed)},
		{"host": "127.0.0.1", "port": number(t, app)},
	} {
		if got := Got[string](t, b.Run(session("direct", to))); got != "EACCES" && !strings.Contains(got, "denied") &&
			!strings.Contains(got, "worker's proxy") {
			t.Errorf("past the proxy to %v: %s", to, got)
		}
	}
	if got := Got[string](t, b.Run(session("datagram", nil))); got == "open" {
		t.Error("UDP is open")
	}
	mine := Got[string](t, b.Run(session("way", nil)))
	other := Got[string](t, b.Run(In("other", 1, b.Call("way", nil))))
	name := func(url string) string { at, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":"); return at }
	mixed := strings.Replace(mine, name(mine), name(other), 1)
	if mine == other || mixed == mine {
		t.Fatalf("one credential: %s and %s", mine, other)
	}
	as := func(proxy string) string {
		return Got[string](t, b.Run(session("as", map[string]string{"proxy": proxy, "url": "http://127.0.0.1:" + near})))
	}
	if got := as(mine); !strings.Contains(got, "near") {
		t.Errorf("its own credential: %s", got)
	}
	if got := as(mixed); !strings.Contains(got, "407") || strings.Contains(got, "near") {
		t.Errorf("another's name: %s", got)
	}
	if err := b.CloseSession(t.Context(), sandbox.Session{ID: "other", Epoch: 1}, "done"); err != nil {
		t.Fatal(err)
	}
	if got := as(other); !strings.Contains(got, "407") || strings.Contains(got, "near") {
		t.Errorf("a credential of an executor that ended: %s", got)
	}
	b.Close()
	at := fmt.Sprintf("%q", "127.0.0.1:"+closed)
	if n := strings.Count(logged.String(), at); n != 1 {
		t.Errorf("%s was logged %d times", at, n)
	}
}

func number(t *testing.T, port string) (n int) {
	if _, err := fmt.Sscan(port, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Without egress there is no network access, not even to a proxy.
func TestNoEgress(t *testing.T) {
	near := neighbour(t, "near", "")
	for _, target := range Targets[1:] {
		t.Run(target.Runtime, func(t *testing.T) {
			target.Activity = "client"
			b := confined(t, target, sandbox.Options{Handlers: clientsDir(t, target.Runtime), Egress: sandbox.EgressNone})
			if r := b.Report(); r.Egress != sandbox.EgressNone || r.EgressBy != "seccomp" {
				t.Fatalf("egress %s by %s", r.Egress, r.EgressBy)
			}
			if got := Got[string](t, b.Run(b.Call("way", nil))); got != "" {
				t.Errorf("there is a proxy: %s", got)
			}
			for _, entry := range []string{"direct", "datagram"} {
				to := map[string]any{"host": "127.0.0.1", "port": number(t, near)}
				if got := Got[string](t, b.Run(b.Call(entry, to))); got == "open" {
					t.Errorf("%s is open", entry)
				}
			}
			got := Got[page](t, b.Run(b.Call("main", map[string]string{
				"url": "http://127.0.0.1:" + near, "way": waysOf[target.Runtime][0],
			})))
			if got.Status != 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestOpenEgressIsAllTheWorkerReaches(t *testing.T) {
	near := neighbour(t, "near", "")
	for _, target := range Targets[1:] {
		t.Run(target.Runtime, func(t *testing.T) {
			target.Activity = "client"
			b := confined(t, target, sandbox.Options{Handlers: clientsDir(t, target.Runtime), Egress: sandbox.EgressOpen})
			if r := b.Report(); r.Egress != sandbox.EgressOpen || r.EgressBy != "" {
				t.Fatalf("egress %s by %s", r.Egress, r.EgressBy)
			}
			to := map[string]any{"host": "127.0.0.1", "port": number(t, near)}
			if got := Got[string](t, b.Run(b.Call("direct", to))); got != "open" {
				t.Errorf("direct: %s", got)
			}
			got := Got[page](t, b.Run(b.Call("main", map[string]string{
				"url": "http://127.0.0.1:" + near, "way": waysOf[target.Runtime][0],
			})))
			if got.Text != "near" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A pool enforces the requested egress or fails to open.
func TestEgressIsLimitedOrRefused(t *testing.T) {
	none := lockdown.Kernel{}
	for name, o := range map[string]sandbox.Options{
		"filtered at level process":     {Egress: sandbox.EgressFiltered, Level: sandbox.LevelProcess},
		"none at level process":         {Egress: sandbox.EgressNone, Level: sandbox.LevelProcess},
		"filtered on an old kernel":     sandbox.Options{Egress: sandbox.EgressFiltered}.WithKernel(none),
		"none on an old kernel":         sandbox.Options{Egress: sandbox.EgressNone}.WithKernel(none),
		"filtered, any level allowed":   sandbox.Options{Egress: sandbox.EgressFiltered, AllowWeaker: true}.WithKernel(none),
		"none, with confined asked for": sandbox.Options{Egress: sandbox.EgressNone, Level: sandbox.LevelConfined}.WithKernel(none),
	} {
		o.Dir = t.TempDir()
		p, err := sandbox.NewPool(o)
		if err == nil {
			p.Close()
		}
		if !errors.Is(err, sandbox.ErrTooWeak) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := sandbox.Options{Dir: t.TempDir(), EgressAllow: []string{"http://db"}}
	p, err := sandbox.NewPool(o)
	if err == nil {
		p.Close()
	}
	if err == nil || !strings.Contains(err.Error(), `"http://db" is not a HOST`) {
		t.Errorf("a list that cannot be read: %v", err)
	}
}
