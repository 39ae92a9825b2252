package httpjson_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/internal/httpjson"
)

// pipes is a listener with in-memory connections, which use the virtual time of a synctest bubble.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.IPAddr{} }

func TestBodyHasADeadlineAndTheHandlerHasNone(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	reads := func(w http.ResponseWriter, r *http.Request) {
		if err := read(w, r, httpjson.MaxBody, &struct{}{}); err != nil {
			http.Error(w, err.Error(), httpjson.Refusal(err).Reason.Status())
		}
	}
	refuses := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) }
	polls := func(w http.ResponseWriter, r *http.Request) {
		reads(w, r)
		select {
		case <-time.After(5 * time.Minute):
		case <-r.Context().Done():
			http.Error(w, "cut off", http.StatusTeapot)
		}
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		send    string
		every   time.Duration // another space of the body
		status  int
		by      time.Duration // time by which the connection ends or the response arrives
	}{
		{"a body that stops", reads, head + "Content-Length: 100\r\n\r\n{", 0, 400, 31 * time.Second},
		{"a body that trickles", reads, head + "Content-Length: 1000\r\n\r\n{", time.Second, 400, 31 * time.Second},
		{"chunks that stop", reads, head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 0, 400, 31 * time.Second},
		{"a body nobody reads", refuses, head + "Content-Length: 100\r\n\r\n{", 0, 401, 31 * time.Second},
		{"a length that is a lie", reads, head + "Content-Length: 2000000\r\n\r\n{", 0, 400, 40 * time.Second},
		{"a poll", polls, head + "Content-Length: 2\r\n\r\n{}", 0, 200, 6 * time.Minute},
		{"a poll in chunks", polls, head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 0, 200, 6 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := pipes{make(chan net.Conn, 1)}
				server := &http.Server{Handler: httpjson.BodyDeadline(c.handler)}
				served := make(chan struct{})
				go func() { _ = server.Serve(listener); close(served) }()
				ours, theirs := net.Pipe()
				listener.conns <- theirs
				began := time.Now()
				stop := make(chan struct{})
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					_, err := io.Copy(ours, strings.NewReader(c.send))
					for c.every > 0 && err == nil {
						select {
						case <-time.After(c.every):
							_, err = ours.Write([]byte(" "))
						case <-stop:
							return
						}
					}
				}()
				res, err := http.ReadResponse(bufio.NewReader(ours), nil)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); res.StatusCode != c.status || took > c.by {
					t.Errorf("got %d after %v, want %d within %v", res.StatusCode, took, c.status, c.by)
				}
				close(stop)
				_ = ours.Close()
				<-sent
				close(listener.conns)
				_ = server.Close()
				<-served
				time.Sleep(time.Second) // the server lingers for a caller that still sends
			})
		})
	}
}
