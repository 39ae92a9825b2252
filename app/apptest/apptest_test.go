package apptest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

func TestAnAppServesItsSurfaces(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		get := func(path string) (int, string) {
			t.Helper()
			r, err := http.Get(a.URL() + path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			return r.StatusCode, string(body)
		}
		for path, want := range map[string]string{
			"/healthz": "", "/readyz": "", "/api/health": `"serving"`, "/api/ready": `"ready"`, "/api/cluster/info": `"1.20"`,
			"/metrics": "sojourn_store_commits_total", "/": "<html", "/api/sojourn/overview": `"release":"test"`,
		} {
			status, body := get(path)
			if status != 200 || !strings.Contains(strings.ReplaceAll(body, `": `, `":`), want) {
				t.Errorf("GET %s: %d %.200s", path, status, body)
			}
		}
		r, err := http.Post(
			a.URL()+"/api/workflows", "application/json", strings.NewReader(`{"workflow_type":"x","workflow_id":"one"}`),
		)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var refusal struct{ Reason string }
		if err := json.NewDecoder(r.Body).Decode(&refusal); err != nil || r.StatusCode != 400 ||
			refusal.Reason != "missing_control_plane_version" {
			t.Errorf("a start without the version header: %d %+v %v", r.StatusCode, refusal, err)
		}
	})
}
