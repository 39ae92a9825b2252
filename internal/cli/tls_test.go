package cli_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for a test.
type authority struct {
	t      *testing.T
	dir    string
	serial int64
	own    *x509.Certificate
	key    *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.sign("ca")
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// sign writes NAME.crt and NAME.key, of 127.0.0.1; the first is the authority itself. It returns the serial number.
func (a *authority) sign(name string) int64 {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.serial++
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if a.own == nil {
		c.IsCA, c.ExtKeyUsage = true, nil
		a.own, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.own, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for kind, b := range map[string]*pem.Block{
		".key": {Type: "PRIVATE KEY", Bytes: secret}, ".crt": {Type: "CERTIFICATE", Bytes: der},
	} {
		if err := os.WriteFile(a.path(name+kind), pem.EncodeToMemory(b), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return a.serial
}

// The app, workers on the socket and over HTTP, and commands all use certificates. Replacing the app's certificate at
// run time interrupts none of them. Clients with a certificate or CA bundle of another authority are rejected with a
// clear error. Replacing the authority of the app's certificate needs no restart of the workers.
func TestCertificatesOfBothSides(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	first := ours.sign("app")
	ours.sign("worker")
	others.sign("worker")
	dir, at := t.TempDir(), address(t)
	app := launch(t, dir, env{
		"SOJOURN_TLS_CERT": ours.path("app.crt"), "SOJOURN_TLS_KEY": ours.path("app.key"),
		"SOJOURN_TLS_CLIENT_CA": ours.path("ca.crt"),
	}, "app", "--addr", at)
	app.line(app.err, `"url":"https://.*app started`)
	trusted := filepath.Join(dir, "trusted.crt")
	trust := func(a *authority) {
		t.Helper()
		raw, err := os.ReadFile(a.path("ca.crt"))
		if err == nil {
			err = os.WriteFile(trusted, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	trust(ours)
	caller := env{
		"SOJOURN_APP_URL": "https://" + at, "SOJOURN_APP_CA": trusted,
		"SOJOURN_CLIENT_CERT": ours.path("worker.crt"), "SOJOURN_CLIENT_KEY": ours.path("worker.key"),
		ledgerPath: filepath.Join(dir, "ledger"),
	}
	var workers []*process
	for _, link := range []string{"socket", "http"} {
		w := launch(t, dir, caller, "worker", "--link", link, "--queues", link, "--worker-id", link)
		w.line(w.err, `"message":"connected to the app"`)
		workers = append(workers, w)
	}
	work := func() {
		t.Helper()
		for _, queue := range []string{"socket", "http"} {
			code, out, errs := run(t, dir, caller, "workflow", "start", "one", "--queue", queue, "--input", `["done"]`, "--wait")
			if code != 0 || !strings.Contains(out, "done") {
				t.Fatalf("the worker over %s: code %d, %q, %q", queue, code, out, errs)
			}
		}
	}
	work()

	pool := x509.NewCertPool()
	ca, err := os.ReadFile(ours.path("ca.crt"))
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatal(err)
	}
	uncertified := func() *http.Client {
		return &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true, //nolint:gosec // of now
		}}
	}
	get := func(c *http.Client, path string) (status int, serial int64, body string) {
		t.Helper()
		r, err := c.Get("https://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Body.Close() }()
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		if r.ProtoMajor != 1 { // also for a client that prefers HTTP/2
			t.Errorf("%s is answered with %s", path, r.Proto)
		}
		return r.StatusCode, r.TLS.PeerCertificates[0].SerialNumber.Int64(), string(raw)
	}
	old := uncertified()
	if status, serial, _ := get(old, "/healthz"); status != http.StatusOK || serial != first {
		t.Errorf("a probe got %d from certificate %d", status, serial)
	}
	for version, taken := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true} {
		oldest := &tls.Config{RootCAs: pool, MinVersion: version, MaxVersion: version} //nolint:gosec // it is to be refused
		c, err := tls.Dial("tcp", at, oldest)
		if (err == nil) != taken {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			_ = c.Close()
		}
	}
	status, _, body := get(old, "/api/workflows")
	if status != http.StatusForbidden || !strings.Contains(body, "client certificate") {
		t.Errorf("without a certificate: got %d %q", status, body)
	}

	for what, c := range map[string]struct {
		more env
		want string
	}{
		"an app of others": {env{"SOJOURN_APP_CA": others.path("ca.crt")}, "certificate signed by unknown authority"},
		"a client of others": {
			env{"SOJOURN_CLIENT_CERT": others.path("worker.crt"), "SOJOURN_CLIENT_KEY": others.path("worker.key")},
			"unknown certificate authority",
		},
	} {
		code, _, errs := run(t, dir, caller.with(c.more), "workflow", "list")
		if code == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: code %d, %q", what, code, errs)
		}
		w := launch(t, dir, caller.with(c.more), "worker", "--link", "socket", "--queues", "none")
		w.line(w.err, c.want)
		w.kill()
	}

	// An incomplete new key pair is ignored: the old one stays in use, and the log reports it.
	whole, err := os.ReadFile(ours.path("app.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ours.path("app.key"), bytes.Repeat(whole, 2)[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, serial, _ := get(uncertified(), "/healthz"); serial != first {
		t.Errorf("with half of a key: got certificate %d", serial)
	}
	app.line(app.err, `failed to reload the TLS certificate`)
	second := ours.sign("app")
	if _, serial, _ := get(uncertified(), "/healthz"); serial != second {
		t.Errorf("after the change: got certificate %d, want %d", serial, second)
	}
	if _, serial, _ := get(old, "/healthz"); serial != first {
		t.Errorf("the connection from before shows certificate %d: it is another one", serial)
	}
	work()
	for _, w := range workers {
		if n := w.err.count(`connection to the app lost`); n != 0 {
			t.Errorf("%s lost its connection %d times", w.name, n)
		}
	}

	// The app restarts with a certificate of another authority. The workers read the new CA bundle from the file.
	next := newAuthority(t)
	next.sign("app")
	app.kill()
	trust(next)
	app = launch(t, dir, env{
		"SOJOURN_TLS_CERT": next.path("app.crt"), "SOJOURN_TLS_KEY": next.path("app.key"),
		"SOJOURN_TLS_CLIENT_CA": ours.path("ca.crt"),
	}, "app", "--addr", at)
	app.line(app.err, `"url":"https://.*app started`)
	work()
	for _, w := range workers {
		if code := w.terminate(); code != 0 {
			t.Errorf("%s ended with %d", w.name, code)
		}
	}
}
