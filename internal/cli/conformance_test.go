package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
)

func TestConformanceReportsResultsAndItsExitCode(t *testing.T) {
	t.Parallel()
	const token = "conformance-command-0123456789"
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) {
		o.NoAuth, o.Token, o.MaxPolls = false, token, 1
	}})
	dir := t.TempDir()
	e := env{"SOJOURN_TOKEN": token}
	code, out, err := run(t, dir, e, "conformance", a.URL(), "--filter", "^discovery/")
	if code != 0 {
		t.Errorf("exit %d:\n%s%s", code, out, err)
	}
	contains(t, "summary", out, "10 cases: 10 passed, 0 failed, 0 skipped")

	code, out, err = run(t, dir, e, "conformance", a.URL(), "--only", "sojourn", "--json", "--with", "max-polls=1")
	var results []struct{ Case, Part, Outcome string }
	if e := json.Unmarshal([]byte(out), &results); e != nil || code != 0 || len(results) < 10 {
		t.Errorf("exit %d, %d results, %v:\n%s", code, len(results), e, err)
	}
	for _, r := range results {
		if r.Part != "sojourn" || r.Outcome != "passed" {
			t.Errorf("got %+v", r)
		}
	}

	code, out, err = run(t, dir, e, "conformance", a.URL(), "--filter", "above the limit of held polls")
	if code != 0 {
		t.Errorf("exit %d:\n%s%s", code, out, err)
	}
	contains(t, "a case about a setting without --with", out, "started with max-polls=1 (--with max-polls=1)", "1 skipped")

	wrong := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{}`))
	}))
	defer wrong.Close()
	code, out, err = run(t, dir, nil, "conformance", wrong.URL, "--filter", "^discovery/")
	if code != 1 {
		t.Errorf("a wrong server: exit %d, want 1:\n%s", code, out)
	}
	contains(t, "failures", out, "failed discovery/the health route says serving", "/checks is missing", "10 cases: 0 passed, 10 failed")
	contains(t, "stderr", err, "does not conform")

	code, out, _ = run(t, dir, nil, "conformance", "--list", "--only", "contract")
	if code != 0 {
		t.Errorf("list: exit %d", code)
	}
	contains(t, "list", out, "contract", "tasks/a stale attempt is refused")
}
