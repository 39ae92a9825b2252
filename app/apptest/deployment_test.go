package apptest_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
)

// A deployment names a build of a queue: it is listed with its workers, receives new runs, can be drained and resumed,
// and a rollback selects the previous one.
func TestADeploymentIsRolledOutAndBack(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		for _, b := range []string{"", "v1", "v2"} {
			build := `"build_id":"` + b + `",`
			if b == "" {
				build = ""
			}
			c.want(
				201, "POST", "/api/worker/register",
				`{"worker_id":"w`+b+`",`+build+`"task_queue":"orders","runtime":"go","supported_workflow_types":["flow"]}`,
			)
		}
		path := func(build string) string { return "/api/deployments/" + url.PathEscape("default/orders@"+build) }
		list := c.want(200, "GET", "/api/deployments?task_queue=orders", "")
		var names []string
		for _, d := range list.body["deployments"].([]any) {
			names = append(names, d.(map[string]any)["name"].(string))
		}
		if len(names) != 3 || list.text("namespace") != "default" {
			t.Errorf("listed are %v: %s", names, list.raw)
		}
		if s := c.want(200, "GET", path("unversioned"), ""); s.body["build_id"] != nil ||
			s.body["active_worker_count"] != 1.0 || s.text("task_queue") != "orders" {
			t.Errorf("the workers without a build id: %s", s.raw)
		}
		verb := func(status int, build, verb, outcome, selected string) response {
			t.Helper()
			s := c.want(status, "POST", path(build)+"/"+verb, "")
			if status == 200 &&
				(s.text("outcome") != outcome || s.text("selected_deployment") != selected ||
					s.text("name") != "default/orders@"+build) {
				t.Errorf("%s %s: %s", verb, build, s.raw)
			}
			return s
		}
		if s := verb(409, "v1", "rollback", "", ""); s.text("reason") != "deployment_not_promoted" {
			t.Errorf("one that was never promoted: %s", s.raw)
		}
		if s := verb(200, "v1", "promote", "promoted", "default/orders@v1"); s.body["warning"] != nil {
			t.Errorf("a build that has a worker: %s", s.raw)
		}
		if s := verb(409, "v1", "rollback", "", ""); s.text("reason") != "no_earlier_deployment" {
			t.Errorf("the first that was promoted: %s", s.raw)
		}
		verb(200, "v2", "promote", "promoted", "default/orders@v2")
		verb(200, "v1", "drain", "drained", "default/orders@v2")
		if s := c.want(200, "GET", path("v1"), ""); s.text("drain_intent") != "draining" ||
			s.text("rollout_status") != "draining" {
			t.Errorf("a drained deployment: %s", s.raw)
		}
		if s := c.ask(
			"POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"wv1","task_queue":"orders","timeout_seconds":0}`,
		); s.text("reason") != "worker_draining" {
			t.Errorf("a worker of it: %s", s.brief())
		}
		verb(200, "v2", "rollback", "rolled_back", "default/orders@v1") // a rollback to v1 also ends the drain of v1
		if s := c.want(200, "GET", path("v1"), ""); s.text("drain_intent") != "active" ||
			s.body["new_start_selected"] != true {
			t.Errorf("the one rolled back to: %s", s.raw)
		}
		if s := verb(409, "v1", "rollback", "", ""); s.text("reason") != "no_earlier_deployment" {
			t.Errorf("back behind the first: %s", s.raw)
		}
		run := c.want(201, "POST", "/api/workflows", `{"workflow_type":"flow","task_queue":"orders"}`).text("workflow_id")
		if s := c.want(
			200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"wv2","task_queue":"orders","timeout_seconds":0}`,
		); s.body["task"] != nil {
			t.Errorf("a new run went to the build that was taken back: %s", s.brief())
		}
		task := taskOf(
			t,
			c.want(
				200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"wv1","task_queue":"orders","timeout_seconds":30}`,
			),
		)
		if task.text("workflow_id") != run {
			t.Errorf("the task of %s", task.text("workflow_id"))
		}
		verb(200, "v1", "drain", "drained", "")
		verb(200, "v1", "resume", "resumed", "")
		verb(200, "unversioned", "promote", "promoted", "")
	})
}

func TestUnknownAndForeignDeploymentsAreRejected(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.NoAuth, o.Token = false, admin }})
	c := client{t: t, url: a.URL()}.as(admin)
	c.want(201, "POST", "/namespaces", `{"name":"blue"}`)
	operator := c.as(c.want(201, "POST", "/tokens", `{"name":"o","roles":["operator"],"namespaces":["default"]}`).
		text("token"))
	viewer := c.as(c.want(201, "POST", "/tokens", `{"name":"v","roles":["viewer"]}`).text("token"))
	before := a.Dump()
	for _, r := range []struct {
		by           client
		method, name string
		status       int
		reason       string
	}{
		{c, "GET", "default/q@nothing", 404, "deployment_not_found"},
		{c, "GET", "none/q@v1", 404, "namespace_not_found"},
		{c, "POST", "none/q@v1", 404, "namespace_not_found"},
		{operator, "GET", "blue/q@v1", 403, "forbidden"},
		{operator, "POST", "blue/q@v1", 403, "forbidden"},
		{viewer, "POST", "default/q@v1", 403, "forbidden"},
		{c, "GET", "v1", 422, "validation_failed"},
		{c, "POST", "default/q", 422, "validation_failed"},
		{c, "POST", "default/@v1", 422, "validation_failed"},
		{c, "POST", "default/q@", 422, "validation_failed"},
		{c, "POST", "/q@v1", 422, "validation_failed"},
		{c, "POST", "default/q@" + strings.Repeat("v", 256), 422, "validation_failed"},
	} {
		path := "/deployments/" + url.PathEscape(r.name)
		if r.method == "POST" {
			path += "/promote"
		}
		if s := r.by.call(r.method, path, "{}"); s.status != r.status || s.text("reason") != r.reason {
			t.Errorf("%s %.40s: got %d %.300s, want %d %s", r.method, r.name, s.status, s.raw, r.status, r.reason)
		}
	}
	sameRows(t, before, a.Dump())
	if s := operator.want(
		200, "POST", "/deployments/"+url.PathEscape("default/a/b@v@1")+"/promote", "",
	); s.text("task_queue") != "a/b@v" || s.text("build_id") != "1" {
		t.Errorf("a queue with both signs: %s", s.raw)
	}
}
