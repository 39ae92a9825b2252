package app_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
)

// An app with a base path is there below it and at the root of its port: pages, API and probes.
func TestAnAppBelowAPath(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.Base = "/team/sojourn" }})
	get := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	for path, want := range map[string]int{
		"/team/sojourn": 308, "/team/sojourn/": 200, "/team/sojourn/runs/x": 200, "/runs/x": 200,
		"/team/sojourn/readyz": 200, "/readyz": 200, "/team/sojourn/api/cluster/info": 200, "/api/cluster/info": 200, // the API needs no version for this
		"/team/sojourner/api/cluster/info": 200, // a route of the page, at the root
	} {
		status, body := get(path)
		if status != want {
			t.Errorf("GET %s: %d %.80s, want %d", path, status, body, want)
		}
		if strings.Contains(path, "api/cluster") && strings.HasPrefix(body, "<") != strings.Contains(path, "sojourner") {
			t.Errorf("GET %s: %.80s", path, body)
		}
	}
}
