// Package certs builds TLS configurations from files and reloads certificates when the files change.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// Server returns the TLS configuration of an app: the certificate in cert, its key, and, if ca names a file, the CA
// bundle for client certificates. The handshake rejects a certificate of another CA; whether a client must present one
// is decided by the HTTP handler. Each handshake checks whether a file changed. If a changed file cannot be read,
// failed is called once for the change and the previous configuration stays in use. Open connections keep their
// configuration.
func Server(cert, key, ca string, failed func(error)) (*tls.Config, error) {
	w := &watched{cert: cert, key: key, ca: ca, failed: failed}
	w.seen = w.stamps()
	var err error
	if w.rules, err = w.read(); err != nil {
		return nil, err
	}
	c := w.rules.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return w.now(), nil }
	return c, nil
}

// watched is the configuration last read from files, with the files' stamps at that time.
type watched struct {
	cert, key, ca string
	failed        func(error)

	mu    sync.Mutex // guards the fields below
	seen  []stamp
	rules *tls.Config
}

// stamp identifies a version of a file.
type stamp struct {
	at   time.Time
	size int64
}

func (w *watched) stamps() []stamp {
	var all []stamp
	for _, path := range []string{w.cert, w.key, w.ca} {
		var s stamp
		if info, err := os.Stat(path); err == nil { // Stat follows symbolic links, which Kubernetes replaces
			s = stamp{info.ModTime(), info.Size()}
		}
		all = append(all, s)
	}
	return all
}

func (w *watched) now() *tls.Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.stamps()
	if slices.Equal(seen, w.seen) {
		return w.rules
	}
	w.seen = seen
	rules, err := w.read()
	if err != nil { // for example, the certificate is new and the key is not: read again after the next change
		w.failed(err)
		return w.rules
	}
	w.rules = rules
	return rules
}

func (w *watched) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(w.cert, w.key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", w.cert, w.key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if w.ca != "" {
		c.ClientAuth = tls.VerifyClientCertIfGiven
		c.ClientCAs, err = authorities(w.ca)
	}
	return c, err
}

// Rules returns the TLS configuration of a client of the app. It reads the files at each call; nil: the default
// configuration.
type Rules func() (*tls.Config, error)

// Config calls r, which may be nil.
func (r Rules) Config() (*tls.Config, error) {
	if r == nil {
		return nil, nil
	}
	return r()
}

// Transport makes t use r: each new connection uses the current content of the files. Open connections are not
// affected. A connection through a proxy uses the content at the time of this call.
func (r Rules) Transport(t *http.Transport) error {
	config, err := r.Config()
	if err != nil || config == nil {
		return err
	}
	t.TLSClientConfig = config
	dial := t.DialContext
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := r()
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		config.ServerName = host
		if t.ForceAttemptHTTP2 {
			config.NextProtos = []string{"h2", "http/1.1"}
		}
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		limit := t.TLSHandshakeTimeout
		if limit <= 0 {
			limit = handshakeTimeout
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		conn := tls.Client(raw, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		return conn, nil
	}
	return nil
}

// handshakeTimeout limits a TLS handshake of a transport that sets no limit.
const handshakeTimeout = 10 * time.Second

// Client returns the TLS rules for connections of workers and commands to an app: they verify the app with the CA
// bundle ca, or the system's CA bundle if ca is empty, and present the client certificate cert. The files are read for
// every connection, and an unreadable file is an error already here. Without files the rules are nil.
func Client(ca, cert, key string) (Rules, error) {
	if ca == "" && cert == "" {
		return nil, nil
	}
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("client certificate %s with key %s: %w", cert, key, err)
		}
		return &pair, nil
	}
	rules := Rules(func() (*tls.Config, error) {
		c := &tls.Config{MinVersion: tls.VersionTLS12}
		var err error
		if ca != "" {
			if c.RootCAs, err = authorities(ca); err != nil {
				return nil, err
			}
		}
		if cert != "" {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
		}
		return c, nil
	})
	_, err := rules()
	if err == nil && cert != "" {
		_, err = read()
	}
	if err != nil {
		return nil, err
	}
	return rules, nil
}

func authorities(path string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("CA bundle: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("CA bundle %s contains no PEM certificate", path)
	}
	return pool, nil
}
