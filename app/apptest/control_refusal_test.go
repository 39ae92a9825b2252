package apptest_test

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/internal/httpjson"
)

const admin = "refusal-test-token-0123456789"

// tokenOf creates a token with a role. A completer's token must be restricted to namespaces.
func tokenOf(c client, role auth.Role) string {
	c.t.Helper()
	more := ""
	if role == auth.Completer {
		more = `,"namespaces":["default"]`
	}
	return c.want(201, "POST", "/tokens", fmt.Sprintf(`{"name":%q,"roles":[%q]%s}`, role, role, more)).text("token")
}

// W5: every error of the checks before a handler, on every route of the control plane, with a real app that has one
// object of every kind. No refused request changes a row.
func TestEveryControlRouteRefusesBeforeItsVerb(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) {
			o.NoAuth, o.Token = false, admin
		}})
		c := client{t: t, url: a.URL()}.as(admin)
		known := populate(t, c)
		roles := map[auth.Role]client{}
		for _, role := range auth.Roles {
			roles[role] = c.as(tokenOf(c, role))
		}
		elsewhere := c.as(c.want(201, "POST", "/tokens", `{"name":"elsewhere","roles":["admin"],"namespaces":["ns1"]}`).
			text("token"))
		for _, rt := range httpapi.Routes() {
			if rt.Open() {
				continue
			}
			t.Run(rt.Method+" "+rt.Pattern, func(t *testing.T) {
				before := a.Dump()
				m := matrix{t: t, rt: rt, path: pathOf(rt.Pattern, known)}
				m.authentication(c, roles, elsewhere)
				m.versions(c)
				m.namespaces(c)
				m.bodies(c)
				m.paths(c)
				sameRows(t, before, a.Dump())
			})
		}
	})
}

// stuckMark is what an app stores in the row of a run when no live worker may run its tasks: reason, time and text. It
// does so every ten seconds, whatever requests it receives.
var stuckMark = regexp.MustCompile(` no_worker \d+ activity "act": no live worker is polling queue "q"`)

// sameRows compares two dumps. If no worker was added it ignores the table workers: apps store heartbeats at any time.
func sameRows(t *testing.T, before, after apptest.Dump) {
	t.Helper()
	for _, d := range []apptest.Dump{before, after} {
		for i, row := range d["runs"] {
			d["runs"][i] = stuckMark.ReplaceAllString(row, " <nil> <nil> <nil>")
		}
	}
	ignored := []string{}
	if len(before["workers"]) == len(after["workers"]) {
		ignored = append(ignored, "workers")
	}
	if diff := before.Diff(after, ignored...); diff != "" {
		t.Errorf("refused requests changed what is stored:\n%s", diff)
	}
}

var placeholder = regexp.MustCompile(`\{([a-z_]+)\}`)

// pathOf returns a path of existing objects.
func pathOf(pattern string, known map[string][]string) string {
	return placeholder.ReplaceAllStringFunc(pattern, func(part string) string {
		if ids := known[strings.Trim(part, "{}")]; len(ids) > 0 {
			return ids[0]
		}
		return "x"
	})
}

// matrix sends one route the requests that it must refuse.
type matrix struct {
	t    *testing.T
	rt   serve.Route
	path string
}

// refused sends a request that must be refused with this error, in the form of the route's API.
func (m matrix) refused(c client, status int, reason, body string) response {
	m.t.Helper()
	c.t = m.t
	got := c.call(m.rt.Method, m.path, body)
	if got.status != status || got.text("reason") != reason || got.text("message") == "" {
		m.t.Errorf("%s %s %.60q: got %d %.300s, want %d %s", m.rt.Method, m.path, body, got.status, got.raw, status, reason)
	}
	if got.header.Get(httpapi.VersionHeader) != httpapi.Version {
		m.t.Errorf("%s: %d without the version of the control plane", m.path, got.status)
	}
	if _, there := got.body["control_plane"].(map[string]any); there != m.flow() {
		m.t.Errorf("%s: %d has control_plane: %v", m.path, got.status, there)
	}
	return got
}

func (m matrix) flow() bool {
	return m.rt.Pattern == "/api/workflows" || strings.HasPrefix(m.rt.Pattern, "/api/workflows/")
}

func (m matrix) authentication(c client, roles map[auth.Role]client, elsewhere client) {
	for _, value := range []string{"", "Bearer", "Bearer wrong", "Basic " + admin, "Bearer sjn_aaaaaaaa_bbbb", admin} {
		got := m.refused(c.with("Authorization", value), 401, "unauthorized", "{}")
		if got.header.Get("WWW-Authenticate") == "" {
			m.t.Errorf("401 without WWW-Authenticate")
		}
	}
	// Without a token the version and the namespace are not checked.
	m.refused(
		c.with("Authorization", "").with(httpapi.VersionHeader, "").with("X-Namespace", "none"), 401, "unauthorized", "{",
	)
	holders := auth.Holders(m.rt.Roles)
	for role, as := range roles {
		if slices.Contains(holders, role) {
			continue
		}
		got := m.refused(as, 403, "forbidden", "{}")
		if list, _ := got.body["allowed_roles"].([]any); len(list) == 0 {
			m.t.Errorf("403 as %s without allowed_roles: %.200s", role, got.raw)
		}
		m.refused(as.with(httpapi.VersionHeader, ""), 403, "forbidden", "{") // the role is checked before the version
	}
	m.refused(elsewhere.with("X-Namespace", "default"), 403, "forbidden", "{}")
}

func (m matrix) versions(c client) {
	if m.rt.Sojourn || m.rt.Plane != serve.Control {
		return
	}
	for value, reason := range map[string]string{
		"": "missing_control_plane_version", "1": "unsupported_control_plane_version",
		"3":   "unsupported_control_plane_version",
		"2.0": "unsupported_control_plane_version", "two": "unsupported_control_plane_version",
	} {
		// checked before namespace and body
		got := m.refused(c.with(httpapi.VersionHeader, value).with("X-Namespace", "none"), 400, reason, "{")
		if got.body["supported_version"] != "2" || got.text("remediation") == "" {
			m.t.Errorf("version %q: %.300s", value, got.raw)
		}
	}
}

func (m matrix) namespaces(c client) {
	m.refused(c.with("X-Namespace", "not a name"), 422, "validation_failed", "{")
	m.refused(c.with("X-Namespace", strings.Repeat("n", 129)), 422, "validation_failed", "{")
	if m.rt.Anywhere {
		return
	}
	// the namespace is checked before the body
	got := m.refused(c.with("X-Namespace", "none"), 404, "namespace_not_found", "{")
	if got.text("namespace") != "none" {
		m.t.Errorf("which namespace? %.300s", got.raw)
	}
}

func (m matrix) bodies(c client) {
	if m.rt.Shape.Body == nil {
		return
	}
	m.refused(c.with("Content-Type", "text/plain"), 415, "unsupported_media_type", "{}")
	m.refused(c.with("Content-Type", ""), 415, "unsupported_media_type", "{}")
	m.refused(c.with("Content-Encoding", "gzip"), 415, "unsupported_media_type", "{}")
	for _, body := range []string{"{", "nonsense", `{"a":1} {"a":2}`, "{\"a\":\"\xff\"}"} {
		m.refused(c, 400, "malformed_json", body)
	}
	m.refused(
		c, 413, "payload_too_large", `{"a":"`+strings.Repeat("x", int(cmp.Or(m.rt.Shape.MaxBody, httpjson.MaxBody)))+`"}`,
	)
	for _, body := range []string{"[]", `"text"`, "7"} {
		if got := m.refused(c, 422, "validation_failed", body); got.body["errors"] == nil {
			m.t.Errorf("%s: no errors in %.300s", body, got.raw)
		}
	}
}

func (m matrix) paths(c client) {
	if strings.Contains(m.rt.Pattern, "{") {
		whole := m.path
		for _, part := range []string{"%00", "%ff", strings.Repeat("x", 4097)} {
			m.path = placeholder.ReplaceAllString(m.rt.Pattern, part)
			m.refused(c, 422, "validation_failed", "{}")
		}
		m.path = whole
	}
	c.t = m.t
	for _, path := range []string{m.path + "/", m.path + "/nothing/here"} {
		if got := c.call(m.rt.Method, path, "{}"); got.status != http.StatusNotFound || got.text("reason") != "not_found" {
			m.t.Errorf("%s %s: got %d %.200s", m.rt.Method, path, got.status, got.raw)
		}
	}
	got := c.call(http.MethodPatch, m.path, "{}")
	if got.status != http.StatusMethodNotAllowed || got.text("reason") != "method_not_allowed" ||
		!strings.Contains(got.header.Get("Allow"), m.rt.Method) {
		m.t.Errorf("PATCH %s: got %d, Allow %q", m.path, got.status, got.header.Get("Allow"))
	}
}
