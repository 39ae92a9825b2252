package apptest_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// found lists workflow ids by a filter, page by page of the size given.
func (c caller) found(filter string, size int) (ids []string) {
	c.t.Helper()
	token := ""
	for {
		got := c.want(200, "GET", fmt.Sprintf("/api/workflows?page_size=%d&query=%s&next_page_token=%s", size, url.QueryEscape(filter), token), "")
		for _, w := range got.body["workflows"].([]any) {
			ids = append(ids, w.(map[string]any)["workflow_id"].(string))
		}
		if token = got.text("next_page_token"); token == "" {
			return ids
		}
	}
}

func TestSearchAttributesAreRegisteredCheckedAndFound(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
		const path = "/api/search-attributes"
		refused := func(status int, reason, method, path, body string) said {
			t.Helper()
			got := c.want(status, method, path, body)
			if got.text("reason") != reason {
				t.Errorf("%s %s: %s, want %s", method, path, got.raw, reason)
			}
			return got
		}
		if got := c.want(201, "POST", path, `{"name":"Amount","type":"int"}`); got.text("outcome") != "created" || got.text("type") != "int" {
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
		if len(custom) != 99 || custom["Amount"] != "int" || system["StartTime"] != "datetime" || system["WorkflowId"] != "keyword" {
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
			c.want(201, "POST", "/api/workflows", start(fmt.Sprint("w", i), fmt.Sprintf(`{"Amount":%d,"A1":"x%d","Free":"%d"}`, i, i%2, i%3)))
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
		task := c.want(200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":0}`).body["task"].(map[string]any)
		complete := func(status int, attributes string) said {
			t.Helper()
			return c.want(status, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+"/complete", `{"lease_owner":"w","workflow_task_attempt":1,
				"commands":[{"type":"upsert_search_attributes","attributes":`+attributes+`},{"type":"start_timer","delay_seconds":60}]}`)
		}
		if got := complete(422, `{"Amount":1.5}`); got.body["errors"].(map[string]any)["commands.0.attributes.Amount"] == nil {
			t.Error(got.raw)
		}
		complete(200, `{"Amount":99,"Free":null}`)
		if got := fmt.Sprint(c.found(`Amount = 99 AND Free IS NULL`, 10)); got != "["+task["workflow_id"].(string)+"]" {
			t.Errorf("after an upsert: %s", got)
		}
	})
}

// Registrations are of one namespace, and what another has is not found.
func TestSearchAttributesAreOfOneNamespace(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		caller{t, a, ""}.want(201, "POST", "/api/namespaces", `{"name":"left"}`)
		left, other := caller{t, a, "left"}, caller{t, a, "default"}
		left.want(201, "POST", "/api/search-attributes", `{"name":"K","type":"int"}`)
		if got := other.want(200, "GET", "/api/search-attributes", ""); len(got.body["custom_attributes"].(map[string]any)) != 0 {
			t.Error(got.raw)
		}
		left.want(201, "POST", "/api/workflows", `{"workflow_id":"l","workflow_type":"t","search_attributes":{"K":1}}`)
		other.want(201, "POST", "/api/workflows", `{"workflow_id":"o","workflow_type":"t","search_attributes":{"K":"one"}}`)
		if l, o := left.found(`K = 1`, 10), other.found(`K = 1`, 10); fmt.Sprint(l, o) != "[l] []" {
			t.Errorf("found %v and %v", l, o)
		}
	})
}
