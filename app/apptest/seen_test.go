package apptest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
)

// A viewer may query a run, which does not change it, but may not send signals or updates.
func TestAViewerMayQuery(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.NoAuth, o.Token = false, admin }})
	c := client{t: t, url: a.URL()}.as(admin)
	viewer := c.as(c.want(201, "POST", "/tokens", `{"name":"v","roles":["viewer"]}`).text("token"))
	c.want(201, "POST", "/workflows", `{"workflow_id":"a","workflow_type":"flow"}`)
	const query = "/workflows/a/query/items"
	mine, theirs := c.call("POST", query, `{}`), viewer.call("POST", query, `{}`)
	if theirs.status != mine.status || theirs.text("reason") != mine.text("reason") {
		t.Errorf("a viewer's query is answered %d %s, an admin's %d %s", theirs.status, theirs.raw, mine.status, mine.raw)
	}
	viewer.want(403, "POST", "/workflows/a/signal/go", `{}`)
}

// A token for all namespaces belongs to none: the audit log of each namespace lists its creation for callers that may
// read all namespaces.
func TestAuditContainsTokensForAllNamespaces(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{
			Database: database, Change: func(o *app.Options) { o.NoAuth, o.Token = false, admin },
		})
		c := client{t: t, url: a.URL()}.as(admin)
		made := c.want(201, "POST", "/tokens", `{"name":"all","roles":["viewer"]}`)
		bound := c.want(201, "POST", "/tokens", `{"name":"one","roles":["operator"],"namespaces":["default"]}`)
		both := made.text("id") + " " + bound.text("id")
		for _, reader := range []struct {
			token, want string
		}{{admin, both}, {bound.text("token"), bound.text("id")}} {
			var targets []string
			for _, e := range c.as(reader.token).want(200, "GET", "/api/audit", "").body["entries"].([]any) {
				targets = append(targets, e.(map[string]any)["target"].(string))
			}
			slices.Reverse(targets)
			if got := strings.Join(targets, " "); got != reader.want {
				t.Errorf("the audit contains %q, want %q", got, reader.want)
			}
		}
	})
}

// A run is found by its full run ID among runs with user-defined IDs. Its closed reason has a default, and the audit
// log has the reason that the caller gave.
func TestClosedRunShowsItsReason(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		register(c, "w", "")
		for _, end := range []struct{ verb, id, body, want, audited string }{
			{"terminate", "t1", `{"reason":"the customer went away"}`, "the customer went away", ": the customer went away"},
			{"terminate", "t2", `{}`, "terminated", ""},
			{"cancel", "c1", `{"reason":"twice the same order"}`, "twice the same order", ": twice the same order"},
			{"cancel", "c2", `{}`, "cancelled", ""},
		} {
			run := c.start(end.id)
			if ids := c.found(run, 50); len(ids) != 1 || ids[0] != end.id {
				t.Errorf("run %s of %s is looked for, and %v found", run, end.id, ids)
			}
			c.want(200, "POST", "/api/workflows/"+end.id+"/"+end.verb, end.body)
			if s := c.want(200, "GET", "/api/workflows/"+end.id, ""); !strings.Contains(s.text("error"), end.want) {
				t.Errorf("%s: its error is %q, want %q", end.id, s.text("error"), end.want)
			}
			last := c.want(200, "GET", "/api/audit?limit=1", "").body["entries"].([]any)[0].(map[string]any)
			if last["target"] != end.id || last["detail"] != run+end.audited {
				t.Errorf("%s: audited as %v", end.id, last)
			}
		}
	})
}
