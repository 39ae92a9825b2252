package apptest_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// found returns the workflow IDs that a filter finds, page by page with the given size.
func (c caller) found(filter string, size int) (ids []string) {
	c.t.Helper()
	token := ""
	for {
		got := c.want(
			200, "GET",
			fmt.Sprintf("/api/workflows?page_size=%d&query=%s&next_page_token=%s", size, url.QueryEscape(filter), token), "",
		)
		for _, w := range got.body["workflows"].([]any) {
			ids = append(ids, w.(map[string]any)["workflow_id"].(string))
		}
		if token = got.text("next_page_token"); token == "" {
			return ids
		}
	}
}

// A filter on an unknown search attribute returns a result with a warning. There is no warning for an attribute that is
// registered, that a run has, or that a system attribute names.
func TestFilterOnAnUnknownAttributeCausesAWarning(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c, other := caller{t, a, "default"}, caller{t, a, "other"}
		c.want(201, "POST", "/api/namespaces", `{"name":"other"}`)
		c.want(201, "POST", "/api/search-attributes", `{"name":"Amount","type":"int"}`)
		run := func(c caller, id, attributes string) {
			c.want(
				201, "POST", "/api/workflows", `{"workflow_id":"`+id+`","workflow_type":"t","search_attributes":`+attributes+`}`,
			)
		}
		run(c, "a", `{"Free":"x","None":[]}`)
		run(other, "b", `{"Elsewhere":1}`)
		warned := func(filter string) (subjects []string) {
			t.Helper()
			got := c.want(200, "GET", "/api/workflows?query="+url.QueryEscape(filter), "")
			list, _ := got.body["warnings"].([]any)
			for _, w := range list {
				w := w.(map[string]any)
				if w["code"] != "unknown_attribute" || !strings.Contains(w["message"].(string), w["subject"].(string)) {
					t.Errorf("%s: %v", filter, w)
				}
				subjects = append(subjects, w["subject"].(string))
			}
			return subjects
		}
		for filter, want := range map[string]string{
			"Amount > 3": "", "Free = 'x'": "", "Free = 'y'": "", "workflowid = 'a'": "", "a": "",
			"Freee = 'x'": "Freee", "Freee IS NULL": "Freee", "NOT Freee IN (1, 2)": "Freee", "Elsewhere = 1": "Elsewhere",
			"None IS NULL": "None",
			"Amount > 3 OR (Free = 'y' AND (A = 1 OR NOT B = 2)) AND A > 4": "A B", "amount = 3": "amount",
		} {
			if got := strings.Join(warned(filter), " "); got != want {
				t.Errorf("%s warns of %q, want %q", filter, got, want)
			}
		}
		if got := c.want(200, "GET", "/api/workflows?query=amount%20=%203", ""); !strings.Contains(got.raw, "Amount is") {
			t.Errorf("the name that is registered is not told: %s", got.raw)
		}
		run(c, "late", `{"Freee":"x"}`)
		if got := warned("Freee = 'y'"); got != nil {
			t.Errorf("warns of %s, which a run carries now", got)
		}
		c.want(422, "GET", "/api/workflows?query=Amount%20=%20'x'%20AND%20Freeee%20=%201", "")
	})
}

// A warning of a filter costs one index lookup for any number of runs, and nothing if a run of the page has the
// attribute.
func TestTheWarningsOfAFilterReadNoRuns(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, "default"}
		once := func(filter string) int64 {
			t.Helper()
			before := a.Store().Stats().Reads
			c.want(200, "GET", "/api/workflows?query="+url.QueryEscape(filter), "")
			return a.Store().Stats().Reads - before
		}
		// The app also reads in the background, so the smallest of three counts belongs to the request.
		reads := func(filter string) int64 { return min(once(filter), once(filter), once(filter)) }
		started := 0
		for _, n := range []int{10, 300} {
			for ; started < n; started++ {
				c.want(
					201, "POST", "/api/workflows",
					fmt.Sprintf(`{"workflow_id":"w%d","workflow_type":"t","search_attributes":{"Free":%d}}`, started, started%2),
				)
			}
			plain := reads("WorkflowType = 't'")
			for filter, more := range map[string]int64{
				"Free = 1": 0, "Free = 2": 1, "Nothing = 1": 1, "A = 1 OR B = 2 OR C IS NULL": 1,
			} {
				if got := reads(filter); got != plain+more {
					t.Errorf("%d runs, %s: %d reads, want %d", n, filter, got, plain+more)
				}
			}
		}
	})
}

func TestSearchAttributesAreRegisteredCheckedAndFound(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
		const path = "/api/search-attributes"
		refused := func(status int, reason, method, path, body string) response {
			t.Helper()
			got := c.want(status, method, path, body)
			if got.text("reason") != reason {
				t.Errorf("%s %s: %s, want %s", method, path, got.raw, reason)
			}
			return got
		}
		if got := c.want(201, "POST", path, `{"name":"Amount","type":"int"}`); got.text("outcome") != "created" ||
			got.text("type") != "int" {
			t.Error(got.raw)
		}
		refused(409, "attribute_already_exists", "POST", path, `{"name":"Amount","type":"int"}`)
		refused(409, "name_reserved", "POST", path, `{"name":"Status","type":"keyword"}`)
		refused(422, "validation_failed", "POST", path, `{"name":"9","type":"int"}`)
		refused(422, "validation_failed", "POST", path, `{"name":"A","type":"money"}`)
		refused(404, "attribute_not_found", "DELETE", path+"/Nothing", "")
		refused(409, "system_attribute", "DELETE", path+"/RunId", "")
		for i := 1; i < 100; i++ {
			c.want(201, "POST", path, fmt.Sprintf(`{"name":"A%d","type":"keyword"}`, i))
		}
		refused(422, "search_attribute_limit_reached", "POST", path, `{"name":"More","type":"int"}`)
		if got := c.want(200, "DELETE", path+"/A99", ""); got.text("outcome") != "deleted" {
			t.Error(got.raw)
		}
		got := c.want(200, "GET", path, "")
		custom, system := got.body["custom_attributes"].(map[string]any), got.body["system_attributes"].(map[string]any)
		if len(custom) != 99 || custom["Amount"] != "int" || system["StartTime"] != "datetime" ||
			system["WorkflowId"] != "keyword" {
			t.Error(got.raw)
		}

		start := func(id, attributes string) string {
			return `{"workflow_id":"` + id + `","workflow_type":"t","task_queue":"q","search_attributes":` + attributes + `}`
		}
		wrong := refused(422, "validation_failed", "POST", "/api/workflows", start("bad", `{"Amount":"much"}`))
		if wrong.body["errors"].(map[string]any)["search_attributes.Amount"] == nil {
			t.Error(wrong.raw)
		}
		refused(404, "instance_not_found", "GET", "/api/workflows/bad", "")
		for i := range 7 {
			c.want(
				201, "POST", "/api/workflows",
				start(fmt.Sprint("w", i), fmt.Sprintf(`{"Amount":%d,"A1":"x%d","Free":"%d"}`, i, i%2, i%3)),
			)
		}
		for filter, want := range map[string]string{
			`Amount >= 5`: "w6 w5", `Free = "1" AND A1 = 'x0'`: "w4", `A1 IN ('x0', 'x1') AND Amount < 2`: "w1 w0",
			`WorkflowType = 't' AND Status = 'running'`: "w6 w5 w4 w3 w2 w1 w0", `Amount = 3`: "w3", `CloseTime IS NOT NULL`: "",
			`Amount > 4 OR Free = '0' AND NOT A1 = 'x0'`: "w6 w5 w3", `(Amount > 4 OR Free = '0') AND NOT A1 = 'x0'`: "w5 w3",
			`NOT (Amount > 1 OR Free = '0')`: "w1", `w5`: "w5", `WorkflowId STARTS_WITH 'w' AND StartTime < '2001-01-01'`: "",
		} {
			for _, size := range []int{2, 200} {
				if got := strings.Join(c.found(filter, size), " "); got != want {
					t.Errorf("%s finds %s, want %s", filter, got, want)
				}
			}
		}
		got = refused(422, "validation_failed", "GET", "/api/workflows?query="+url.QueryEscape(`Amount = 'x'`), "")
		if got.body["position"] != 10.0 || !strings.Contains(got.text("message"), "character 10") {
			t.Errorf("where it is wrong is not said: %s", got.raw)
		}
		c.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"q","supported_workflow_types":["t"]}`)
		task := c.want(
			200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":0}`,
		).body["task"].(map[string]any)
		complete := func(status int, attributes string) response {
			t.Helper()
			return c.want(status, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+
				"/complete", `{"lease_owner":"w","workflow_task_attempt":1,
				"commands":[{"type":"upsert_search_attributes","attributes":`+attributes+`},{"type":"start_timer","delay_seconds":60}]}`)
		}
		if got := complete(
			422, `{"Amount":1.5}`,
		); got.body["errors"].(map[string]any)["commands.0.attributes.Amount"] == nil {
			t.Error(got.raw)
		}
		complete(200, `{"Amount":99,"Free":null}`)
		if got := fmt.Sprint(c.found(`Amount = 99 AND Free IS NULL`, 10)); got != "["+task["workflow_id"].(string)+"]" {
			t.Errorf("after an upsert: %s", got)
		}
	})
}

// A registration applies to one namespace, and filters do not find attributes of other namespaces.
func TestSearchAttributesAreOfOneNamespace(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		caller{t, a, ""}.want(201, "POST", "/api/namespaces", `{"name":"left"}`)
		left, other := caller{t, a, "left"}, caller{t, a, "default"}
		left.want(201, "POST", "/api/search-attributes", `{"name":"K","type":"int"}`)
		if got := other.want(
			200, "GET", "/api/search-attributes", "",
		); len(got.body["custom_attributes"].(map[string]any)) != 0 {
			t.Error(got.raw)
		}
		left.want(201, "POST", "/api/workflows", `{"workflow_id":"l","workflow_type":"t","search_attributes":{"K":1}}`)
		other.want(201, "POST", "/api/workflows", `{"workflow_id":"o","workflow_type":"t","search_attributes":{"K":"one"}}`)
		if l, o := left.found(`K = 1`, 10), other.found(`K = 1`, 10); fmt.Sprint(l, o) != "[l] []" {
			t.Errorf("found %v and %v", l, o)
		}
	})
}
