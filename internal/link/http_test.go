package link_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// proxy forwards requests to an app, unless refuse responds to them.
func proxy(t *testing.T, a *apptest.App, refuse func(w http.ResponseWriter, r *http.Request) bool) string {
	t.Helper()
	to, err := url.Parse(a.URL())
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(to)
	through.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	idle := &http.Transport{}
	through.Transport = idle
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !refuse(w, r) {
			through.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close(); idle.CloseIdleConnections() })
	return s.URL
}

// The check before a return to the preferred app fails while that app is not ready, and once it drains.
func TestAWorkerDoesNotReturnToAnAppThatIsNotReady(t *testing.T) {
	remote(t, func(t *testing.T, to func(...string) link.Carrier) {
		a := apptest.Start(t, apptest.Options{})
		var sick atomic.Bool
		at := proxy(t, a, func(w http.ResponseWriter, r *http.Request) bool {
			refuse := sick.Load() && r.URL.Path == "/readyz"
			if refuse {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return refuse
		})
		conn, err := to(at).Dial(t.Context(), protocol.ChannelAuth{WorkerID: "w", Protocol: protocol.ChannelVersion}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		check := func(what string, ready bool) {
			t.Helper()
			s, err := conn.(interface {
				CheckPreferred(ctx context.Context) (protocol.WorkerSettings, error)
			}).CheckPreferred(t.Context())
			if (err == nil) != ready || ready && s.Release != "test" {
				t.Errorf("an app that %s: %+v, %v", what, s, err)
			}
		}
		check("serves", true)
		sick.Store(true)
		check("is not ready", false)
		sick.Store(false)
		check("is ready again", true)
		a.Broker().Drain()
		check("drains", false)
	})
}

func isSocket(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, protocol.ChannelPath) }

func TestAutoUsesHTTPWhereSocketsAreBlocked(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	tried := map[string]func(w http.ResponseWriter, r *http.Request){
		"refused": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no upgrades here", http.StatusForbidden) },
		"silent":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	}
	for name, deny := range tried {
		t.Run(name, func(t *testing.T) {
			at := proxy(t, a, func(w http.ResponseWriter, r *http.Request) bool {
				if isSocket(r) {
					deny(w, r)
				}
				return isSocket(r)
			})
			l := start(
				t, link.Options{Carrier: link.To(link.WayAuto, []string{at}), Incarnation: name, ConnectTimeout: 3 * time.Second},
			)
			l.ready()
			no := int64(0)
			if _, err := l.Poll(t.Context(), protocol.PollRequest{Timeout: &no}); err != nil {
				t.Error(err)
			}
			_ = l.end()
		})
	}
}

func TestAutoUsesTheSocketOfAnAppThatWasStarting(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	var tries, plain atomic.Int32
	at := proxy(t, a, func(w http.ResponseWriter, r *http.Request) bool {
		if !isSocket(r) && !strings.HasSuffix(r.URL.Path, "/settings") {
			plain.Add(1)
		}
		if isSocket(r) && tries.Add(1) == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return true
		}
		return false
	})
	l := start(t, link.Options{Carrier: link.To("", []string{at})})
	l.ready()
	no := int64(0)
	if _, err := l.Poll(t.Context(), protocol.PollRequest{Timeout: &no}); err != nil {
		t.Error(err)
	}
	if plain.Load() > 0 {
		t.Errorf("%d requests went over HTTP", plain.Load())
	}
}

func TestAutoStaysOutWithARefusedToken(t *testing.T) {
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isSocket(r) {
			http.Error(w, "no upgrades here", http.StatusForbidden)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"reason": "unauthorized", "message": "a valid token is needed"}`)
	}))
	t.Cleanup(at.Close)
	_, err := link.To(link.WayAuto, []string{at.URL}).Dial(
		t.Context(), protocol.ChannelAuth{WorkerID: "w", Protocol: 1}, nil,
	)
	var refused *link.Refused
	if !errors.As(err, &refused) || refused.Reason != "unauthorized" {
		t.Errorf("got %v", err)
	}
}

// After a response that is not from the app, the outcome of the request is unknown, and both sides compare their
// leases. A proxy's timeout of a poll is an exception.
func TestAnswersOfAProxyAreNotTakenForTheApps(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	var registered, answer atomic.Int32
	at := proxy(t, a, func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/register") {
			registered.Add(1)
		}
		status := int(answer.Load())
		if status == 0 || !strings.Contains(r.URL.Path, "/tasks/") {
			return false
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<html>sorry</html>")
		return true
	})
	l := start(t, link.Options{Carrier: &link.HTTP{URLs: []string{at}}})
	l.ready()
	no := int64(0)
	ask := func() error {
		_, err := l.Poll(t.Context(), protocol.PollRequest{Timeout: &no})
		return err
	}
	answer.Store(http.StatusGatewayTimeout)
	if err := ask(); !link.Lost(err) {
		t.Errorf("a timeout of the proxy: got %v", err)
	}
	if registered.Load() != 1 || !l.Connected() {
		t.Errorf("registered %d times, connected: %t", registered.Load(), l.Connected())
	}
	answer.Store(http.StatusRequestEntityTooLarge)
	if _, err := l.Complete(t.Context(), protocol.CompleteRequest{}); !errors.Is(err, socketio.ErrPayloadTooLarge) {
		t.Errorf("a proxy that takes less: got %v", err)
	}
	answer.Store(http.StatusBadGateway)
	if err := ask(); !link.Lost(err) {
		t.Errorf("a proxy without the app: got %v", err)
	}
	eventually(t, "it registers again", func() bool { return registered.Load() >= 2 })
	answer.Store(0)
	if err := ask(); err != nil {
		t.Error(err)
	}
}

func TestOutcomesTooLargeForOneRequestAreNotSent(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	l := start(t, link.Options{Carrier: &link.HTTP{URLs: []string{a.URL()}}})
	l.ready()
	blob := strings.Repeat("x", 9<<20)
	_, err := l.Complete(t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{{
		Kind: protocol.KindActivity, TaskID: "R-1", AttemptID: "R-1-1", Owner: "w", Failure: &protocol.Failure{Message: blob},
	}}})
	if !errors.Is(err, socketio.ErrPayloadTooLarge) || !l.Connected() {
		t.Errorf("got %v, connected: %t", err, l.Connected())
	}
}

// holding has one lease that is never due.
type holding struct {
	answers chan protocol.HeartbeatResponse
}

func (holding) Due(time.Time) ([]protocol.HeartbeatRequest, []protocol.SessionRenewal, time.Time) {
	return nil, nil, time.Time{}
}

func (holding) Leases() []protocol.HeartbeatRequest {
	return []protocol.HeartbeatRequest{{Kind: protocol.KindActivity, TaskID: "R-1", AttemptID: "R-1-1", Owner: "w"}}
}

func (h holding) Renewed(
	_ time.Time, _ []protocol.HeartbeatRequest, _ []protocol.SessionRenewal, a protocol.WorkerHeartbeatResponse, err error,
) {
	if err != nil || len(a.Leases) == 0 {
		return
	}
	select {
	case h.answers <- a.Leases[0]:
	default:
	}
}

// The app cannot send notices to a worker over HTTP, so each heartbeat contains all of the worker's leases, due or not.
func TestHeartbeatsOverHTTPAskAboutEveryLease(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	h := holding{make(chan protocol.HeartbeatResponse, 1)}
	l := start(t, link.Options{Carrier: &link.HTTP{URLs: []string{a.URL()}}, Holdings: h})
	l.ready()
	select {
	case got := <-h.answers:
		if got.Renewed || got.CanContinue {
			raw, _ := json.Marshal(got)
			t.Errorf("of an attempt nobody knows: %s", raw)
		}
	case <-time.After(ceiling):
		t.Error("it does not ask")
	}
}

func TestPollOverHTTPEndsWhenTheWorkerDrains(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	l := start(t, link.Options{Carrier: &link.HTTP{URLs: []string{a.URL()}}})
	l.ready()
	got := make(chan protocol.PollResponse, 1)
	go func() {
		answer, err := l.Poll(context.WithoutCancel(t.Context()), protocol.PollRequest{})
		if err != nil {
			t.Error(err)
		}
		got <- answer
	}()
	eventually(t, "it waits", func() bool { return a.Dispatch().Counts().Waiting == 1 })
	l.Drain()
	select {
	case answer := <-got:
		if answer.Status != protocol.PollDraining {
			t.Errorf("got %+v", answer)
		}
	case <-time.After(ceiling):
		t.Fatal("the poll goes on")
	}
	eventually(t, "the app has forgotten the poll", func() bool { return a.Dispatch().Counts().Waiting == 0 })
}
