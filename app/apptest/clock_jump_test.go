package apptest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/store"
)

// clockOptions returns the options of an app whose store uses the clock of the test.
func clockOptions(database string, clock *apptest.Clock) apptest.Options {
	return apptest.Options{Database: database, Change: func(o *app.Options) { clock.Change(&o.Options) }}
}

// jumping starts two apps on a database whose clock the test sets; on SQLite both callers have the same app.
func jumping(t *testing.T, database string) (a, b caller, clock *apptest.Clock) {
	t.Helper()
	clock = apptest.NewClock(t, database)
	first, second := apptest.Two(t, clockOptions(database, clock))
	return caller{t, first, ""}, caller{t, second, ""}, clock
}

// leaseLength is the lease of a task of an HTTP worker, and that of a session.
const leaseLength = 5 * time.Minute

// soon is eventually with a limit of 30 s, for changes that take a few seconds. It ends a test that has failed already.
func (c caller) soon(path string, good func(response) bool) response {
	c.t.Helper()
	if c.t.Failed() {
		c.t.FailNow()
	}
	return c.within(30*time.Second, path, good)
}

// timeIn parses a time in a response.
func timeIn(t testing.TB, in map[string]any, member string) time.Time {
	t.Helper()
	text, _ := in[member].(string)
	v, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatalf("%s: %v", member, err)
	}
	return v
}

// stored returns the ends of all leases, back-offs and timers in the database, by description.
func stored(t testing.TB, a *apptest.App, session string, runs ...string) map[string]time.Time {
	t.Helper()
	ends := map[string]time.Time{}
	err := a.Store().View(t.Context(), func(r store.Reader) error {
		for _, id := range runs {
			run, err := r.Run(t.Context(), id)
			if err != nil {
				return err
			}
			if task := run.Task; task != nil && !task.Until.IsZero() {
				ends["workflow task of "+run.WorkflowID] = task.Until.Time
			}
			for _, act := range run.Activities.All() {
				ends[string(act.State)+" activity of "+run.WorkflowID] = act.DueAt().Time
			}
			for _, timer := range run.Timers.All() {
				ends["timer of "+run.WorkflowID] = timer.FireAt.Time
			}
		}
		workers, err := r.Workers(t.Context(), store.WorkerQuery{Limit: 100})
		if err != nil {
			return err
		}
		for _, w := range workers {
			ends["worker "+w.ID] = w.AliveUntil.Time
		}
		list, err := r.Sessions(t.Context(), store.SessionQuery{Namespace: "default", Limit: 10})
		for _, s := range list {
			ends["session "+s.ID] = s.LeaseUntil.Time
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ends
}

// scene is the state before the clock jumps: a live worker with an activity in a session, a dead worker with a workflow
// task and an activity, a run in back-off, a run that waits for a timer, and a schedule.
type scene struct {
	t           testing.TB
	a, b        caller
	clock       *apptest.Clock
	lives, dead hand
	mine        handTask // the activity of the live worker
	runs        []string
	session     string
}

func newScene(t *testing.T, database string) *scene {
	t.Helper()
	a, b, clock := jumping(t, database)
	s := &scene{t: t, a: a, b: b, clock: clock, session: "s"}
	s.lives, s.dead = register(a, "lives", ""), register(b, "dead", "")
	run := func(id string) { s.runs = append(s.runs, a.start(id)) }
	run("in-session")
	s.lives.decide(s.lives.poll("workflow"), inSession(s.session))
	s.mine = s.lives.poll("activity")
	run("on-timer")
	s.lives.decide(s.lives.poll("workflow"), `{"type":"start_timer","delay_seconds":1800}`)
	run("backs-off")
	s.lives.decide(s.lives.poll("workflow"), strings.TrimSuffix(step, "}")+
		`,"retry_policy":{"max_attempts":5,"backoff_seconds":[600]}}`)
	failed := s.lives.poll("activity")
	s.lives.want(200, "POST", stepPath(failed, "fail"), s.lives.stepBody(failed, `,"failure":{"message":"not yet"}`))
	run("lost-activity")
	s.dead.decide(s.dead.poll("workflow"), step)
	s.dead.poll("activity")
	run("lost-task")
	s.dead.poll("workflow")
	a.want(201, "POST", "/api/schedules", `{"schedule_id":"each","spec":{"intervals":[{"every":"PT10M"}]},
		"action":{"workflow_type":"t","task_queue":"q"}}`)
	return s
}

// jump sets the clock and makes both apps read it.
func (s *scene) jump(by time.Duration) {
	s.t.Helper()
	s.clock.Set(by)
	for _, c := range []caller{s.a, s.b} {
		if _, err := c.app.Store().Now(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// unharmed completes the live worker's tasks and checks that the jump did not affect it: it still holds its activity
// and its session, and no attempt is repeated.
func (s *scene) unharmed() {
	s.t.Helper()
	got := s.lives.want(200, "POST", stepPath(s.mine, "heartbeat"), s.lives.stepBody(s.mine, ""))
	if got.body["can_continue"] != true {
		s.t.Errorf("heartbeat of the live worker: %s", got.raw)
	}
	session := s.b.want(200, "GET", "/api/worker-sessions/"+s.session, "")
	row, _ := session.body["session"].(map[string]any)
	if row == nil {
		row = session.body
	}
	if row["lease_owner"] != "lives" || row["status"] != "active" {
		s.t.Errorf("the session: %s", session.raw)
	}
	s.lives.want(200, "POST", stepPath(s.mine, "complete"), s.lives.stepBody(s.mine, `,"result":`+envelope(s.t, `1`)))
	for done := ""; done != "in-session"; { // tasks that became ready meanwhile may come first
		task := s.lives.poll("workflow")
		done = task.text("workflow_id")
		s.lives.decide(task, finish)
	}
	run := s.b.want(200, "GET", "/api/workflows/in-session/runs/"+s.runs[0]+"/history", "")
	for text, times := range map[string]int{
		`"ActivityCompleted"`: 1, `"ActivityRetryScheduled"`: 0, `"ActivityFailed"`: 0,
	} {
		if n := strings.Count(run.raw, text); n != times {
			s.t.Errorf("the history has %s %d times, want %d", text, n, times)
		}
	}
}

// reported checks that the debug view and the metrics of both apps show the jump.
func (s *scene) reported(way string) {
	s.t.Helper()
	for _, c := range []caller{s.a, s.b} {
		c.soon("/api/workflows/on-timer/debug", func(got response) bool {
			return strings.Contains(got.raw, "clock_jumped") && strings.Contains(got.raw, "clock went "+way+" by 1h0m0s")
		})
		metric := fmt.Sprintf(`sojourn_clock_jumps_total{direction=%q} 1`, way)
		if got := c.want(200, "GET", "/metrics", "").raw; !strings.Contains(got, metric) {
			s.t.Errorf("the metrics lack %s", metric)
		}
		jump, _ := c.want(200, "GET", "/api/sojourn/overview", "").body["clock_jump"].(map[string]any)
		if by, _ := jump["by_seconds"].(float64); jump["direction"] != way || by < 3595 || by > 3605 || jump["rows"] == nil {
			s.t.Errorf("the jump in the overview: %v", jump)
		}
	}
}

// After a jump back no lease, back-off or worker liveness ends later than its own length from now. The schedule's next
// time is recomputed, the timer keeps its time, and a live worker loses nothing.
func TestLeasesAndSchedulesFollowAClockSetBack(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		s := newScene(t, database)
		before := stored(t, s.a.app, s.session, s.runs...)
		if len(before) < 8 {
			t.Fatalf("the scene has %v", before)
		}
		s.jump(-time.Hour)
		now := s.clock.Now()
		for what, end := range stored(t, s.b.app, s.session, s.runs...) {
			if strings.HasPrefix(what, "timer") {
				if !end.Equal(before[what]) {
					t.Errorf("%s moved from %s to %s", what, before[what], end)
				}
				continue
			}
			most := leaseLength
			switch {
			case strings.HasPrefix(what, "delayed"):
				most = 600 * time.Second
			case strings.HasPrefix(what, "worker"):
				most = 2 * time.Minute
			}
			if end.After(now.Add(most)) {
				t.Errorf("%s ends %s from now, later than its length of %s", what, end.Sub(now), most)
			}
			if end.Before(now) {
				t.Errorf("%s ended %s ago", what, now.Sub(end))
			}
		}
		s.reported("back")
		s.a.soon("/api/schedules/each", func(got response) bool {
			return timeIn(t, got.body, "next_fire_at").Before(now.Add(11 * time.Minute))
		})
		if got := s.a.want(200, "GET", "/api/schedules/each/history", ""); strings.Count(got.raw, `"ScheduleRetimed"`) != 1 {
			t.Errorf("the schedule's history: %s", got.raw)
		}
		wait := s.a.want(200, "GET", "/api/workflows/on-timer", "")
		if !strings.Contains(wait.raw, "(database clock)") {
			t.Errorf("the wait for a timer: %s", wait.raw)
		}
		s.unharmed()
	})
}

// A jump forward longer than any lease expires no lease: each keeps its remaining time. Due timers fire, and a schedule
// fires once.
func TestLeasesSurviveAClockSetForward(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		s := newScene(t, database)
		s.jump(time.Hour)
		now := s.clock.Now()
		for what, end := range stored(t, s.b.app, s.session, s.runs...) {
			if strings.HasPrefix(what, "timer") || strings.HasPrefix(what, "delayed") || strings.HasPrefix(what, "ready") {
				continue
			}
			if end.Before(now) || end.After(now.Add(leaseLength)) {
				t.Errorf("%s ends %s from now", what, end.Sub(now))
			}
		}
		s.reported("forward")
		s.a.soon("/api/schedules/each", func(got response) bool { return got.body["fires_count"] == 1.0 })
		s.a.soon("/api/workflows/on-timer/runs/"+s.runs[1]+"/history", func(got response) bool {
			return strings.Count(got.raw, `"TimerFired"`) == 1
		})
		s.unharmed()
		for _, id := range []string{"lost-activity", "lost-task"} { // their leases have not expired
			got := s.b.want(200, "GET", "/api/workflows/"+id, "")
			if !strings.Contains(got.raw, `"lease_owner":"dead"`) && !strings.Contains(got.raw, "is running on worker dead") {
				t.Errorf("%s: %s", id, got.raw)
			}
		}
	})
}

// If the clock went back while no app ran, the next app to start detects the jump: stored times are ahead of the clock.
func TestAClockSetBackWhileNoAppRanIsDetectedAtStart(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		s := newScene(t, database)
		s.a.app.Stop()
		s.b.app.Stop()
		s.clock.Set(-time.Hour)
		late := apptest.Start(t, clockOptions(database, s.clock))
		if _, err := late.Store().Now(t.Context()); err != nil {
			t.Fatal(err)
		}
		now := s.clock.Now()
		for what, end := range stored(t, late, s.session, s.runs...) {
			if !strings.HasPrefix(what, "timer") && end.After(now.Add(11*time.Minute)) {
				t.Errorf("%s ends %s from now", what, end.Sub(now))
			}
		}
		caller{t, late, ""}.soon("/api/workflows/on-timer/debug", func(got response) bool {
			return strings.Contains(got.raw, "clock_jumped")
		})
		late.Stop()
		restarted := apptest.Start(t, clockOptions(database, s.clock))
		got := caller{t, restarted, ""}.want(200, "GET", "/api/workflows/on-timer/debug", "")
		if strings.Contains(got.raw, "clock_jumped") {
			t.Errorf("the jump was reported twice: %s", got.raw)
		}
	})
}

// The first request after a jump forward is decided with adjusted leases, whichever app detects the jump.
func TestTheFirstReportAfterAClockJumpFindsItsLease(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		s := newScene(t, database)
		s.clock.Set(time.Hour)
		s.unharmed()
	})
}

// After a jump back the clock reaches a time again that a schedule has fired. The schedule does not fire that time
// again and proceeds to the next one.
func TestScheduleTimeRepeatedByAClockJumpFiresOnce(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		s := newScene(t, database)
		s.jump(time.Hour)
		s.a.soon("/api/schedules/each", func(got response) bool { return got.body["fires_count"] == 1.0 })
		s.jump(0)
		repeated := s.a.soon("/api/schedules/each", func(got response) bool {
			return timeIn(t, got.body, "next_fire_at").Before(time.Now().Add(11 * time.Minute))
		})
		came := timeIn(t, repeated.body, "next_fire_at")
		s.jump(10 * time.Minute)
		s.a.soon("/api/schedules/each", func(got response) bool {
			return timeIn(t, got.body, "next_fire_at").After(came)
		})
		runs := s.a.want(200, "GET", "/api/workflows?workflow_type=t", "")
		if n := strings.Count(runs.raw, `"run_id"`); n != 1 {
			t.Errorf("%d runs: %s; history: %s", n, runs.raw, s.a.want(200, "GET", "/api/schedules/each/history", "").raw)
		}
	})
}
