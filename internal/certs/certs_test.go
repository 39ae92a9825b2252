package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/certs"
)

// selfSigned returns a certificate for 127.0.0.1 that is its own authority, and its PEM.
func selfSigned(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Each new connection trusts the authorities in the file at that time; open connections are not affected.
func TestATransportReadsTheAuthoritiesAtEveryConnect(t *testing.T) {
	pair, own := selfSigned(t)
	_, other := selfSigned(t)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.TLS, s.EnableHTTP2 = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, true
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	write := func(pem []byte) {
		t.Helper()
		if err := os.WriteFile(ca, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(own)
	rules, err := certs.Client(ca, "", "")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{ForceAttemptHTTP2: true}
	if err := rules.Transport(transport); err != nil {
		t.Fatal(err)
	}
	defer transport.CloseIdleConnections()
	for _, step := range []struct {
		what string
		file []byte
		anew bool
		want string // text in the error
	}{
		{"the first connection", own, true, ""},
		{"an open connection after the change", other, false, ""},
		{"a new connection after the change", other, true, "unknown authority"},
		{"a file without a certificate", []byte("empty"), true, ca},
		{"the first authority again", own, true, ""},
	} {
		write(step.file)
		if step.anew {
			transport.CloseIdleConnections()
		}
		r, err := (&http.Client{Transport: transport}).Get(s.URL)
		switch {
		case err == nil:
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
			if step.want != "" || r.ProtoMajor != 2 {
				t.Errorf("%s: answered over HTTP/%d, want the error %q", step.what, r.ProtoMajor, step.want)
			}
		case step.want == "" || !strings.Contains(err.Error(), step.want):
			t.Errorf("%s: %v", step.what, err)
		}
	}
}
