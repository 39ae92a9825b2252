package workerapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// While the bytes in flight are used up, polls answer overloaded and all other routes the contract's
// backend_unavailable, with its members. Small outcomes, heartbeats and renewals are served.
func TestEveryRouteRespondsWhenTheByteBudgetIsExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bytes := budget.New(1 << 20)
		bytes.Force(budget.Owner{Token: "other"}, 1<<30)
		f := &fake{}
		a := workerapi.New(workerapi.Options{
			Verbs: f, Claims: f, Workers: f, Auth: auth.New(auth.Options{Store: tokens{}, Bootstrap: secret}), Budget: bytes,
		})
		for _, rt := range workerapi.Routes() {
			if rt.Method == http.MethodGet {
				continue
			}
			path := rt.Pattern
			for _, name := range []string{"worker", "task", "session"} {
				path = strings.ReplaceAll(path, "{"+name+"}", "x")
			}
			in := strings.NewReader(`{"worker_id":"w","lease_owner":"w","poll_request_id":"p"}` + strings.Repeat(" ", 200_000))
			r := httptest.NewRequestWithContext(t.Context(), rt.Method, path, in)
			r.Header.Set("Authorization", "Bearer "+secret)
			r.Header.Set(workerapi.VersionHeader, workerapi.Version)
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			var got struct {
				Reason    protocol.Reason
				Operation string
				Outcome   string
				Retryable bool
				After     int    `json:"retry_after_seconds"`
				Worker    string `json:"worker_id"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			switch {
			case w.Header().Get("Retry-After") == "":
				t.Errorf("%s %s: no Retry-After in %d %s", rt.Method, path, w.Code, w.Body)
			case strings.HasSuffix(path, "/poll"):
				if w.Code != 429 || got.Reason != protocol.ReasonOverloaded {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
			case w.Code != 503 || got.Reason != protocol.ReasonBackendUnavailable || got.Operation == "" ||
				got.Outcome != "unknown" || !got.Retryable || got.After < 1 || got.Worker == "":
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		if n := f.called(); n > 0 {
			t.Errorf("%d requests reached their verbs", n)
		}
		beat := strings.NewReader(`{"worker_id":"w"}`)
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/api/worker/heartbeat", beat)
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set(workerapi.VersionHeader, workerapi.Version)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if a.ServeHTTP(w, r); w.Code != 200 {
			t.Errorf("a heartbeat: %d %s", w.Code, w.Body)
		}
	})
}
