package apptest_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// No app dispatches to a worker that reported to one app that it drains, whichever app writes the worker's row
// afterwards, also after a restart of the app. When the worker reports to any app that it no longer drains, every app
// dispatches to it.
func TestDrainReportedByAWorkerAppliesAtEveryApp(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		alone := strings.HasPrefix(database, "sqlite:")
		a := apptest.Start(t, apptest.Options{Database: database})
		here := caller{t, a, ""}
		register(here, "w", "")
		here.want(200, "POST", "/api/worker/heartbeat", `{"worker_id":"w","draining":true}`)
		before := a.Dump()["workers"]
		if alone {
			a.Stop()
		}
		there := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		refused := func() {
			t.Helper()
			s := there.ask("POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","timeout_seconds":0}`)
			if s.text("reason") != "worker_draining" {
				t.Errorf("a poll of a worker that drains: %d %s", s.status, s.brief())
			}
		}
		refused()
		// The other app stores the heartbeat within a few seconds.
		until(t, "the app that hears the worker stores it", func() bool {
			return alone || !slices.Equal(there.app.Dump()["workers"], before)
		})
		if row := there.want(200, "GET", "/api/workers/w", ""); row.text("status") != "draining" {
			t.Errorf("it is listed as %q", row.text("status"))
		}
		refused()
		there.want(200, "POST", "/api/worker/heartbeat", `{"worker_id":"w","draining":false}`)
		hand{there, "w"}.empty("workflow")
		if !alone {
			hand{here, "w"}.empty("workflow")
		}
	})
}

// A drain survives for a day after the worker's end. A worker that restarts a day or more after the drain began is
// still drained, also if another drain is requested at any app at that time.
func TestADrainOutlivesARestartOfItsWorker(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		var shift atomic.Int64
		here := caller{t, shifted(t, database, &shift), ""}
		there := here
		if !strings.HasPrefix(database, "sqlite:") {
			there.app = shifted(t, database, &shift)
		}
		drain := func(id string) {
			t.Helper()
			there.want(200, "POST", "/api/sojourn/fleet/drain", `{"worker_id":"`+id+`"}`)
		}
		polls := func() response {
			return here.ask("POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","timeout_seconds":0}`)
		}
		wantNotices := func(want int) { // the other app sends notices of its writes
			t.Helper()
			until(t, fmt.Sprint("its polls are answered with ", want), func() bool { return polls().status == want })
		}
		away := func(d time.Duration) {
			t.Helper()
			here.want(200, "DELETE", "/api/worker/registrations/w", "")
			shift.Add(int64(d))
			drain("x")
			register(here, "w", "")
		}
		register(here, "w", "")
		register(here, "x", "")
		drain("w")
		wantNotices(409)
		shift.Add(int64(25 * time.Hour))
		for range 2 {
			away(time.Minute)
			if s := polls(); s.text("reason") != "worker_draining" {
				t.Fatalf("it restarted, and its poll: %d %s", s.status, s.brief())
			}
		}
		away(25 * time.Hour)
		wantNotices(200)
	})
}
