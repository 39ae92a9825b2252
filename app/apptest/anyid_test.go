package apptest_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// A workflow ID is any text of the user. In a path it is one encoded segment: none of its characters leads to another
// route.
func TestAWorkflowIDIsAnyText(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		register(c, "w", "")
		c.start("a") // an ID with a slash must not be read as this one
		for _, id := range []string{
			"user@example.com", "a/b", "a/runs/b", "a/runs", "طلب-١٢", "50% off", "a\u200db",
			"a%2Fb", "a//b", "/a", "...", "../a",
			`a\b`, "x y", strings.Repeat("é", 127),
		} {
			text, _ := json.Marshal(id)
			at := "/api/workflows/" + strings.ReplaceAll(url.QueryEscape(id), "+", "%20")
			run := c.want(
				201, "POST", "/api/workflows",
				`{"workflow_id":`+string(text)+`,"workflow_type":"flow","task_queue":"`+handQueue+`"}`,
			).text("run_id")
			if s := c.want(200, "GET", at, ""); s.text("workflow_id") != id || s.text("run_id") != run {
				t.Errorf("%q is read as %q", id, s.text("workflow_id"))
			}
			c.want(200, "GET", at+"/runs/"+run+"/history", "")
			c.want(202, "POST", at+"/signal/go%2Fon", `{"input":[1]}`)
			if found := c.found(id[:min(len(id), 20)], 50); len(found) == 0 {
				t.Errorf("%q is not found by a part of it", id)
			}
			c.want(200, "POST", at+"/terminate", `{"reason":"enough"}`)
			if s := c.want(200, "GET", at, ""); s.text("status") != "terminated" {
				t.Errorf("%q is %s", id, s.text("status"))
			}
		}
		if s := c.want(200, "GET", "/api/workflows/a", ""); s.body["is_terminal"] != false {
			t.Error("another id ended the run of a")
		}
		for _, id := range []string{
			"", ".", "..", "/", "a\tb", "a\u0085b", strings.Repeat("x", 256), strings.Repeat("é", 128), "#1",
			"50% off?", "a\u200bb", " ",
		} {
			text, _ := json.Marshal(id)
			if s := c.want(
				422, "POST", "/api/workflows", `{"workflow_id":`+string(text)+`,"workflow_type":"flow"}`,
			); !strings.Contains(s.raw, `"workflow_id"`) {
				t.Errorf("%q: %s", id, s.raw)
			}
		}
	})
}

// Published clients do not encode an ID in a path. If the path does not match a route, the refusal explains what to do.
func TestAnIDThatIsNotEncodedIsExplained(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), ""}
	c.want(201, "POST", "/api/workflows", `{"workflow_id":"a/b","workflow_type":"flow"}`)
	for _, path := range []string{"a/b", "a/b/history", "a/runs/b", "a?b", "50%25"} {
		if s := c.want(404, "GET", "/api/workflows/"+path, ""); !strings.Contains(s.text("message"), "%2F %3F %23 %25") ||
			!strings.HasSuffix(s.text("message"), "; "+s.text("hint")) {
			t.Errorf("GET %s: %s", path, s.raw)
		}
	}
	if s := c.want(404, "POST", "/api/workflows/a/b/signal/go", `{}`); !strings.Contains(
		s.text("message"), "encoded segment",
	) {
		t.Errorf("a signal: %s", s.raw)
	}
}

// The audit log has the reason with which a caller ended a run.
func TestAuditContainsTheReasonOfAnEndedRun(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), ""}
	for _, verb := range []string{"cancel", "terminate"} {
		run := c.start(verb + "-1")
		c.want(200, "POST", "/api/workflows/"+verb+"-1/"+verb, `{"reason":"the customer went away"}`)
		without := c.start(verb + "-2")
		c.want(200, "POST", "/api/workflows/"+verb+"-2/runs/"+without+"/"+verb, `{}`)
		audit := c.want(200, "GET", "/api/audit", "").raw
		for _, want := range []string{`"` + run + `: the customer went away"`, `"` + without + `"`} {
			if !strings.Contains(audit, want) {
				t.Errorf("%s: the audit has no %s: %s", verb, want, audit)
			}
		}
	}
}
