package apptest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// enters connects a bare socket as a worker of a release, and returns its settings.
func enters(t *testing.T, a *apptest.App, token, id, version string) (*socketio.Client, protocol.WorkerSettings) {
	t.Helper()
	c, err := socketio.Dial(
		t.Context(), a.URL(), protocol.NamespaceWorkers, protocol.ChannelAuth{Token: token, WorkerID: id, Protocol: 1},
		socketio.DialOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(nil) })
	ack, err := c.EmitWithAck(
		t.Context(), protocol.EventFetchSettings, map[string]any{"workerProps": map[string]any{"version": version}},
	)
	if err != nil || len(ack) != 1 {
		t.Fatalf("%s %v", ack, err)
	}
	var s protocol.WorkerSettings
	if err := json.Unmarshal(ack[0], &s); err != nil {
		t.Fatal(err)
	}
	return c, s
}

func polls(t *testing.T, c *socketio.Client) string {
	t.Helper()
	ack, err := c.EmitWithAck(
		t.Context(), "rpc", map[string]any{"method": "poll", "payload": map[string]any{"max": 1, "timeoutMs": 0}},
	)
	if err != nil || len(ack) != 1 {
		t.Fatalf("%s %v", ack, err)
	}
	return string(ack[0])
}

func TestAGatedWorkerIsNoCapacityAndEachOfItsRefusalsCounts(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t: t, app: a, ns: "default"}
	slots := func() (n float64) {
		t.Helper()
		stats, _ := c.want(http.StatusOK, "GET", "/api/task-queues/default", "").body["admission"].(map[string]any)
		of, _ := stats["activity_tasks"].(map[string]any)
		n, _ = of["configured_slot_count"].(float64)
		return n
	}
	join := func(id, version string) *socketio.Client {
		w, _ := enters(t, a, "", id, version)
		call := map[string]any{
			"method": "register", "payload": map[string]any{"max_concurrent_activity_tasks": 7, "any_activity_type": true},
		}
		if ack, err := w.EmitWithAck(t.Context(), "rpc", call); err != nil || strings.Contains(string(ack[0]), "__rpcError") {
			t.Fatalf("%s %v", ack, err)
		}
		return w
	}
	own := join("own", "test")
	if n := slots(); n != 7 {
		t.Errorf("%v slots of a worker that works", n)
	}
	other := join("other", "other")
	for range 3 {
		if text := polls(t, other); !strings.Contains(text, "version_mismatch") {
			t.Errorf("got %s", text)
		}
	}
	if text := polls(t, own); !strings.Contains(text, "empty") {
		t.Errorf("got %s", text)
	}
	if n := slots(); n != 7 {
		t.Errorf("%v slots beside a worker that the gate holds", n)
	}
	metrics := c.want(http.StatusOK, "GET", "/metrics", "").raw
	for _, line := range []string{ // three polls, and the registration
		`sojourn_refusals_total{reason="version_mismatch"} 4`, "sojourn_channel_connections 2",
		`sojourn_channel_sockets{namespace="/"} 2`,
		`sojourn_channel_refusals_total{cause="settings_required"} 0`, `sojourn_channel_cuts_total{cause="slow"} 0`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics have no %s", line)
		}
	}
}

func TestAnUnreadableReleaseIsARedLineAndStrictnessTravels(t *testing.T) {
	for _, strict := range []bool{false, true} {
		a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) {
			o.Release, o.Strict = release.Unreadable, strict
		}})
		c := caller{t: t, app: a, ns: "default"}
		w, s := enters(t, a, "", "w", release.Unreadable)
		if s.Strict != strict {
			t.Errorf("strict is %v, the settings say %v", strict, s.Strict)
		}
		if text := polls(t, w); strings.Contains(text, "version_mismatch") != strict {
			t.Errorf("strict is %v: got %s", strict, text)
		}
		if text := c.want(http.StatusOK, "GET", "/readyz", "").raw; !strings.Contains(text, `"release":"unreadable"`) {
			t.Errorf("got %s", text)
		}
	}
	c := caller{t: t, app: apptest.Start(t, apptest.Options{}), ns: "default"}
	if text := c.want(http.StatusOK, "GET", "/readyz", "").raw; !strings.Contains(text, `"release":"ok"`) {
		t.Errorf("got %s", text)
	}
}

func TestOneTokenHasSoManySocketsAndNoMore(t *testing.T) {
	const token = "sjn_bootstrap_secretsecretsecretsecret"
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) {
		o.NoAuth, o.Token, o.MaxSockets = false, token, 2
	}})
	for i := range 2 {
		enters(t, a, token, fmt.Sprint("w", i), "test")
	}
	_, err := socketio.Dial(
		t.Context(), a.URL(), protocol.NamespaceWorkers, protocol.ChannelAuth{Token: token, WorkerID: "w2", Protocol: 1},
		socketio.DialOptions{},
	)
	var refused *socketio.ConnectError
	if !errors.As(err, &refused) || refused.Reason != "too_many_connections" {
		t.Errorf("got %v", err)
	}
}
