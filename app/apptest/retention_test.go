package apptest_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
)

func TestRetentionRemovesWhatClosedLongAgoAndFreesItsId(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		var shift atomic.Int64
		a := shifted(t, database, &shift)
		c := caller{t, a, ""}
		for _, id := range []string{"closed", "open"} {
			c.want(201, "POST", "/api/workflows", `{"workflow_id":"`+id+`","workflow_type":"t"}`)
		}
		c.want(200, "POST", "/api/workflows/closed/terminate", `{"request_id":"r"}`)
		if got := c.want(200, "POST", "/api/system/retention/pass", `{}`); got.body["pruned"] != 0.0 {
			t.Errorf("at once: %s", got.raw)
		}
		shift.Store(int64(30*24*time.Hour - 10*time.Minute)) // neither a day nor an hour before its time
		if got := c.want(200, "POST", "/api/system/retention/pass", `{}`); got.body["pruned"] != 0.0 {
			t.Errorf("ten minutes before the end of its retention: %s", got.raw)
		}
		if _, err := a.Broker().Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.want(200, "GET", "/api/workflows/closed", "")
		shift.Store(int64(30*24*time.Hour + 10*time.Minute))
		if got := c.want(200, "GET", "/api/system/retention", ""); got.body["expired_run_count"] != 1.0 ||
			got.body["retention_days"] != 30.0 {
			t.Errorf("status: %s", got.raw)
		}
		if got := c.want(200, "POST", "/api/system/retention/pass", `{}`); got.body["pruned"] != 1.0 ||
			got.body["skipped"] != 0.0 {
			t.Errorf("pass: %s", got.raw)
		}
		c.want(404, "GET", "/api/workflows/closed", "")
		c.want(200, "GET", "/api/workflows/open", "")
		c.want(201, "POST", "/api/workflows", `{"workflow_id":"closed","workflow_type":"t"}`)
	})
}

// An app deletes runs past their namespace's retention, including their index rows, without a request, and knows the
// time of the next deletion.
func TestRetentionDeletesRunsInTheBackground(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		shift := atomic.Int64{}
		a := shifted(t, database, &shift)
		root := caller{t, a, "default"}
		root.want(201, "POST", "/api/namespaces", `{"name":"brief","retention_days":2}`)
		brief := caller{t, a, "brief"}
		prune := func() time.Duration {
			t.Helper()
			next, err := a.Broker().Prune(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return next.Round(time.Hour)
		}
		if next := prune(); next != 0 {
			t.Errorf("with nothing closed it looks again in %v", next)
		}
		for _, c := range []caller{root, brief} {
			for i := range 150 {
				c.want(
					201, "POST", "/api/workflows",
					fmt.Sprintf(`{"workflow_id":"f%d","workflow_type":"t","search_attributes":{"K":1}}`, i),
				)
				if i > 0 {
					c.want(200, "POST", fmt.Sprintf("/api/workflows/f%d/terminate", i), `{}`)
				}
			}
		}
		for _, c := range []caller{root, brief} {
			w := register(c, "w", "")
			w.want(201, "POST", "/api/worker/sessions", `{"worker_id":"w","session_id":"visit"}`)
			w.want(200, "POST", "/api/worker/sessions/visit/release", `{"worker_id":"w"}`)
		}
		if next := prune(); next != 48*time.Hour {
			t.Errorf("it looks again in %v, want 48 h", next)
		}
		shift.Store(int64(3 * 24 * time.Hour))
		visits := []engine.SessionKey{{Namespace: "default", ID: "visit"}, {Namespace: "brief", ID: "visit"}}
		if err := a.Broker().CleanUp(t.Context(), visits); err != nil {
			t.Fatal(err)
		}
		if next := prune(); next != 27*24*time.Hour {
			t.Errorf("then again in %v, want 27 days", next)
		}
		for c, want := range map[caller]int{root: 150, brief: 1} {
			if got := c.found("K = 1", 200); len(got) != want {
				t.Errorf("%s has %d runs, want %d", c.ns, len(got), want)
			}
		}
		shift.Store(int64(6 * 24 * time.Hour)) // the clean-up is an entry, too
		prune()
		for c, kept := range map[caller]bool{root: true, brief: false} {
			if got := c.want(404, "GET", "/api/worker-sessions/visit", ""); strings.Contains(got.raw, `"released"`) != kept {
				t.Errorf("what %s says of a session that is gone: %s", c.ns, got.raw)
			}
		}
	})
}

// A run that cannot be decoded stops the retention only of its namespace.
func TestRetentionOfOneNamespaceDelaysNoOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	open := func(shift time.Duration) *apptest.App {
		return apptest.Start(t, apptest.Options{Change: func(o *app.Options) {
			o.Open = func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
				return sqlite.Open(ctx, path, sqldb.Options{App: "app", Dispatch: d, Shift: func() time.Duration { return shift }})
			}
		}})
	}
	a := open(0)
	for _, ns := range []string{"broken", "default"} {
		if ns != "default" {
			(caller{t, a, "default"}).want(201, "POST", "/api/namespaces", `{"name":"`+ns+`"}`)
		}
		c := caller{t, a, ns}
		c.want(201, "POST", "/api/workflows", `{"workflow_id":"old","workflow_type":"t"}`)
		c.want(200, "POST", "/api/workflows/old/terminate", `{}`)
	}
	a.Stop()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("UPDATE runs SET state = '{' WHERE namespace = 'broken'"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	a = open(31 * 24 * time.Hour)
	if _, err := a.Broker().Prune(t.Context()); err == nil || !strings.Contains(err.Error(), "namespace broken") {
		t.Errorf("prune: %v, want what is broken", err)
	}
	(caller{t, a, "default"}).want(404, "GET", "/api/workflows/old", "")
}

func TestAStartWithCronMakesASchedule(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
		const body = `{"workflow_id":"nightly","workflow_type":"t","task_queue":"q","input":["x"],"cron":"0 3 * * *","cron_timezone":"Europe/Berlin"`
		got := c.want(201, "POST", "/api/workflows", body+`}`)
		if got.text("outcome") != "schedule_created" || got.text("schedule_id") != "nightly" || got.text("run_id") != "" {
			t.Error(got.raw)
		}
		c.want(404, "GET", "/api/workflows/nightly", "")
		if got := c.want(
			200, "GET", "/api/schedules/nightly", "",
		); !strings.Contains(got.raw, `"timezone":"Europe/Berlin"`) || got.text("next_fire_at") == "" {
			t.Error(got.raw)
		}
		fired := c.want(200, "POST", "/api/schedules/nightly/trigger", `{}`).text("workflow_id")
		if !strings.HasPrefix(fired, "nightly.20") {
			t.Errorf("a firing is called %s", fired)
		}
		if got := c.want(409, "POST", "/api/workflows", body+`}`); got.text("reason") != "schedule_already_exists" {
			t.Error(got.raw)
		}
		if got := c.want(
			200, "POST", "/api/workflows", body+`,"duplicate_policy":"use-existing"}`,
		); got.text("outcome") != "returned_existing_schedule" {
			t.Error(got.raw)
		}
		for field, bad := range map[string]string{
			"cron":          `{"workflow_type":"t","cron":"soon"}`,
			"cron_timezone": `{"workflow_type":"t","cron":"@daily","cron_timezone":"Mars/Base"}`,
			"priority":      `{"workflow_type":"t","cron":"@daily","priority":1}`,
			"workflow_id":   `{"workflow_id":"` + strings.Repeat("x", 101) + `","workflow_type":"t","cron":"@daily"}`,
		} {
			if got := c.want(422, "POST", "/api/workflows", bad); got.body["errors"].(map[string]any)[field] == nil {
				t.Errorf("%s: %s", field, got.raw)
			}
		}
	})
}

func TestARetentionPassDeletesOnlyTheNamedRuns(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		var shift atomic.Int64
		c := caller{t, shifted(t, database, &shift), ""}
		runs := map[string]string{}
		for _, id := range []string{"a", "b", "c", "d", "e", "open"} {
			runs[id] = c.want(201, "POST", "/api/workflows", `{"workflow_id":"`+id+`","workflow_type":"t"}`).text("run_id")
			if id != "open" {
				c.want(200, "POST", "/api/workflows/"+id+"/terminate", `{}`)
			}
		}
		pass := func(body string, pruned, skipped int) {
			t.Helper()
			got := c.want(200, "POST", "/api/system/retention/pass", body)
			if got.body["pruned"] != float64(pruned) || got.body["skipped"] != float64(skipped) {
				t.Errorf("%s: want %d pruned, %d skipped: %s", body, pruned, skipped, got.raw)
			}
		}
		named := fmt.Sprintf(`{"run_ids":[%q,%q,"none"]}`, runs["a"], runs["open"])
		pass(named, 0, 3) // the runs are within their retention
		shift.Store(int64(31 * 24 * time.Hour))
		pass(`{"run_ids":[]}`, 0, 0)
		pass(named, 1, 2)
		for id, status := range map[string]int{"a": 404, "b": 200, "c": 200, "d": 200, "e": 200, "open": 200} {
			c.want(status, "GET", "/api/workflows/"+id, "")
		}
		pass(`{"limit":1}`, 1, 0)
		c.want(404, "GET", "/api/workflows/b", "") // it closed first
		pass(fmt.Sprintf(`{"limit":1,"run_ids":[%q,%q,%q]}`, runs["c"], runs["d"], runs["e"]), 1, 0)
		for _, body := range []string{`{"limit":-1}`, `{"run_ids":[""]}`, `{"run_ids":"x"}`} {
			c.want(422, "POST", "/api/system/retention/pass", body)
		}
		pass(`{"limit":1000}`, 2, 0)
		pass(`{}`, 0, 0)
	})
}

// By default, the app deletes audit entries after one year, in all namespaces and in batches.
func TestAuditEntriesAreKeptForAYear(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		const year = 365 * 24 * time.Hour
		shift := atomic.Int64{}
		a := shifted(t, database, &shift)
		write := func(n int, namespace, target string) {
			t.Helper()
			for range n {
				err := a.Broker().Audit(t.Context(), store.Audit{Action: "test", Namespace: namespace, Target: target})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		entries := func() (old, late int) {
			for _, row := range a.Dump()["audit"] {
				old += strings.Count(row, "first-day")
				late += strings.Count(row, "second-day")
			}
			return old, late
		}
		prune := func(at time.Duration, old, late int) {
			t.Helper()
			shift.Store(int64(at))
			if _, err := a.Broker().Prune(t.Context()); err != nil {
				t.Fatal(err)
			}
			if o, l := entries(); o != old || l != late {
				t.Errorf("after %v: %d and %d entries, want %d and %d", at, o, l, old, late)
			}
		}
		write(150, "default", "first-day")
		write(75, "", "first-day")
		shift.Store(int64(24 * time.Hour))
		write(3, "default", "second-day")
		prune(year-time.Hour, 225, 3)
		prune(year+time.Hour, 0, 3)
		prune(year+25*time.Hour, 0, 0)
	})
}
