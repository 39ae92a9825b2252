package apptest_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// A schedule whose stored time was computed by older rules gets the time of the current rules when an app starts, once
// with two apps, and its history records it. Then it fires once, at the first moment after the gap of a clock change.
func TestASkippedLocalTimeFiresAfterTheGap(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		var shift atomic.Int64
		// The night in which clocks in Berlin go from 02:00 to 03:00.
		shift.Store(int64(time.Until(time.Date(2028, 3, 25, 12, 0, 0, 0, time.UTC))))
		if database == "" {
			database = "sqlite:" + t.TempDir() + "/clock.db"
		}
		first := shifted(t, database, &shift)
		c := caller{t, first, ""}
		c.want(201, "POST", "/api/schedules", `{"schedule_id":"night","spec":{"cron_expressions":["30 2 * * *"],
			"timezone":"Europe/Berlin"},"action":{"workflow_type":"t","task_queue":"q"}}`)
		c.want(201, "POST", "/api/schedules", `{"schedule_id":"other","spec":{"cron_expressions":["30 4 * * *"],
			"timezone":"Europe/Berlin"},"action":{"workflow_type":"t","task_queue":"q"}}`)
		const gap, later = "2028-03-26T01:00:00.000000Z", "2028-03-27T00:30:00.000000Z"
		if got := c.want(200, "GET", "/api/schedules/night", ""); got.text("next_fire_at") != gap {
			t.Errorf("a new schedule fires next: %s", got.raw)
		}
		key := engine.ScheduleKey{Namespace: "default", ID: "night"}
		_, err := first.Store().Commit(t.Context(), store.Transaction{
			Needs: store.Keys{Schedules: []engine.ScheduleKey{key}},
			Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
				s := *rows.Schedule(key)
				after := s.Version
				s.Version++
				// the time that the previous build would have stored
				s.NextAt = history.At(time.Date(2028, 3, 27, 0, 30, 0, 0, time.UTC))
				return store.Writes{Schedules: []engine.ScheduleDecision{{After: after, Next: &s}}}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.want(200, "GET", "/api/schedules/night", ""); got.text("next_fire_at") != later {
			t.Fatalf("the stored time: %s", got.raw)
		}
		first.Stop()
		c.app = shifted(t, database, &shift)
		if strings.HasPrefix(database, "postgres") {
			shifted(t, database, &shift)
		}
		c.eventually("/api/schedules/night", func(s response) bool { return s.text("next_fire_at") == gap })
		other := c.want(200, "GET", "/api/schedules/other/history", "")
		if strings.Contains(other.raw, "ScheduleRetimed") {
			t.Errorf("a schedule whose time stayed: %s", other.raw)
		}
		c.app.Stop()
		shift.Add(int64(14 * time.Hour)) // 04:00 in Berlin
		c.app = shifted(t, database, &shift)
		c.eventually("/api/schedules/night", func(s response) bool { return s.body["fires_count"] == 1.0 })
		got := c.want(200, "GET", "/api/schedules/night/history", "")
		for text, times := range map[string]int{
			`"ScheduleRetimed"`: 1, `"ScheduleTriggered"`: 1, `moved from 02:30`: 2, `night.20280326T010000Z`: 1,
		} {
			if n := strings.Count(got.raw, text); n != times {
				t.Errorf("%s stands %d times, want %d: %s", text, n, times, got.raw)
			}
		}
		if got := c.want(200, "GET", "/api/schedules/night", ""); got.text("next_fire_at") != later {
			t.Errorf("afterwards: %s", got.raw)
		}
	})
}
