package apptest_test

import (
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// A dashboard page needs as many statements for a long list as for a short one, and counts shared by all viewers are
// read once for four viewers.
func TestReadsOfFourViewers(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		reads := func(viewers int, path string) int64 {
			t.Helper()
			before := a.Broker().Store().Stats()
			for range viewers {
				c.want(200, "GET", path, "")
			}
			after := a.Broker().Store().Stats()
			return after.Reads - before.Reads + after.Statements - before.Statements
		}
		// Background statements (liveness, clean-up) may fall into some measurements, but not into ten in a row.
		least := func(viewers int, path string) int64 {
			n := reads(viewers, path)
			for range 9 {
				n = min(n, reads(viewers, path))
			}
			return n
		}
		runs := 0
		more := func(n int) {
			for range n {
				runs++
				c.want(
					201, "POST", "/api/sojourn/activities",
					fmt.Sprintf(`{"workflow_id":"r-%d","activity_type":"render","task_queue":"q"}`, runs),
				)
			}
		}
		const list = "/api/workflows?page_size=50&wait_reasons=true"
		more(3)
		short := least(1, list)
		more(40)
		if long := least(1, list); long != short || short > 8 {
			t.Errorf("a list of %d runs is read in %d statements, one of 3 in %d", runs, long, short)
		}
		for _, v := range c.want(200, "GET", list, "").body["workflows"].([]any) {
			listed := v.(map[string]any)
			id := listed["workflow_id"].(string)
			if shown := c.want(200, "GET", "/api/workflows/"+id, ""); listed["wait_reason"] != shown.text("wait_reason") ||
				shown.text("wait_reason") == "" {
				t.Errorf("%s waits for %v in the list, for %q by itself", id, listed["wait_reason"], shown.text("wait_reason"))
			}
		}
		if one, four := least(1, list), least(4, list); four != 4*one {
			t.Errorf("a list is read in %d statements for one viewer, in %d for four", one, four)
		}
		if n := reads(4, "/api/workflows/r-1"); n > 4*8 {
			t.Errorf("a run is read in %d statements for four viewers", n)
		}
		for _, path := range []string{"/api/sojourn/run-counts", "/api/sojourn/overview"} {
			one := reads(1, path)
			if three := least(3, path); three != 0 || one == 0 {
				t.Errorf("%s is read in %d statements, and %d more for three other viewers", path, one, three)
			}
		}
	})
}
