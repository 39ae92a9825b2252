package apptest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
)

// shifted is an app whose store's time the test can advance.
func shifted(t *testing.T, database string, shift *atomic.Int64, more ...func(*app.Options)) *apptest.App {
	t.Helper()
	return apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) {
		for _, change := range more {
			change(o)
		}
		open := sqldb.Options{Shift: func() time.Duration { return time.Duration(shift.Load()) }}
		o.Open = func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
			open.App, open.Dispatch = id, d
			if path, lite := strings.CutPrefix(database, "sqlite:"); lite || database == "" {
				if database == "" {
					path = filepath.Join(t.TempDir(), "test.db")
				}
				return sqlite.Open(ctx, path, open)
			}
			return postgres.Open(ctx, database, open)
		}
	}})
}

// If a worker completes an activity run at one app while a caller cancels or terminates it at another app, one of them
// succeeds and the other gets 409. After the retention its rows are gone, late calls have no effect, and its ID can be
// used again.
func TestAnActivityRunEndsOnceAndLeavesNothing(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		var shift atomic.Int64
		a := shifted(t, database, &shift)
		b := a
		if strings.HasPrefix(database, "postgres") {
			b = shifted(t, database, &shift)
		}
		here, there := caller{t, a, ""}, caller{t, b, ""}
		w := register(here, "w", "")
		begin := func(id, more string) string {
			return here.want(201, "POST", "/api/sojourn/activities", fmt.Sprintf(
				`{"activity_type":"step","workflow_id":%q,"task_queue":%q%s}`, id, handQueue, more,
			)).text("run_id")
		}
		late := map[string]handTask{}
		won := map[string]int{}
		for i := range 20 {
			id, more := fmt.Sprint("one-", i), ""
			if i%2 == 1 {
				more = `,"session_id":"visit"`
			}
			run := begin(id, more)
			task := w.poll("activity")
			if task.text("run_id") != run {
				t.Fatalf("%s: %v", id, task)
			}
			verb := []string{"cancel", "terminate"}[i/2%2]
			var race sync.WaitGroup
			var result, end response
			race.Go(func() {
				time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
				result = w.ask("POST", stepPath(task, "complete"), w.stepBody(task, `,"result":"done"`))
			})
			race.Go(func() {
				time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
				end = there.ask("POST", "/api/workflows/"+id+"/"+verb, `{}`)
			})
			race.Wait()
			got := there.want(200, "GET", "/api/workflows/"+id, "").text("status")
			won[got]++
			switch {
			case got == "completed" && result.status == 200 && end.status == 409:
			case got == map[string]string{"cancel": "cancelled", "terminate": "terminated"}[verb] && end.status == 200 &&
				result.status == 409:
			default:
				t.Errorf("%s is %s: the result was told %d %s, who ended it %d %s", id, got, result.status, result.raw,
					end.status, end.raw)
			}
			late[id] = task
		}
		t.Logf("they ended so often: %v", won)
		// A run that is cancelled in its start delay is never dispatched.
		begin("later", `,"start_delay_seconds":3600`)
		there.want(200, "POST", "/api/workflows/later/cancel", `{}`)
		shift.Store(int64(2 * time.Hour))
		w.empty("activity")

		shift.Store(int64(31 * 24 * time.Hour))
		var both sync.WaitGroup
		for _, x := range []*apptest.App{a, b} {
			both.Go(func() {
				if _, err := x.Broker().Prune(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		left := a.Dump()
		register(here, "w", "") // the worker sent no request for a month, so it registers again
		for id, task := range late {
			for table, rows := range left {
				for _, row := range rows { // the audit log and the session's timeline are kept separately
					if table != "audit" && table != "session_events" && strings.Contains(row, task.text("run_id")) {
						t.Errorf("of %s is left in %s: %s", id, table, row)
					}
				}
			}
			there.want(404, "GET", "/api/workflows/"+id, "")
		}
		before := a.Dump()
		for id, task := range late {
			for verb, more := range map[string]string{
				"complete": `,"result":1`, "heartbeat": "", "fail": `,"failure":{"message":"m"}`,
			} {
				got := w.want(404, "POST", stepPath(task, verb), w.stepBody(task, more))
				if got.text("reason") != "task_not_found" {
					t.Errorf("%s of %s: %s", verb, id, got.raw)
				}
			}
			if got := w.logs(logItem(task, "w", 1, "late")); got != "task_not_found" {
				t.Errorf("lines of %s: %s", id, got)
			}
		}
		// the session expired in the month that the test added to the clock
		if diff := before.Diff(a.Dump(), "sessions", "session_events"); diff != "" {
			t.Errorf("reports on runs that are gone changed something:\n%s", diff)
		}
		for id := range late {
			begin(id, "")
			task := w.poll("activity")
			w.want(200, "POST", stepPath(task, "complete"), w.stepBody(task, `,"result":"again"`))
		}
	})
}
