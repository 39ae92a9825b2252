package apptest_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// eventually repeats a GET until the response is good, for at most two minutes.
func (c caller) eventually(path string, good func(response) bool) response {
	c.t.Helper()
	return c.within(2*time.Minute, path, good)
}

// within repeats a GET until the response is good, for at most the given time.
func (c caller) within(most time.Duration, path string, good func(response) bool) response {
	c.t.Helper()
	end := time.Now().Add(most)
	for {
		s := c.want(200, "GET", path, "")
		if good(s) {
			return s
		}
		if time.Now().After(end) {
			c.t.Fatalf("GET %s stays %s", path, s.raw)
		}
		time.Sleep(20 * time.Millisecond) // the app changes state in its own goroutines and sends no event
	}
}

const everySecond = `"spec":{"intervals":[{"every":"PT1S"}]},"action":{"workflow_type":"t","task_queue":"q","input":["x"]}`

func TestAScheduleFiresEachOfItsTimesOnce(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		others := []*apptest.App{a}
		if strings.HasPrefix(database, "postgres") { // a second sweeper applies the same work
			others = append(others, apptest.Start(t, apptest.Options{Database: database}))
		}
		c := caller{t, others[len(others)-1], ""}
		got := c.want(
			201, "POST", "/api/schedules", `{"schedule_id":"s","overlap_policy":"allow_all","max_runs":2,`+everySecond+`}`,
		)
		if got.text("outcome") != "created" || got.text("status") != "active" {
			t.Errorf("created: %s", got.raw)
		}
		c.want(409, "POST", "/api/schedules", `{"schedule_id":"s",`+everySecond+`}`)
		got = c.eventually("/api/schedules/s", func(s response) bool { return s.text("status") == "deleted" })
		if got.body["fires_count"] != 2.0 || got.body["remaining_actions"] != 0.0 || got.body["next_fire_at"] != nil {
			t.Errorf("afterwards: %s", got.raw)
		}
		list := c.want(200, "GET", "/api/workflows", "")
		flows, _ := list.body["workflows"].([]any)
		if len(flows) != 2 {
			t.Fatalf("workflows: %s", list.raw)
		}
		for _, f := range flows {
			id, _ := f.(map[string]any)["workflow_id"].(string)
			if at, err := time.Parse("20060102T150405Z", strings.TrimPrefix(id, "s.")); err != nil ||
				time.Since(at) > time.Minute {
				t.Errorf("workflow id %s: %v", id, err)
			}
		}
		history := c.want(200, "GET", "/api/schedules/s/history?limit=3", "")
		events, _ := history.body["events"].([]any)
		var kinds []string
		for _, e := range events {
			kinds = append(kinds, e.(map[string]any)["event_type"].(string))
		}
		if strings.Join(kinds, " ") != "ScheduleCreated ScheduleTriggered ScheduleTriggered" ||
			history.body["has_more"] != true {
			t.Errorf("history: %s", history.raw)
		}
		var back []string
		for path, pages := "/api/schedules/s/history?newest_first=true&limit=2", 0; path != "" && pages < 10; pages++ {
			page := c.want(200, "GET", path, "")
			for _, e := range page.body["events"].([]any) {
				back = append(back, e.(map[string]any)["event_type"].(string))
			}
			path = ""
			if page.body["has_more"] == true {
				path = "/api/schedules/s/history?newest_first=true&limit=2&before_sequence=" + page.text("next_cursor")
			}
		}
		if strings.Join(back, " ") != "ScheduleDeleted ScheduleTriggered ScheduleTriggered ScheduleCreated" {
			t.Errorf("newest first: %v", back)
		}
	})
}

func TestTimesOfASpecArePreviewedWithoutASchedule(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), ""}
	spec := func(text string) string { return "/api/sojourn/schedule-times?count=3&spec=" + url.QueryEscape(text) }
	got := c.want(200, "GET", spec(`{"cron_expressions":["30 12 1 1 *"],"timezone":"Asia/Kolkata"}`), "")
	times, _ := got.body["times"].([]any)
	for _, at := range times {
		if !strings.HasSuffix(at.(string), "-01-01T07:00:00.000000Z") {
			t.Errorf("noon and a half in Kolkata is at %v", at)
		}
	}
	if len(times) != 3 {
		t.Errorf("times: %s", got.raw)
	}
	for text, field := range map[string]string{
		`{"cron_expressions":["61 * * * *"]}`:   "spec.cron_expressions.0",
		`{"cron_expressions":["*/90 * * * *"]}`: "spec.cron_expressions.0",
		`{"cron_expressions":["0 0 30 2 *"]}`:   "spec.cron_expressions.0",
		`{"intervals":[{"every":"1h"}]}`:        "spec.intervals.0.every", `{}`: "spec",
	} {
		got := c.want(422, "GET", spec(text), "")
		if fields, _ := got.body["errors"].(map[string]any); fields[field] == nil {
			t.Errorf("%s: %s", text, got.raw)
		}
	}
	never := c.want(
		422, "POST", "/api/schedules",
		`{"schedule_id":"n","spec":{"cron_expressions":["0 0 29 2 *","0 0 30 2 *"]},"action":{"workflow_type":"t"}}`,
	)
	if fields, _ := never.body["errors"].(map[string]any); fields["spec.cron_expressions.1"] == nil {
		t.Errorf("a schedule for a day that never comes: %s", never.raw)
	}
}

func TestAScheduleWaitsForTheWorkflowBefore(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		const yearly = `"spec":{"cron_expressions":["0 0 1 1 *"],"timezone":"Europe/Berlin"},"action":{"workflow_type":"t"}`
		c.want(201, "POST", "/api/schedules", `{"schedule_id":"s","overlap_policy":"buffer_one",`+yearly+`}`)
		first := c.want(200, "POST", "/api/schedules/s/trigger", `{}`)
		if first.text("outcome") != "triggered" || first.text("run_id") == "" {
			t.Fatalf("trigger: %s", first.raw)
		}
		if got := c.want(200, "POST", "/api/schedules/s/trigger", `{}`); got.text("outcome") != "buffered" ||
			got.body["buffer_depth"] != 1.0 {
			t.Errorf("while it runs: %s", got.raw)
		}
		if got := c.want(200, "POST", "/api/schedules/s/trigger", `{}`); got.text("outcome") != "buffer_full" {
			t.Errorf("once more: %s", got.raw)
		}
		c.want(200, "POST", "/api/workflows/"+first.text("workflow_id")+"/terminate", `{}`)
		second := c.eventually("/api/schedules/s", func(s response) bool {
			return s.body["fires_count"] == 2.0
		}).text("latest_workflow_instance_id")
		c.want(200, "GET", "/api/workflows/"+second, "")
		third := c.want(200, "POST", "/api/schedules/s/trigger", `{"overlap_policy":"cancel_other"}`)
		if got := c.want(200, "GET", "/api/workflows/"+second, ""); third.text("outcome") != "triggered" ||
			got.body["is_terminal"] != true {
			t.Errorf("cancel_other: %s, the one before %s", third.raw, got.raw)
		}
		back := `{"start_time":"2019-12-31T23:00:00Z","end_time":"2021-12-31T23:00:00Z","overlap_policy":"allow_all"}`
		got := c.want(200, "POST", "/api/schedules/s/backfill", back)
		if got.body["fires_attempted"] != 3.0 || !strings.Contains(got.raw, `"workflow_id":"s.20191231T230000Z"`) {
			t.Errorf("backfill: %s", got.raw)
		}
		if got := c.want(200, "POST", "/api/schedules/s/backfill", back); strings.Count(
			got.raw, `"reason":"already_fired"`,
		) != 3 {
			t.Errorf("the same backfill again: %s", got.raw)
		}
		if got := c.want(200, "POST", "/api/schedules/s/pause", `{"note":"holidays"}`); got.text("outcome") != "paused" {
			t.Errorf("pause: %s", got.raw)
		}
		if got := c.want(200, "GET", "/api/schedules/s", ""); got.body["paused"] != true || got.text("note") != "holidays" ||
			got.body["next_fire_at"] != nil {
			t.Errorf("paused: %s", got.raw)
		}
		if got := c.want(200, "POST", "/api/schedules/s/trigger", `{}`); got.text("reason") != "status_not_triggerable" {
			t.Errorf("trigger while paused: %s", got.raw)
		}
		c.want(200, "POST", "/api/schedules/s/resume", `{}`)
		if got := c.want(200, "PUT", "/api/schedules/s", `{"jitter_seconds":60}`); got.text("outcome") != "updated" {
			t.Errorf("update: %s", got.raw)
		}
		c.want(422, "PUT", "/api/schedules/s", `{"spec":{"cron_expressions":["* * *"]}}`)
		c.want(422, "POST", "/api/schedules", `{"schedule_id":"u","spec":{"intervals":[{"every":"PT1H"}]},"action":{}}`)
		if got := c.want(200, "GET", "/api/schedules", ""); len(got.body["schedules"].([]any)) != 1 {
			t.Errorf("list: %s", got.raw)
		}
		if got := c.want(200, "DELETE", "/api/schedules/s", ""); got.text("outcome") != "deleted" {
			t.Errorf("delete: %s", got.raw)
		}
		c.want(404, "GET", "/api/schedules/s", "")
		c.want(404, "POST", "/api/schedules/s/trigger", `{}`)
		c.want(404, "PUT", "/api/schedules/s", `{"jitter_seconds":60}`)
		c.want(404, "DELETE", "/api/schedules/s", "")
		if got := c.want(200, "GET", "/api/schedules", ""); len(got.body["schedules"].([]any)) != 0 {
			t.Errorf("list: %s", got.raw)
		}
		eventTypes := func() (kinds []string) {
			for _, e := range c.want(200, "GET", "/api/schedules/s/history?limit=100", "").body["events"].([]any) {
				kinds = append(kinds, e.(map[string]any)["event_type"].(string))
			}
			return kinds
		}
		if kinds := eventTypes(); kinds[0] != "ScheduleCreated" || kinds[len(kinds)-1] != "ScheduleDeleted" {
			t.Errorf("the history of a schedule that was taken away: %q", kinds)
		}
		c.want(404, "GET", "/api/schedules/never/history", "")
		// the ID can be used again, and the new schedule continues the history
		c.want(201, "POST", "/api/schedules", `{"schedule_id":"s",`+everySecond+`}`)
		if kinds := eventTypes(); !strings.Contains(strings.Join(kinds, " "), "ScheduleDeleted ScheduleCreated") {
			t.Errorf("made again: %q", kinds)
		}
		if got := c.want(200, "GET", "/api/schedules/s", ""); got.text("status") != "active" {
			t.Errorf("made again: %s", got.raw)
		}
	})
}

// The history of a schedule, also of a deleted one, is kept for the retention of closed runs and then deleted.
func TestTheHistoryOfADeletedScheduleIsKeptForItsRetention(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		var shift atomic.Int64
		a := shifted(t, database, &shift)
		c := caller{t, a, ""}
		c.want(
			201, "POST", "/api/schedules",
			`{"schedule_id":"gone","spec":{"intervals":[{"every":"P1D"}]},"action":{"workflow_type":"t"}}`,
		)
		c.want(200, "DELETE", "/api/schedules/gone", "")
		for _, at := range []struct {
			after  time.Duration
			status int
		}{{30*24*time.Hour - 10*time.Minute, 200}, {30*24*time.Hour + 10*time.Minute, 404}} {
			shift.Store(int64(at.after))
			if _, err := a.Broker().Prune(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.want(at.status, "GET", "/api/schedules/gone/history", "")
		}
	})
}

func TestAListOfSchedulesHasWhatWasAskedFor(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		for i := range 9 {
			c.want(201, "POST", "/api/schedules", fmt.Sprintf(
				`{"schedule_id":"s%d","paused":%t,"spec":{"cron_expressions":["@yearly"]},"action":{"workflow_type":"t%d"}}`,
				i, i%3 == 0, i%2,
			))
		}
		list := func(query string) (ids []string) {
			t.Helper()
			for token := ""; ; {
				got := c.want(200, "GET", "/api/schedules?"+query+"&next_page_token="+token, "")
				all, _ := got.body["schedules"].([]any)
				for _, s := range all {
					ids = append(ids, s.(map[string]any)["schedule_id"].(string))
				}
				if token = got.text("next_page_token"); token == "" {
					return ids
				}
				if !strings.Contains(query, "page_size=2") || len(all) != 2 {
					t.Errorf("%s: a page of %d schedules", query, len(all))
				}
			}
		}
		for query, want := range map[string]string{
			"":                               "s0 s1 s2 s3 s4 s5 s6 s7 s8",
			"page_size=2":                    "s0 s1 s2 s3 s4 s5 s6 s7 s8",
			"status=paused":                  "s0 s3 s6",
			"status=paused&page_size=2":      "s0 s3 s6",
			"status=active&workflow_type=t1": "s1 s5 s7",
			"workflow_type=t":                "",
			"query=s7":                       "s7",
			"query=t0&status=paused":         "s0 s6",
			"status=deleted":                 "",
			"query=a%E2%80%8D":               "",
		} {
			if got := strings.Join(list(query), " "); got != want {
				t.Errorf("%q: got %q, want %q", query, got, want)
			}
		}
		c.want(422, "GET", "/api/schedules?status=halted", "")
	})
}
