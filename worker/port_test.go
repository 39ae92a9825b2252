package worker_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/worker"
)

func probed(t *testing.T, url string) (status int, checks map[string]string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var a struct{ Checks map[string]string }
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, a.Checks
}

func TestWorkerProbesReportWhetherItPollsAndRunsTasks(t *testing.T) {
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	a := apptest.Start(t, apptest.Options{})
	for release, wrong := range map[string]string{"test": "", "other": "release"} {
		w, err := worker.New(workeropt.Over(link.To(link.WaySocket, []string{a.URL()}), worker.Options{
			Registry: registry(), Release: release,
			NoMachine: true, Logger: slogbridge.Slog(apptest.Log(t)),
			Executors: worker.ExecutorOptions{Isolation: worker.IsolationNone, Disabled: true},
		}))
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(w.Probes())
		if status, checks := probed(t, s.URL+"/readyz"); status != 503 ||
			!strings.Contains(checks["settings"], "not connected") {
			t.Errorf("readiness before Run: got %d %v", status, checks)
		}
		if status, _ := probed(t, s.URL+"/healthz"); status != 200 {
			t.Errorf("health before Run: got %d", status)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		if err := w.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := 200
		if wrong != "" {
			want = 503
		}
		var status int
		var checks map[string]string
		for end := time.Now().Add(ceiling); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			// The worker connects a moment before the releases are compared.
			if status, checks = probed(t, s.URL+"/readyz"); status == want {
				break
			}
		}
		if status != want || wrong != "" && !strings.Contains(checks[wrong], "deploy the same release to both") {
			t.Errorf("%s: got %d %v", release, status, checks)
		}
		r, err := http.Get(s.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || !strings.Contains(string(body), "sojourn_worker_connected 1") ||
			!strings.Contains(
				string(body), map[string]string{"test": "sojourn_worker_gated 0", "other": "sojourn_worker_gated 1"}[release],
			) {
			t.Errorf("metrics: %v\n%s", err, body)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if status, checks := probed(t, s.URL+"/readyz"); status != 503 || checks["drain"] == "ok" {
			t.Errorf("readiness after the drain: got %d %v", status, checks)
		}
		s.Close()
	}
}

// If neither worker nor app has a release, the readiness probe of the worker reports that releases were not compared.
// The worker is ready unless it is strict.
func TestAnUnreadableReleaseIsSeenInReadyz(t *testing.T) {
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.Release = "0.0.0" }})
	for strict, want := range map[bool]int{false: 200, true: 503} {
		w := start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
			o.Release, o.Strict, o.Executors.Isolation = "0.0.0", strict, worker.IsolationNone
		})
		s := httptest.NewServer(w.Probes())
		t.Cleanup(s.Close)
		var status int
		var checks map[string]string
		for end := time.Now().Add(ceiling); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			// The worker connects a moment before the releases are compared.
			if status, checks = probed(t, s.URL+"/readyz"); checks["release"] != "ok" {
				break
			}
		}
		if status != want || !strict && checks["release"] != "unreadable" ||
			strict && !strings.Contains(checks["release"], "set SOJOURN_RELEASE") {
			t.Errorf("strict %v: got %d %v", strict, status, checks)
		}
	}
}
