package apptest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// quotas creates the namespace busy with quotas, and the namespace calm without, to which the settings apply.
func quotas(t *testing.T, a *apptest.App, values string) (busy, calm caller) {
	t.Helper()
	operator := caller{t, a, "default"}
	operator.want(201, "POST", "/api/namespaces", `{"name":"busy","quotas":`+values+`}`)
	operator.want(201, "POST", "/api/namespaces", `{"name":"calm"}`)
	return caller{t, a, "busy"}, caller{t, a, "calm"}
}

// exceeds expects a refusal by a quota.
func (c caller) exceeds(quota, method, path, body string) response {
	c.t.Helper()
	s := c.want(429, method, path, body)
	if s.text("reason") != "quota_exceeded" || s.text("quota") != quota || s.text("namespace") != c.ns {
		c.t.Errorf("%s %s: %s", method, path, s.raw)
	}
	for _, member := range []string{"limit", "current"} {
		if _, ok := s.body[member].(float64); !ok {
			c.t.Errorf("%s %s: no %s in %s", method, path, member, s.raw)
		}
	}
	want := "30"
	if quota == "starts_per_second" {
		want = "1"
	}
	if retry := s.header.Get("Retry-After"); retry != want {
		c.t.Errorf("%s %s: Retry-After %q, want %s", method, path, retry, want)
	}
	return s
}

// uses returns a namespace's usage of a quota.
func (c caller) uses(quota string) int {
	c.t.Helper()
	list, _ := c.want(200, "GET", "/api/namespaces/"+c.ns, "").body["quotas"].([]any)
	for _, q := range list {
		if q := q.(map[string]any); q["quota"] == quota {
			return int(q["used"].(float64))
		}
	}
	c.t.Fatalf("no quota %s in %v", quota, list)
	return 0
}

func (c caller) run(id string) string {
	return fmt.Sprintf(`{"workflow_type":"flow","task_queue":%q,"workflow_id":%q,"input":[1]}`, handQueue, id)
}

// setQuotas changes the quotas of the caller's namespace.
func (c caller) setQuotas(values string) {
	c.t.Helper()
	c.want(200, "PUT", "/api/namespaces/"+c.ns, `{"quotas":`+values+`}`)
}

func TestAQuotaRejectsOnlyNewWorkOfItsNamespace(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		busy, calm := quotas(t, a, `{"open_runs":2}`)
		busy.want(201, "POST", "/api/workflows", busy.run("r-1"))
		busy.want(201, "POST", "/api/workflows", busy.run("r-2"))
		unchanged(t, a, "a start above the quota", func() {
			busy.exceeds("open_runs", "POST", "/api/workflows", busy.run("r-3"))
			busy.exceeds("open_runs", "POST", "/api/sojourn/activities",
				`{"activity_type":"step","task_queue":"`+handQueue+`","workflow_id":"act-1"}`)
		})
		// A repeated start is not charged: it reports the existing run.
		busy.want(409, "POST", "/api/workflows", busy.run("r-2"))
		busy.want(200, "POST", "/api/workflows",
			strings.Replace(busy.run("r-2"), "{", `{"duplicate_policy":"use-existing",`, 1))
		for i := range 5 {
			calm.want(201, "POST", "/api/workflows", calm.run(fmt.Sprint("r-", i)))
		}
		if n := busy.uses("open_runs"); n != 2 {
			t.Errorf("%d open runs, want 2", n)
		}
		if n := calm.uses("open_runs"); n != 5 {
			t.Errorf("%d open runs of the bystander, want 5", n)
		}
		// The other app counts this run within a second after it first starts a run itself.
		there, tries := caller{t, b, "busy"}, 0
		until(t, "the other app refuses", func() bool {
			tries++
			return there.ask("POST", "/api/workflows", there.run(fmt.Sprint("there-", tries))).status == 429
		})
		busy.want(200, "POST", "/api/workflows/r-1/cancel", `{}`)
		for i := 1; i < tries; i++ {
			busy.want(200, "POST", fmt.Sprintf("/api/workflows/there-%d/cancel", i), `{}`)
		}
		until(t, "a run that closed makes room at both apps", func() bool {
			return there.ask("POST", "/api/workflows", there.run("again")).status == 201
		})
		until(t, "both apps count the same", func() bool { return busy.uses("open_runs") == there.uses("open_runs") })
		if n := there.uses("open_runs"); n != 2 {
			t.Errorf("%d open runs at last, want 2", n)
		}
		busy.setQuotas(`{"open_runs":-1}`)
		busy.want(201, "POST", "/api/workflows", busy.run("r-4"))
	})
}

// An exceeded quota never rejects calls that end, continue or cancel work, and workers and timers continue.
func TestQuotasDoNotRejectRunningWork(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		busy, _ := quotas(t, a, `{}`)
		w := register(busy, "w", "")
		for _, id := range []string{"one", "two", "three"} {
			busy.start(id)
		}
		busy.want(201, "POST", "/api/schedules", `{"schedule_id":"s","spec":{"intervals":[{"every":"PT1H"}]},`+
			`"action":{"workflow_type":"flow"}}`)
		busy.setQuotas(`{"open_runs":0,"starts_per_second":0,"stored_bytes":0,"schedules":0}`)

		busy.exceeds("open_runs", "POST", "/api/workflows", busy.run("r-3"))
		busy.exceeds("stored_bytes", "POST", "/api/workflows/one/signal/go", `{}`)
		busy.exceeds("stored_bytes", "POST", "/api/workflows/one/update/set", `{}`)
		busy.exceeds("schedules", "POST", "/api/schedules", `{"schedule_id":"other","spec":{"intervals":[{"every":"PT1H"}]},`+
			`"action":{"workflow_type":"flow"}}`)
		busy.exceeds("schedules", "POST", "/api/workflows", strings.Replace(busy.run("cron"), "{", `{"cron":"0 3 * * *",`, 1))
		busy.want(200, "PUT", "/api/schedules/s", `{"note":"changed"}`)

		one, two := w.poll("workflow"), w.poll("workflow")
		w.decide(w.poll("workflow"), `{"type":"open_condition_wait","condition_key":"k"}`)
		w.decide(one, `{"type":"schedule_activity","activity_type":"step","queue":"`+handQueue+`"}`)
		step := w.poll("activity")
		busy.want(200, "POST", stepPath(step, "complete"), w.stepBody(step, ""))
		w.decide(w.poll("workflow"), `{"type":"start_timer","delay_seconds":1}`)
		w.decide(two, `{"type":"open_condition_wait","condition_key":"k"}`)
		fired := w.poll("workflow")
		if fired.text("run_id") != one.text("run_id") {
			t.Fatalf("a task of %s", fired.text("workflow_id"))
		}
		w.decide(fired, `{"type":"continue_as_new"}`)
		next := w.poll("workflow")
		if next.text("run_id") == one.text("run_id") || next.text("workflow_id") != one.text("workflow_id") {
			t.Fatalf("the run has not gone on as a new one: %v", next)
		}
		w.decide(next, finish)
		for _, verb := range []string{"cancel", "terminate"} {
			id := map[string]string{"cancel": "two", "terminate": "three"}[verb]
			busy.want(200, "POST", "/api/workflows/"+id+"/"+verb, `{}`)
		}
		busy.want(200, "DELETE", "/api/schedules/s", "")
		if n := busy.uses("open_runs"); n != 0 {
			t.Errorf("%d open runs at last", n)
		}
		if n := busy.uses("schedules"); n != 0 {
			t.Errorf("%d schedules at last", n)
		}
	})
}

func TestStartsPerSecondAreRefusedAboveTheirQuota(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		busy, calm := quotas(t, a, `{"starts_per_second":1}`)
		busy.want(201, "POST", "/api/workflows", busy.run("r-1"))
		refused := 0
		until(t, "a start is refused", func() bool {
			if s := busy.ask("POST", "/api/workflows", busy.run(fmt.Sprint("more-", refused))); s.status == 429 {
				refused++
				busy.exceeds("starts_per_second", "POST", "/api/workflows", busy.run("none"))
			}
			return refused > 0
		})
		calm.want(201, "POST", "/api/workflows", calm.run("r-1"))
		until(t, "a second later it may start", func() bool {
			return busy.ask("POST", "/api/workflows", busy.run("later")).status == 201
		})
		metrics := caller{t, a, "busy"}.ask("GET", "/metrics", "").raw
		for _, line := range []string{
			`sojourn_quota_limit{namespace="busy",quota="starts_per_second"} 1`,
			`sojourn_quota_used{namespace="busy",quota="open_runs"} `,
			`sojourn_quota_refusals_total{kind="start",namespace="busy",quota="starts_per_second"} `,
		} {
			if !strings.Contains(metrics, line) {
				t.Errorf("no %s in the metrics", line)
			}
		}
	})
}

// A parent may start children above the quota; they begin when other runs end, at any app.
func TestChildrenAboveAQuotaWait(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		busy, calm := quotas(t, a, `{"open_runs":2}`)
		const child = `{"type":"start_child_workflow","workflow_type":"flow","queue":"` + handQueue +
			`","parent_close_policy":"terminate"}`
		for _, c := range []struct {
			caller
			begin int
		}{{calm, 4}, {busy, 1}} {
			w := register(c.caller, "w", "")
			c.start("parent")
			w.decide(w.poll("workflow"), child, child, child, child, `{"type":"open_condition_wait","condition_key":"k"}`)
			tasks := []handTask{}
			for range c.begin {
				tasks = append(tasks, w.poll("workflow"))
			}
			w.empty("workflow")
			if n := c.uses("open_runs"); n != 5 {
				t.Errorf("%d open runs in %s, want 5", n, c.ns)
			}
			if c.ns == "calm" {
				continue
			}
			list, _ := c.want(200, "GET", "/api/workflows?status=running", "").body["workflows"].([]any)
			held := []string{}
			for _, r := range list {
				id, _ := r.(map[string]any)["workflow_id"].(string)
				if id == "parent" || id == tasks[0].text("workflow_id") {
					continue
				}
				held = append(held, id)
				raw := c.want(200, "GET", "/api/workflows/"+id, "").raw
				if !strings.Contains(raw, `"reason":"quota"`) || !strings.Contains(raw, `quota open_runs of namespace \"busy\"`) {
					t.Errorf("why a child waits: %s", raw)
				}
			}
			if len(held) != 3 {
				t.Fatalf("%d children are held, want 3: %v", len(held), held)
			}
			c.want(200, "POST", "/api/workflows/"+held[0]+"/terminate", `{}`)
			// a new run has to wait until the children that are held by the quota have begun
			c.exceeds("open_runs", "POST", "/api/workflows", c.run("new"))
			there := hand{caller{t, b, c.ns}, "w"}
			began := map[string]bool{}
			// next returns the next task of a child; it also completes the parent's tasks, which report ends of children
			next := func() handTask {
				for {
					task := there.poll("workflow")
					if task.text("workflow_id") != "parent" {
						began[task.text("workflow_id")] = true
						return task
					}
					there.decide(task, `{"type":"open_condition_wait","condition_key":"told"}`)
				}
			}
			there.decide(tasks[0], finish)
			one := next()
			if n := c.uses("open_runs"); n != 3 { // the parent, the started child, the held child
				t.Errorf("%d open runs after two children ended, want 3", n)
			}
			there.decide(one, finish)
			there.decide(next(), finish)
			if !began[held[1]] || !began[held[2]] || len(began) != 2 {
				t.Errorf("began %v, held were %v", began, held)
			}
			until(t, "only the parent is open", func() bool { return c.uses("open_runs") == 1 })
		}
	})
}

func TestAFiringAboveAQuotaIsRecordedAsSkipped(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		busy, calm := quotas(t, a, `{"open_runs":0}`)
		for _, c := range []caller{busy, calm} {
			c.want(201, "POST", "/api/schedules", `{"schedule_id":"s","spec":{"intervals":[{"every":"PT1S"}]},`+
				`"overlap_policy":"allow_all","action":{"workflow_type":"flow","task_queue":"`+handQueue+`"}}`)
		}
		busy.exceeds("open_runs", "POST", "/api/schedules/s/trigger", `{}`)
		skipped := busy.eventually("/api/schedules/s/history", func(s response) bool {
			return strings.Contains(s.raw, "quota_open_runs")
		})
		if !strings.Contains(skipped.raw, "ScheduleTriggerSkipped") || strings.Contains(skipped.raw, "ScheduleTriggered") {
			t.Errorf("the history: %s", skipped.raw)
		}
		calm.eventually("/api/schedules/s/history", func(s response) bool {
			return strings.Contains(s.raw, "ScheduleTriggered")
		})
		if raw := calm.want(200, "GET", "/api/schedules/s/history", "").raw; strings.Contains(raw, "quota_") {
			t.Errorf("the bystander's history: %s", raw)
		}
		if n := busy.uses("open_runs"); n != 0 {
			t.Errorf("%d open runs", n)
		}
		busy.setQuotas(`{"open_runs":-1}`)
		busy.eventually("/api/schedules/s/history", func(s response) bool {
			return strings.Contains(s.raw, "ScheduleTriggered")
		})
		if metrics := busy.ask("GET", "/metrics", "").raw; !strings.Contains(
			metrics, `sojourn_quota_refusals_total{kind="firing",namespace="busy",quota="open_runs"} `,
		) {
			t.Error("no skipped firing in the metrics")
		}
	})
}

// Usage that a killed app had not stored, or that an earlier build did not count, is counted from the rows.
func TestUsageIsRecounted(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, "default"}
		for i := range 3 {
			c.want(201, "POST", "/api/workflows", c.run(fmt.Sprint("r-", i)))
		}
		c.want(200, "POST", "/api/workflows/r-0/cancel", `{}`)
		var n store.Namespace
		until(t, "the counts are stored, and the first recount has ended", func() bool {
			n = storedNamespace(t, a, "default")
			return n.Usage.OpenRuns == 2 && !n.CountedAt.IsZero()
		})
		bytes := n.Usage.StoredBytes
		if bytes <= 0 || bytes != int64(c.uses("stored_bytes")) {
			t.Errorf("%d bytes are stored, %d shown", bytes, c.uses("stored_bytes"))
		}
		_, err := a.Store().Commit(t.Context(), store.Transaction{
			Needs: store.Keys{Namespaces: []string{"default"}},
			Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
				n := *rows.Namespace("default")
				n.Usage, n.CountedAt = engine.Usage{}, history.Time{}
				return store.Writes{Namespaces: []store.Namespace{n}}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		a.Stop()
		a = apptest.Start(t, apptest.Options{Database: database})
		c = caller{t, a, "default"}
		c.want(200, "POST", "/api/workflows/r-1/cancel", `{}`)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the stored namespace at the end: %+v; before: %d bytes", n, bytes)
			}
		})
		until(t, "the runs are counted", func() bool {
			n = storedNamespace(t, a, "default")
			return !n.CountedAt.IsZero() && n.Usage.OpenRuns == 1 && n.Usage.StoredBytes > bytes
		})
	})
}

func storedNamespace(t *testing.T, a *apptest.App, namespace string) (n store.Namespace) {
	t.Helper()
	err := a.Store().View(t.Context(), func(r store.Reader) (err error) {
		n, err = r.Namespace(t.Context(), namespace)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The app loses unstored usage when it is killed. After the restart it recounts the usage of all namespaces in the
// background, including namespaces without requests.
func TestUsageIsExactAfterAnAppWasKilled(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		busy, calm := quotas(t, a, `{}`)
		for _, c := range []caller{busy, calm} {
			c.want(201, "POST", "/api/workflows", c.run("stored"))
			until(t, "the runs are counted", func() bool {
				n := storedNamespace(t, a, c.ns)
				return n.Usage.OpenRuns == 1 && !n.CountedAt.IsZero()
			})
		}
		var lost int64
		for i := 0; lost == 0; i++ { // repeat if the app stored the usage before Take
			busy.want(201, "POST", "/api/workflows", busy.run(fmt.Sprint("lost-", i)))
			lost = a.Store().Quotas().TakeUsage()["busy"].OpenRuns
		}
		path, isFile := strings.CutPrefix(database, "sqlite:")
		if isFile { // a copy of the database file and its log is the state after a kill
			killed := filepath.Join(t.TempDir(), "killed.db")
			for _, end := range []string{"", "-wal"} {
				b, err := os.ReadFile(path + end)
				if err = errors.Join(err, os.WriteFile(killed+end, b, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			database = "sqlite:" + killed
		}
		a.Stop()
		if !isFile { // the row of an app that did not withdraw its usage, as a starting app reads it
			now := history.At(time.Now())
			row := engine.Worker{Namespace: "/apps", ID: "killed", Release: "test", Queues: []string{"-"}, AliveUntil: now}
			b := apptest.Start(t, apptest.Options{Database: database})
			if _, err := b.Store().Commit(t.Context(), store.Transaction{
				Decide: func(store.Rows, time.Time) (store.Writes, error) {
					return store.Writes{Workers: []engine.Worker{row}}, nil
				},
			}); err != nil {
				t.Fatal(err)
			}
		}
		a = apptest.Start(t, apptest.Options{Database: database})
		for _, ns := range []string{"busy", "calm"} {
			until(t, "the usage is exact", func() bool {
				c, err := a.Store().CountUsage(t.Context(), ns)
				if err != nil {
					t.Fatal(err)
				}
				c.Counted.Starts = c.Row.Usage.Starts
				return c.Row.Usage == c.Counted && !c.Row.CountedAt.IsZero()
			})
		}
	})
}
