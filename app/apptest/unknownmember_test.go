package apptest_test

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/serve"
)

// warned returns the code and the subject of each warning in the response.
func (s response) warned() (list []string) {
	all, _ := s.body["warnings"].([]any)
	for _, w := range all {
		m, _ := w.(map[string]any)
		list = append(list, fmt.Sprint(m["code"], " ", m["subject"]))
	}
	return list
}

// With strict=true, every route of the control plane rejects unknown query parameters and unknown members of its body.
// The body of an import is exempt, since its checksum covers the whole document.
func TestEveryControlRouteRefusesUnknownMembersStrictly(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), ""}
	bodies, queries := 0, 0
	for _, rt := range everyRoute() {
		if rt.Plane == serve.Work || rt.Open() {
			continue
		}
		path := pathOf(rt.Pattern, map[string][]string{"deployment": {"default%2Fq@b"}, "namespace": {"default"}})
		queries++
		got := c.ask(rt.Method, path+"?strict=true&zz_unknown=1", "")
		if fields, _ := got.body["errors"].(map[string]any); got.status != 422 || fields["zz_unknown"] == nil {
			t.Errorf("%s %s with an unknown query parameter: %d %s", rt.Method, path, got.status, got.brief())
		}
		if rt.Shape.Body == nil || rt.Operation == "import" {
			continue
		}
		bodies++
		got = c.ask(rt.Method, path+"?strict=true", `{"zz_unknown":1}`)
		if fields, _ := got.body["errors"].(map[string]any); got.status != 422 || fields["zz_unknown"] == nil {
			t.Errorf("%s %s with an unknown member: %d %s", rt.Method, path, got.status, got.brief())
		}
	}
	if bodies < 30 || queries < 70 {
		t.Errorf("the test called %d routes with a body and %d with a query", bodies, queries)
	}
}

func TestUnknownMembersAreReportedAndIgnored(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), ""}
	start := func(id, more string) string {
		return `{"workflow_id":"` + id + `","workflow_type":"flow","input":[{"zz":1}],"memo":{"zz":1},"search_attributes":{"Zz":"1"}` +
			more + `}`
	}
	const schedule = `{"schedule_id":"s","spec":{"cron_expressions":["@daily"],"time_zone":"UTC"},
		"action":{"activity_type":"step","wrkflow_id":"x","input":[{"zz":1}],"retry_policy":{"zz":1}}}`
	for _, call := range []struct {
		status             int
		method, path, body string
		want               []string
	}{
		{201, "POST", "/api/workflows", start("a", ""), nil},
		{201, "POST", "/api/workflows", start("b", `,"tsak_queue":"q"`), []string{"unknown_member tsak_queue"}},
		{
			201, "POST", "/api/workflows", start("c", `,"build_id":"none","zz":1`),
			[]string{"unknown_build build_id", "unknown_member zz"},
		},
		{202, "POST", "/api/workflows/a/signal/go", `{"input":[1],"zz":{"yy":1}}`, []string{"unknown_member zz"}},
		{201, "POST", "/api/schedules", schedule, []string{
			"unknown_member spec.time_zone", "unknown_member action.wrkflow_id", "unknown_member action.retry_policy.zz",
		}},
		{200, "POST", "/api/schedules/s/pause", `{"note":"n","spec":{"cron_expressions":[]}}`, []string{"unknown_member spec"}},
		{201, "POST", "/api/tokens?zz=1", `{"roles":["viewer"]}`, []string{"unknown_member zz"}},
		{200, "GET", "/api/schedules?statsu=paused", "", []string{"unknown_member statsu"}},
		{200, "GET", "/api/schedules?status=paused&namespace=default", "", nil},
		{200, "GET", "/api/workflows?query=Zy%20%3D%201&zz=1", "", []string{"unknown_attribute Zy", "unknown_member zz"}},
		{200, "GET", "/api/workflows/a?zz=1", "", []string{"unknown_member zz"}},
		{200, "GET", "/api/workflows/a", "", nil},
		{200, "POST", "/api/workflows/a/cancel", `{"reason":"r","zz":1}`, []string{"unknown_member zz"}},
	} {
		got := c.want(call.status, call.method, call.path, call.body)
		if warnings := got.warned(); !slices.Equal(warnings, call.want) {
			t.Errorf("%s %s %s: got %q, want %q", call.method, call.path, call.body, warnings, call.want)
		}
		if strings.HasPrefix(call.path, "/api/workflows") && got.body["control_plane"] == nil {
			t.Errorf("%s has no control_plane: %s", call.path, got.raw)
		}
	}
	got := c.want(422, "POST", "/api/workflows?strict=true", start("d", `,"tsak_queue":"q"`))
	warnings := got.text("message")
	if !strings.Contains(warnings, "tsak_queue") || !strings.Contains(warnings, "did you mean task_queue?") {
		t.Errorf("strict=true: %s", got.raw)
	}
	c.want(404, "GET", "/api/workflows/d", "")
	c.want(201, "POST", "/api/workflows?strict=true", start("d", ""))
	c.want(422, "POST", "/api/workflows?strict=perhaps", start("e", ""))
	export := c.want(200, "GET", "/api/workflows/a/runs/"+c.want(200, "GET", "/api/workflows/a", "").text("run_id")+
		"/history/export?zz=1", "")
	if export.body["warnings"] != nil {
		t.Error("the export has the member warnings, which its checksum does not cover")
	}
}

var unknownMembers = regexp.MustCompile(`(?m)^sojourn_worker_unknown_members_total\{operation="(\w+)"\} (\d+)$`)

// unknownMembers returns the number of unknown members that the app counted for each operation of the worker protocol.
func (c caller) unknownMembers() map[string]int {
	c.t.Helper()
	counts := map[string]int{}
	for _, m := range unknownMembers.FindAllStringSubmatch(c.want(http.StatusOK, "GET", "/metrics", "").raw, -1) {
		counts[m[1]], _ = strconv.Atoi(m[2])
	}
	return counts
}

func TestUnknownMembersOfWorkerRequestsAreCounted(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), ""}
	w := register(c, "w", "")
	c.start("a")
	w.decide(w.poll("workflow"), `{"type":"schedule_activity","activity_type":"step","queue":"`+handQueue+`"}`)
	step := w.poll("activity")
	c.want(200, "POST", stepPath(step, "heartbeat"), w.stepBody(step, `,"details":{"zz":1}`))
	c.want(200, "POST", stepPath(step, "complete"), w.stepBody(step, `,"result":{"zz":1}`))
	if counts := c.unknownMembers(); len(counts) > 0 {
		t.Errorf("without unknown members: %v", counts)
	}
	want := map[string]int{}
	for _, rt := range everyRoute() {
		if rt.Plane != serve.Work || rt.Shape.Body == nil {
			continue
		}
		want[rt.Operation] += 2
		c.ask(
			rt.Method, pathOf(rt.Pattern, nil)+"?yy_unknown=1",
			`{"worker_id":"none","zz_unknown":{"xx":1},"timeout_seconds":0}`,
		)
	}
	want["fail_activity_task"]++
	c.ask("POST", stepPath(step, "fail"), w.stepBody(step, `,"failure":{"message":"m","zz":1,"details":{"zz":1}}`))
	counts := c.unknownMembers()
	for _, operation := range slices.Sorted(maps.Keys(want)) {
		if counts[operation] < want[operation] {
			t.Errorf("%s: %d unknown members counted, want %d or more", operation, counts[operation], want[operation])
		}
	}
	if counts["fail_activity_task"] != 3+2 { // worker_id and timeout_seconds are unknown to it too
		t.Errorf("fail_activity_task: %d", counts["fail_activity_task"])
	}
}
