package apptest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// kinds returns the kinds of found objects with the run to which they lead, or their ID.
func kinds(list []protocol.Found) string {
	var out []string
	for _, f := range list {
		if f.RunID != "" {
			out = append(out, string(f.Kind)+" "+f.RunID)
		} else {
			out = append(out, string(f.Kind)+" "+f.ID)
		}
	}
	return strings.Join(out, ", ")
}

// A pasted ID of any kind is found, however old the object is and however many others exist.
func TestPastedIDsOfEveryKindAreFound(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		find := func(id string) protocol.FindResponse {
			t.Helper()
			f, err := a.View().Find(t.Context(), protocol.FindRequest{ID: id})
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		start := func(id, key string) string {
			t.Helper()
			return c.want(201, "POST", "/api/workflows", fmt.Sprintf(
				`{"workflow_id":%q,"workflow_type":"order","task_queue":"q","business_key":%q}`, id, key,
			)).text("run_id")
		}
		old := start("order-1", "acme")
		c.want(201, "POST", "/api/worker/register", `{"worker_id":"order-w","task_queue":"q","runtime":"hand",`+
			`"supported_workflow_types":["order"],"supported_activity_types":["charge"],`+
			`"max_concurrent_worker_sessions":3,"capabilities":["worker_sessions"]}`)
		c.want(201, "POST", "/api/worker/sessions",
			`{"worker_id":"order-w","session_id":"order-s","ttl_seconds":6000,"lease_seconds":60}`)
		c.want(201, "POST", "/api/schedules",
			`{"schedule_id":"order-c","spec":{"intervals":[{"every":"PT1H"}]},"action":{"workflow_type":"order","task_queue":"q"}}`)
		alone := c.want(201, "POST", "/api/sojourn/activities",
			`{"workflow_id":"single","activity_type":"charge","task_queue":"q"}`).text("run_id")
		newer := start("order-2", "acme")
		for i := range 12 {
			start(fmt.Sprintf("order-1-%02d", i), old) // the run ID is a part of no other object's ID
		}

		for id, want := range map[string]string{
			"order-1": "workflow " + old, old: "run " + old, "acme": "business_key " + newer,
			"order-w": "worker order-w", "order-s": "session order-s", "order-c": "schedule order-c",
			"single": "workflow " + alone, alone + "-1": "step " + alone, "nothing": "", "order": "",
			"ORDER-1": "", // IDs are case-sensitive
		} {
			got := kinds(find(id).Matches)
			if id == old { // also the business key of the newest of the twelve
				got, _, _ = strings.Cut(got, ", business_key ")
			}
			if got != want {
				t.Errorf("%q finds %q, want %q", id, got, want)
			}
		}
		if got := find(strings.ToLower(old)).Matches; kinds(got) != "run "+old {
			t.Errorf("a run ID in lower case finds %v", got)
		}
		if f := find("single").Matches[0]; f.RunKind != protocol.RunOfActivity || f.WorkflowType != "charge" ||
			f.Status != protocol.RunRunning || f.At == nil {
			t.Errorf("an activity run is found as %+v", f)
		}
		if f := find(alone + "-1").Matches[0]; f.Sequence != 1 || f.ID != alone+"-1" {
			t.Errorf("an activity is found as %+v", f)
		}
		var prefixes []string
		for _, f := range find("order-").Prefixes {
			prefixes = append(prefixes, f.ID)
		}
		want := "order-1 order-1-00 order-1-01 order-1-02 order-1-03 order-s order-w order-c"
		if got := strings.Join(prefixes, " "); got != want {
			t.Errorf("the prefix finds %s, want %s", got, want)
		}
		if f := find("order-1"); f.Prefixes[0].ID == "order-1" {
			t.Error("a match is also listed as a prefix")
		}
		// Another namespace has none of them.
		c.want(201, "POST", "/api/namespaces", `{"name":"other"}`)
		for _, id := range []string{"order-1", old, "acme", "order-w", "order-s", "order-c", alone + "-1", "order"} {
			f, err := a.View().Find(t.Context(), protocol.FindRequest{Namespace: "other", ID: id})
			if err != nil || len(f.Matches)+len(f.Prefixes) > 0 {
				t.Errorf("another namespace finds %s: %+v, %v", id, f, err)
			}
		}
		c.want(422, "GET", "/api/sojourn/find", "")
		c.want(422, "GET", "/api/sojourn/find?id="+strings.Repeat("x", 256), "")
	})
}
