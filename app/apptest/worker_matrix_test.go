package apptest_test

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
	"github.com/sojourn-run/sojourn/internal/httpjson"
)

// W5: every error of the checks before a handler, on every route of the worker API, with a real app whose worker holds
// one object of every kind. No refused request changes a row.
func TestEveryWorkerRouteRefusesBeforeItsVerb(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) {
			o.NoAuth, o.Token = false, admin
		}})
		c := client{t: t, url: a.URL()}.as(admin)
		roles := map[auth.Role]client{}
		for _, role := range auth.Roles {
			roles[role] = c.as(tokenOf(c, role))
		}
		c.want(201, "POST", "/namespaces", `{"name":"ns1"}`)
		elsewhere := c.as(c.want(
			201, "POST", "/tokens", `{"name":"elsewhere","roles":["worker","admin"],"namespaces":["ns1"]}`,
		).text("token"))
		known := busy(t, c)
		for _, rt := range workerapi.Routes() {
			t.Run(rt.Method+" "+rt.Pattern, func(t *testing.T) {
				before := a.Dump()
				m := workerMatrix{matrix{t: t, rt: rt, path: pathOf(rt.Pattern, known(rt.Operation))}}
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

// busy registers a worker that holds a workflow task, an activity and a session, and returns the IDs for the paths of
// an operation.
func busy(t *testing.T, c client) func(operation string) map[string][]string {
	c.want(201, "POST", "/api/worker/register",
		`{"worker_id":"w","task_queue":"q","runtime":"external","supported_workflow_types":["flow"],
		"supported_activity_types":["step"],"capabilities":["worker_sessions"]}`)
	for _, id := range []string{"one", "two"} {
		c.want(201, "POST", "/workflows", `{"workflow_id":"`+id+`","workflow_type":"flow","task_queue":"q"}`)
	}
	poll := func(kind string) handTask {
		return taskOf(
			t, c.want(200, "POST", "/api/worker/"+kind+"-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`),
		)
	}
	one, two := poll("workflow"), poll("workflow")
	c.want(
		200, "POST", flowPath(one, "complete"),
		`{"lease_owner":"w","workflow_task_attempt":1,"commands":[{"type":"schedule_activity","activity_type":"step"}]}`,
	)
	act := poll("activity")
	c.want(201, "POST", "/api/worker/sessions", `{"worker_id":"w","session_id":"s"}`)
	return func(operation string) map[string][]string {
		m := map[string][]string{"worker": {"w"}, "session": {"s"}, "task": {two.text("task_id")}}
		if strings.Contains(operation, "activity") {
			m["task"] = []string{act.text("task_id")}
		}
		return m
	}
}

// workerMatrix sends one route of the worker API the requests that it must refuse.
type workerMatrix struct{ matrix }

// refused sends a request that must be refused with this error, in the form of the worker API.
func (m workerMatrix) refused(c client, status int, reason, body string) response {
	m.t.Helper()
	c.t = m.t
	got := c.call(m.rt.Method, m.path, body)
	if got.status != status || got.text("reason") != reason || got.text("message") == "" || got.text("error") == "" {
		m.t.Errorf("%s %s %.60q: got %d %.300s, want %d %s", m.rt.Method, m.path, body, got.status, got.raw, status, reason)
	}
	if got.header.Get(workerapi.VersionHeader) != workerapi.Version || got.text("protocol_version") != workerapi.Version ||
		got.body["server_capabilities"] == nil {
		m.t.Errorf("%s: %d is not in the envelope of the worker plane", m.path, got.status)
	}
	return got
}

func (m workerMatrix) authentication(c client, roles map[auth.Role]client, elsewhere client) {
	for _, value := range []string{"", "Bearer", "Bearer wrong", "Basic " + admin, "Bearer sjn_aaaaaaaa_bbbb", admin} {
		if got := m.refused(
			c.with("Authorization", value), 401, "unauthorized", "{}",
		); got.header.Get("WWW-Authenticate") == "" {
			m.t.Errorf("401 without WWW-Authenticate")
		}
	}
	m.refused(
		c.with("Authorization", "").with(workerapi.VersionHeader, "").with("X-Namespace", "none"), 401, "unauthorized", "{",
	)
	holders := auth.Holders(m.rt.Roles)
	for role, as := range roles {
		if slices.Contains(holders, role) {
			continue
		}
		// the role is checked before the version
		got := m.refused(as.with(workerapi.VersionHeader, ""), 403, "forbidden", "{")
		if list, _ := got.body["allowed_roles"].([]any); len(list) == 0 || got.text("role") != string(role) {
			m.t.Errorf("403 as %s: %.300s", role, got.raw)
		}
	}
	m.refused(elsewhere, 403, "forbidden", "{}")
}

func (m workerMatrix) versions(c client) {
	if m.rt.Sojourn {
		return
	}
	for value, reason := range map[string]string{
		"": "missing_protocol_version", "1.21": "unsupported_protocol_version", "2.0": "unsupported_protocol_version",
		"0.9": "unsupported_protocol_version",
		"1":   "unsupported_protocol_version", "two": "unsupported_protocol_version",
	} {
		// checked before namespace and body
		got := m.refused(c.with(workerapi.VersionHeader, value).with("X-Namespace", "none"), 400, reason, "{")
		if got.text("supported_version") != workerapi.Version || got.text("requested_version") != value ||
			got.text("remediation") == "" {
			m.t.Errorf("version %q: %.300s", value, got.raw)
		}
	}
}

func (m workerMatrix) namespaces(c client) {
	m.refused(c.with("X-Namespace", "not a name"), 422, "validation_failed", "{")
	m.refused(c.with("X-Namespace", strings.Repeat("n", 129)), 422, "validation_failed", "{")
	got := m.refused(c.with("X-Namespace", "none"), 404, "namespace_not_found", "{") // before the body
	if got.text("namespace") != "none" {
		m.t.Errorf("which namespace? %.300s", got.raw)
	}
}

func (m workerMatrix) bodies(c client) {
	if m.rt.Shape.Body == nil {
		return
	}
	got := m.refused(c.with("Content-Type", "text/plain"), 415, "unsupported_media_type", "{}")
	if got.body["accepted_content_types"] == nil {
		m.t.Errorf("415: %.300s", got.raw)
	}
	m.refused(c.with("Content-Type", ""), 415, "unsupported_media_type", "{}")
	m.refused(c.with("Content-Encoding", "gzip"), 415, "unsupported_media_type", "{}")
	for _, body := range []string{"{", "nonsense", `{"a":1} {"a":2}`, "{\"a\":\"\xff\"}"} {
		m.refused(c, 400, "malformed_json", body)
	}
	limit := cmp.Or(m.rt.Shape.MaxBody, httpjson.MaxBody)
	if got := m.refused(
		c, 413, "payload_too_large", `{"a":"`+strings.Repeat("x", int(limit))+`"}`,
	); got.body["limit"] != float64(limit) {
		m.t.Errorf("413: %.300s", got.raw)
	}
	for _, body := range []string{"[]", `"text"`, "7"} {
		if got := m.refused(c, 422, "validation_failed", body); got.body["errors"] == nil ||
			got.body["validation_errors"] == nil {
			m.t.Errorf("%s: no errors in %.300s", body, got.raw)
		}
	}
}

func (m workerMatrix) paths(c client) {
	whole := m.path
	if strings.Contains(m.rt.Pattern, "{") {
		for _, part := range []string{"%00", "%ff", strings.Repeat("x", 4097)} {
			m.path = placeholder.ReplaceAllString(m.rt.Pattern, part)
			m.refused(c, 422, "validation_failed", "{}")
		}
	}
	for _, path := range []string{whole + "/", whole + "/nothing/here"} {
		m.path = path
		m.refused(c, http.StatusNotFound, "not_found", "{}")
	}
	m.path, m.rt.Method = whole, http.MethodPatch
	if got := m.refused(c, http.StatusMethodNotAllowed, "method_not_allowed", "{}"); got.header.Get("Allow") == "" {
		m.t.Errorf("PATCH %s: no Allow", m.path)
	}
}
