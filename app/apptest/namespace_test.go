package apptest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
)

// caller calls an app over HTTP, in one namespace.
type caller struct {
	t   testing.TB
	app *apptest.App
	ns  string
}

// response is an HTTP response.
type response struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

func (s response) text(member string) string { v, _ := s.body[member].(string); return v }

func (c caller) ask(method, path, body string) response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.app.URL()+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Namespace", c.ns)
	if strings.HasPrefix(path, "/api/worker/") {
		r.Header.Set(workerapi.VersionHeader, "1.20")
	} else {
		r.Header.Set(httpapi.VersionHeader, "2")
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	s := response{status: res.StatusCode, header: res.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &s.body) // a page of metrics is not JSON
	return s
}

func (c caller) want(status int, method, path, body string) response {
	c.t.Helper()
	s := c.ask(method, path, body)
	if s.status != status {
		c.t.Fatalf("%s %s in %s: %d, want %d: %s", method, path, c.ns, s.status, status, s.raw)
	}
	return s
}

var everyRoute = func() []serve.Route { return append(httpapi.Routes(), workerapi.Routes()...) }

// inPath replaces the placeholders in a route's pattern.
func inPath(pattern string, names map[string]string) string {
	for name, v := range names {
		pattern = strings.ReplaceAll(pattern, "{"+name+"}", v)
	}
	return pattern
}

// On no route does a response contain objects of another namespace. A namespace that was not created is refused on all
// routes.
func TestNamespacesAreIsolated(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		root := caller{t, a, ""}
		left, right, nowhere := caller{t, a, "left"}, caller{t, a, "right"}, caller{t, a, "nowhere"}
		root.want(201, "POST", "/api/namespaces", `{"name":"left","retention_days":7}`)
		root.want(201, "POST", "/api/namespaces", `{"name":"right"}`)
		for _, c := range []caller{left, right} { // the same IDs in both namespaces
			c.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"q","supported_workflow_types":["t"],
				"supported_activity_types":["x"],"capabilities":["worker_sessions"]}`)
			c.want(201, "POST", "/api/workflows", `{"workflow_id":"f","workflow_type":"t","task_queue":"q"}`)
		}
		mark := "mark-of-left"
		left.want(201, "POST", "/api/worker/register", `{"worker_id":"`+mark+`","task_queue":"`+mark+
			`","supported_workflow_types":["t"],
			"supported_activity_types":["x"],"capabilities":["worker_sessions"]}`)
		run := left.want(
			201, "POST", "/api/workflows", `{"workflow_id":"`+mark+`","workflow_type":"t","task_queue":"`+mark+`"}`,
		).text("run_id")
		left.want(
			201, "POST", "/api/worker/sessions", `{"worker_id":"`+mark+`","session_id":"`+mark+`","task_queue":"`+mark+`"}`,
		)
		task := left.want(
			200, "POST", "/api/worker/workflow-tasks/poll",
			`{"worker_id":"`+mark+`","task_queue":"`+mark+`","timeout_seconds":30}`,
		)
		if task.body["task"] == nil {
			t.Fatalf("no task: %s", task.raw)
		}
		left.want(
			200, "PUT", "/api/sojourn/pools/"+mark, `{"definition":"`+mark+`","task_queue":"`+mark+`","size":1}`,
		)
		names := map[string]string{
			"workflow": mark, "run": run, "worker": mark, "session": mark, "name": "x", "token": "t", "namespace": "right",
			"task":      run + "-1-workflow",
			"awakeable": run + "-1", "job": "batch-" + mark, "pool": mark,
			"queue": mark, "schedule": mark, "query": run, "deployment": "left%2F" + mark + "@unversioned",
		}
		before := left.want(200, "GET", "/api/workflows/"+mark, "").raw
		for _, rt := range everyRoute() {
			path := inPath(rt.Pattern, names)
			if strings.Contains(path, "{") {
				t.Fatalf("%s: nothing to put there", path)
			}
			switch {
			case rt.Open(), strings.Contains(path, "/tokens"), rt.Operation == "metrics", rt.Operation == "cluster_info",
				rt.Operation == "me":
				continue // these routes are not part of a namespace
			case strings.Contains(path, "/namespaces"), strings.Contains(rt.Pattern, "{deployment}"):
				continue // these routes have the namespace in the path
			}
			if got := nowhere.ask(rt.Method, path, `{}`); got.status != 404 || got.text("reason") != "namespace_not_found" {
				t.Errorf("%s %s in a namespace that is not there: %d %s", rt.Method, path, got.status, got.raw)
			}
			if strings.HasSuffix(path, "/worker/register") {
				continue // it registers a different worker with the same name in that namespace
			}
			body := `{"worker_id":"` + mark + `","lease_owner":"` + mark +
				`","workflow_task_attempt":1,"commands":[],"task_queue":"` + mark + `"}`
			got := right.ask(rt.Method, path, body)
			// These routes return queues that do not exist, with the content of the caller's namespace, which is empty.
			own := slices.ContainsFunc([]string{"/build-ids", "/limits", "/priority-fairness", "/route"}, func(end string) bool {
				return strings.HasSuffix(rt.Pattern, end) && !strings.Contains(got.raw, run)
			})
			echoed := strings.Contains(rt.Pattern, "{") || rt.Plane == serve.Work || rt.Method != http.MethodGet
			switch {
			case echoed && got.status < 400 && strings.Contains(rt.Pattern, "{") && !own:
				t.Errorf("%s %s: another namespace may: %d %s", rt.Method, path, got.status, got.raw)
			case !echoed && (strings.Contains(got.raw, mark) || strings.Contains(got.raw, run)):
				t.Errorf("%s %s shows what is another's: %s", rt.Method, path, got.raw)
			}
		}
		left.want(200, "GET", "/api/workers/"+mark, "")
		if after := left.want(200, "GET", "/api/workflows/"+mark, "").raw; after != before {
			t.Errorf("calls from another namespace changed the run:\n%s\n%s", before, after)
		}
	})
}

func TestANamespaceIsMadeChangedAndRemoved(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		root, blue := caller{t, a, ""}, caller{t, a, "blue"}
		root.want(422, "POST", "/api/namespaces", `{"name":"Not/One"}`)
		root.want(422, "POST", "/api/namespaces", `{"name":"blue","retention_days":366}`)
		if got := root.want(
			201, "POST", "/api/namespaces", `{"name":"blue","description":"d"}`,
		); got.body["retention_days"] != 30.0 || got.text("status") != "active" {
			t.Errorf("created: %s", got.raw)
		}
		if got := root.want(
			409, "POST", "/api/namespaces", `{"name":"blue"}`,
		); got.text("reason") != "namespace_already_exists" {
			t.Errorf("again: %s", got.raw)
		}
		if got := root.want(200, "PUT", "/api/namespaces/blue", `{"retention_days":3}`); got.body["retention_days"] != 3.0 ||
			got.text("description") != "d" {
			t.Errorf("changed: %s", got.raw)
		}
		if got := root.want(200, "GET", "/api/namespaces", ""); len(got.body["namespaces"].([]any)) != 2 {
			t.Errorf("list: %s", got.raw)
		}
		blue.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"q","supported_workflow_types":["t"]}`)
		for _, id := range []string{"one", "two"} {
			blue.want(201, "POST", "/api/workflows", `{"workflow_id":"`+id+`","workflow_type":"t","task_queue":"q"}`)
		}
		root.want(409, "DELETE", "/api/namespaces/default", "")
		got := root.want(200, "DELETE", "/api/namespaces/blue", "")
		if n, _ := got.body["deleted"].(map[string]any); got.text("status") != "deleted" || n["runs"] != 2.0 ||
			n["workers"] != 1.0 {
			t.Errorf("removed: %s", got.raw)
		}
		root.want(404, "DELETE", "/api/namespaces/blue", "")
		root.want(404, "GET", "/api/namespaces/blue", "")
		if got := blue.want(
			404, "POST", "/api/workflows", `{"workflow_id":"one","workflow_type":"t"}`,
		); got.text("reason") != "namespace_not_found" {
			t.Errorf("afterwards: %s", got.raw)
		}
		root.want(201, "POST", "/api/namespaces", `{"name":"blue"}`)
		if got := blue.want(200, "GET", "/api/workflows", ""); got.body["workflow_count"] != 0.0 {
			t.Errorf("a new namespace of an old name: %s", got.raw)
		}
		blue.want(412, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":0}`)
		blue.want(201, "POST", "/api/workflows", `{"workflow_id":"one","workflow_type":"t"}`)
	})
}

func TestAKnownNamespaceCostsNoStatement(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	caller{t, a, ""}.want(201, "POST", "/api/namespaces", `{"name":"blue"}`)
	blue := caller{t, a, "blue"}
	blue.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"q","supported_workflow_types":["t"]}`)
	poll := func() {
		blue.want(200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":0}`)
	}
	poll()
	for rounds := 1; ; rounds++ { // background work of the app changes the counters, too: try up to five times
		before := a.Store().Stats()
		for range 20 {
			poll()
		}
		after := a.Store().Stats()
		if after == before {
			return
		}
		if rounds == 5 {
			t.Fatalf("20 polls, five times: %+v, before %+v", after, before)
		}
	}
}

// Metrics of queues have a namespace label. A token for one namespace does not get the metrics of other namespaces.
func TestMetricsContainOnlyTheCallersNamespaces(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.NoAuth, o.Token = false, pythonToken }})
	c := client{t: t, url: a.URL()}.as(pythonToken)
	c.want(201, "POST", "/namespaces", `{"name":"left"}`)
	c.want(201, "POST", "/workflows", `{"workflow_id":"f","workflow_type":"t","task_queue":"of-default"}`)
	left := c.as(c.want(201, "POST", "/tokens", `{"name":"l","roles":["viewer"],"namespaces":["left"]}`).text("token"))
	if m := c.want(200, "GET", "/metrics", "").raw; !strings.Contains(m, `queue="of-default"`) {
		t.Errorf("who may see all is not shown the queue: %s", m)
	}
	m := left.want(200, "GET", "/metrics", "").raw
	if strings.Contains(m, "of-default") || !strings.Contains(m, "sojourn_store_commits_total ") {
		t.Errorf("who may see another namespace: %s", m)
	}
}
