package channel_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// sent is a request as a browser page sends it: Host, Origin and Sec-Fetch-Site.
type sent struct {
	host, origin, site string
}

// knocks sends a request to the socket's endpoint, or to the API, and returns the status.
func knocks(t *testing.T, a *apptest.App, s sent, method, path string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t), method, a.URL()+path, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = s.host
	for name, value := range map[string]string{"Origin": s.origin, "Sec-Fetch-Site": s.site} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// upgrades opens a websocket, and returns the status of its handshake.
func upgrades(t *testing.T, a *apptest.App, s sent) int {
	t.Helper()
	header := http.Header{}
	if s.host != "" {
		header.Set("Host", s.host)
	}
	if s.origin != "" {
		header.Set("Origin", s.origin)
	}
	url := strings.Replace(a.URL(), "http", "ws", 1) + protocol.ChannelPath + "/?EIO=4&transport=websocket"
	ws, res, err := websocket.DefaultDialer.DialContext(within(t), url, header)
	if err == nil {
		_ = ws.Close()
	}
	if res == nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// A page of any site can send requests from a browser to this machine, and can point its own name at 127.0.0.1 (DNS
// rebinding). Without tokens, only the check of the origin protects the tasks.
func TestWithoutTokensAForeignPageGetsNoSocket(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	own := strings.TrimPrefix(a.URL(), "http://")
	port := own[strings.LastIndexByte(own, ':'):]
	for name, s := range map[string]sent{
		"rebound to this machine": {host: "evil.example" + port, origin: "http://evil.example" + port, site: "same-origin"},
		"rebound, no origin said": {host: "evil.example" + port},
		"a page of another site":  {origin: "http://evil.example", site: "cross-site"},
		"another port":            {origin: "http://127.0.0.1:1", site: "same-site"},
		"a page without an own":   {origin: "null", site: "cross-site"},
	} {
		if got := knocks(
			t, a, s, http.MethodGet, protocol.ChannelPath+"/?EIO=4&transport=polling",
		); got != http.StatusForbidden {
			t.Errorf("%s, by polling: got %d", name, got)
		}
		if got := upgrades(t, a, s); got != http.StatusForbidden {
			t.Errorf("%s, by websocket: got %d", name, got)
		}
		if got := knocks(t, a, s, http.MethodGet, "/api/workflows"); got != http.StatusForbidden {
			t.Errorf("%s, by HTTP: got %d", name, got)
		}
	}
	for name, s := range map[string]sent{
		"no browser":      {},
		"its own page":    {origin: "http://" + own, site: "same-origin"},
		"under localhost": {host: "localhost" + port, origin: "http://localhost" + port},
	} {
		if got := knocks(t, a, s, http.MethodGet, protocol.ChannelPath+"/?EIO=4&transport=polling"); got != http.StatusOK {
			t.Errorf("%s, by polling: got %d", name, got)
		}
		if got := upgrades(t, a, s); got != http.StatusSwitchingProtocols {
			t.Errorf("%s, by websocket: got %d", name, got)
		}
	}
}

// Door checks every request, not only the handshake, since a session ID does not identify the caller.
func TestAdmissionIsCheckedForEveryRequestOfASession(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
		got := knocks(
			t, a, sent{host: "evil.example:7700"}, method, protocol.ChannelPath+"/?EIO=4&transport=polling&sid=of-another",
		)
		if got != http.StatusForbidden {
			t.Errorf("%s: got %d", method, got)
		}
	}
}

// With tokens, any host name is allowed, since a proxy may set it.
func TestWithTokensAHostHasAnyName(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: withTokens})
	s := sent{host: "sojourn.example", origin: "http://sojourn.example"}
	if got := upgrades(t, a, s); got != http.StatusSwitchingProtocols {
		t.Errorf("got %d", got)
	}
}

func TestOnlyReadersJoinTheDashboardsNamespace(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: withTokens})
	root, err := a.Auth().Authenticate(t.Context(), "sjn_bootstrap_secretsecretsecretsecret")
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range auth.Roles {
		in := auth.TokenRequest{Roles: []auth.Role{role}}
		if role == auth.Completer {
			in.Namespaces = []string{"default"}
		}
		made, err := a.Auth().Create(t.Context(), root, in)
		if err != nil {
			t.Fatal(err)
		}
		c, err := socketio.Dial(
			within(t), a.URL(), protocol.NamespaceDashboard, map[string]string{"token": made.Token}, socketio.DialOptions{},
		)
		if err == nil {
			c.Close(nil)
			_ = c.Wait(within(t))
		}
		var refused *socketio.ConnectError
		if role == auth.Worker || role == auth.Completer {
			if !errors.As(err, &refused) || refused.Reason != string(protocol.ReasonForbidden) {
				t.Errorf("%s: got %v", role, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
}

// The limits of a poll are checked once for all transports. A next poll beyond them gets an error in its place.
func TestEveryTransportLimitsPolls(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	w := join(t, a, "w", "test")
	call[protocol.RegisterResponse](w, protocol.MethodRegister, protocol.RegisterRequest{Runtime: "other"})
	long := strings.Repeat("p", protocol.MaxName+1)
	w.refusal("validation_failed", protocol.MethodPoll, map[string]any{"pollRequestId": long, "timeoutMs": 0})

	wrong := protocol.PollRequest{WorkerID: "w", PollID: long}
	_, polled := a.Broker().Poll(within(t), wrong)
	var refusal *protocol.Error
	if !errors.As(polled, &refusal) || refusal.Fields["poll_request_id"] == nil {
		t.Errorf("in process: %v, want a refusal of poll_request_id", polled)
	}
	completed, err := a.Broker().Complete(within(t), protocol.CompleteRequest{
		Items: []protocol.CompleteItem{{TaskID: "none"}}, Next: &wrong,
	})
	next := completed.Next
	if err != nil || next == nil || next.Error == nil || next.Error.Fields["poll_request_id"] == nil {
		t.Errorf("in process: %v %+v, want next refused for poll_request_id", err, completed.Next)
	}

	for _, c := range []struct{ path, body, member string }{
		{"workflow-tasks/poll", `{"worker_id":"w","history_page_size":-1}`, `"history_page_size":`},
		{"workflow-tasks/poll", `{"worker_id":"w","history_page_size":1001}`, `"history_page_size":`},
		{"activity-tasks/poll", `{"worker_id":"w","timeout_seconds":-1}`, `"timeout_seconds":`},
		{"tasks/poll", `{"worker_id":"w","timeout_seconds":0,"poll_request_id":"` + long + `"}`, `"poll_request_id":`},
	} {
		path := "/api/worker/" + c.path
		r, err := http.NewRequestWithContext(within(t), http.MethodPost, a.URL()+path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(protocol.HeaderWorkerVersion, protocol.WorkerVersion)
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(string(text), c.member) {
			t.Errorf("%s %s: %d %.300s %v", path, c.body, res.StatusCode, text, err)
		}
	}
}
