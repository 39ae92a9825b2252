package app

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/httpjson"
)

// Probes answers liveness probes at the app's address while the app waits for its database and does not serve yet: a
// supervisor must not restart a process because of its database.
type Probes struct {
	Addr string
	TLS  *tls.Config // nil: plain HTTP
	Log  zerolog.Logger

	mu      sync.Mutex
	server  *http.Server // guarded by mu
	serving sync.WaitGroup
}

// Serve starts the probe server; a second call does nothing. A failure to listen is only logged: when the app starts to
// serve, it listens on the same address and returns the error.
func (p *Probes) Serve() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		return
	}
	p.server = &http.Server{
		Handler: http.HandlerFunc(answerProbe), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(p.Log, "", 0),
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", p.Addr)
	if err != nil {
		p.Log.Warn().Err(err).Msg("failed to listen for probes while the app waits for its database")
		return
	}
	if p.TLS != nil {
		listener = tls.NewListener(listener, p.TLS)
	}
	p.serving.Go(func() { _ = p.server.Serve(listener) }) // returns after Close
}

// Close stops the probe server and releases its address.
func (p *Probes) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		_ = p.server.Close()
		p.serving.Wait()
	}
}

func answerProbe(w http.ResponseWriter, r *http.Request) {
	status, body := http.StatusOK, `{"status":"up"}`
	if r.URL.Path != "/up" && r.URL.Path != "/healthz" {
		status, body = http.StatusServiceUnavailable, `{"status":"unavailable","message":"the app waits for its database"}`
	}
	httpjson.StatusHeaders(w, status)
	_ = httpjson.Write(w, r, status, []byte(body)) // fails if the caller disconnected
}
