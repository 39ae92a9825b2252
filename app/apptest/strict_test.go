package apptest_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// Requirements of strictly typed SDKs of the worker protocol, tested without such an SDK.

// A session's task has the session's queue and end, also if the session was created without either: such clients reject
// a session that lacks them, or whose end changes.
func TestATaskOfASessionNamesItsQueueAndItsEnd(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		w := register(c, "w", "")
		schedule := func(session string) string {
			return `{"type":"schedule_activity","activity_type":"step","queue":"` + handQueue + `",` + session + `}`
		}
		for id, s := range map[string]struct {
			member string
			ttl    time.Duration // 0: as good as for ever
		}{
			"named":    {`"session_id":"named"`, 0},
			"no-queue": {`"worker_session":{"session_id":"no-queue"}`, 30 * time.Minute},
			"with-queue": {
				`"worker_session":{"session_id":"with-queue","queue":"` + handQueue + `","ttl_seconds":600}`, 10 * time.Minute,
			},
		} {
			c.start(id)
			w.decide(w.poll("workflow"), schedule(s.member), schedule(s.member))
			first := w.poll("activity")
			session := sessionOf(t, first)
			beat := sessionOf(t, c.want(200, "POST", stepPath(first, "heartbeat"), w.stepBody(first, "")).body)
			c.want(200, "POST", stepPath(first, "complete"), w.stepBody(first, ""))
			second := w.poll("activity")
			for what, got := range map[string]handTask{"first": session, "heartbeat": beat, "second": sessionOf(t, second)} {
				if got.text("session_id") != id || got.text("queue") != handQueue || got.text("status") != "active" ||
					got.text("lease_owner") != "w" {
					t.Errorf("%s: the session of the %s: %v", id, what, got)
				}
				if got.text("ttl_expires_at") != session.text("ttl_expires_at") {
					t.Errorf(
						"%s: the end moved from %s to %s by the %s", id, session.text("ttl_expires_at"), got.text("ttl_expires_at"), what,
					)
				}
				lease, end := moment(t, got, "lease_expires_at"), moment(t, got, "ttl_expires_at")
				if !lease.After(time.Now()) || lease.After(end) {
					t.Errorf("%s: the %s's lease is to end at %s, the session at %s", id, what, lease, end)
				}
				switch left := time.Until(end); {
				case s.ttl == 0 && left < 50*365*24*time.Hour, s.ttl > 0 && (left > s.ttl || left < s.ttl-time.Minute):
					t.Errorf("%s: the session is to end in %s", id, left)
				}
			}
			c.want(200, "POST", stepPath(second, "complete"), w.stepBody(second, ""))
			w.decide(w.poll("workflow"), finish)
		}
	})
}

func sessionOf(t testing.TB, in map[string]any) handTask {
	t.Helper()
	s, ok := in["worker_session"].(map[string]any)
	if !ok {
		t.Fatalf("no session in %v", in)
	}
	return s
}

func moment(t testing.TB, in handTask, member string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, in.text(member))
	if err != nil {
		t.Fatalf("%s: %v", member, err)
	}
	return at
}

func TestTimedOutRunNamesItsTimeout(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		w := register(c, "w", "")
		for limit, members := range map[string]string{
			"run_timeout":       `"run_timeout_seconds":1,"execution_timeout_seconds":60`,
			"execution_timeout": `"execution_timeout_seconds":1`,
		} {
			c.want(
				201, "POST", "/api/workflows",
				`{"workflow_id":"`+limit+`","workflow_type":"flow","task_queue":"`+handQueue+`",`+members+`}`,
			)
			w.decide(w.poll("workflow"), `{"type":"start_timer","delay_seconds":600}`)
			var s response
			until(t, limit+" ends the run", func() bool {
				s = c.want(200, "GET", "/api/workflows/"+limit, "")
				return s.body["is_terminal"] == true
			})
			if s.text("reason") != limit {
				t.Errorf("%s: %s", limit, s.raw)
			}
		}
		c.start("refused")
		w.decide(w.poll("workflow"), `{"type":"fail_workflow","message":"no"}`)
		if s := c.want(200, "GET", "/api/workflows/refused", ""); s.body["is_terminal"] != true || s.body["reason"] != nil {
			t.Errorf("a run that failed by itself: %s", s.raw)
		}
	})
}
