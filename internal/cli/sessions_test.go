package cli_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A session whose state was lost at its owner shows the reason to programs and people: in its details, in lists and in
// its timeline, until it is acquired again. A session that was only released shows no reason.
func TestFailedSessionShowsItsReason(t *testing.T) {
	onDatabases(t, "failed", func(p *plant) {
		t, c := p.t, p.client
		c.must(http.MethodPost, "/api/worker/register", map[string]any{
			"worker_id": "w", "task_queue": "default", "runtime": "external", "supported_activity_types": []string{"step"},
			"capabilities": []string{"worker_sessions"}, "max_concurrent_worker_sessions": 2,
		}, nil)
		const cause = "the browser was killed: out of memory"
		for id, failed := range map[string]string{"died": cause, "given-up": ""} {
			c.must(http.MethodPost, "/api/worker/sessions", map[string]any{"worker_id": "w", "session_id": id}, nil)
			c.must(http.MethodPost, "/api/worker/sessions/"+id+"/release", map[string]any{
				"worker_id": "w", "failed": failed,
			}, nil)
		}
		shell := shell{t, p.dir, env{"SOJOURN_APP_URL": c.base, "SOJOURN_TOKEN": c.token}}
		compare := func(id string) {
			var got, printed struct{ Session protocol.SessionView }
			c.must(http.MethodGet, "/api/worker-sessions/"+id, nil, &got)
			shell.read(&printed, "sessions", "describe", id)
			for _, v := range []protocol.SessionView{got.Session, printed.Session} {
				reason := ""
				if v.FailureReason != nil {
					reason = *v.FailureReason
				}
				if id == "died" && (v.Status != protocol.SessionFailed || reason != cause || v.EndedReason != cause) {
					t.Errorf("%s is %s for %q, ended for %q", id, v.Status, reason, v.EndedReason)
				}
				if id != "died" && (v.Status == protocol.SessionFailed || reason != "") {
					t.Errorf("%s is %s for %q", id, v.Status, reason)
				}
			}
		}
		compare("died")
		compare("given-up")
		for _, typed := range [][]string{{"sessions", "describe", "died"}, {"sessions", "timeline", "died"}} {
			if out := shell.try(0, cause, typed...); !strings.Contains(out, "failed") {
				t.Errorf("%v says %s", typed, out)
			}
		}
		var failed struct{ Sessions []protocol.SessionView }
		c.must(http.MethodGet, "/api/worker-sessions?status=failed", nil, &failed)
		if l := failed.Sessions; len(l) != 1 || l[0].SessionID != "died" || l[0].FailureReason == nil ||
			*l[0].FailureReason != cause {
			t.Errorf("those that failed are %+v", l)
		}
		c.must(http.MethodPost, "/api/worker/sessions", map[string]any{"worker_id": "w", "session_id": "died"}, nil)
		var second struct{ Session protocol.SessionView }
		c.must(http.MethodGet, "/api/worker-sessions/died", nil, &second)
		if v := second.Session; v.Status != protocol.SessionActive || v.FailureReason != nil {
			t.Errorf("once it is claimed again it is %s for %v", v.Status, v.FailureReason)
		}
	})
}

// After an operator forgets an ended session, its ID can be used again, under a higher epoch. Forgetting is audited,
// and refused while the session has not ended or its last lease is live.
func TestForgottenSessionIDIsReusable(t *testing.T) {
	onDatabases(t, "forgotten", func(p *plant) {
		t, c := p.t, p.client
		c.must(http.MethodPost, "/api/worker/register", map[string]any{
			"worker_id": "w", "task_queue": "default", "runtime": "external", "supported_activity_types": []string{"step"},
			"capabilities": []string{"worker_sessions"}, "max_concurrent_worker_sessions": 2,
		}, nil)
		shell := shell{t, p.dir, env{"SOJOURN_APP_URL": c.base, "SOJOURN_TOKEN": c.token}}
		create := map[string]any{"worker_id": "w", "session_id": "device"}
		var first, second struct{ Session protocol.SessionView }
		c.must(http.MethodPost, "/api/worker/sessions", create, &first)
		shell.try(1, "session device has not ended; close it first", "sessions", "forget", "device")
		shell.try(0, "closed device", "sessions", "close", "device")
		shell.try(1, "worker w may use session device until its lease ends", "sessions", "forget", "device")
		shell.try(0, "forgotten device", "sessions", "forget", "device", "--force", "--reason", "closed by mistake")
		shell.try(1, "session device not found", "sessions", "forget", "device", "--force")
		c.must(http.MethodPost, "/api/worker/sessions", create, &second)
		if second.Session.Epoch <= first.Session.Epoch || second.Session.Status != protocol.SessionActive {
			t.Errorf("the session is %s under epoch %d, after epoch %d", second.Session.Status, second.Session.Epoch, first.Session.Epoch)
		}
		timeline := shell.try(0, "", "sessions", "timeline", "device")
		if !strings.Contains(timeline, "forgotten: closed by mistake") {
			t.Errorf("its timeline lacks the entry of forgetting it: %s", timeline)
		}
		var audit struct{ Entries []struct{ Action string } }
		c.must(http.MethodGet, "/api/audit", nil, &audit)
		forgets := 0
		for _, e := range audit.Entries {
			if e.Action == "session.forget" {
				forgets++
			}
		}
		if forgets != 1 {
			t.Errorf("the audit log has %+v, want one session.forget", audit.Entries)
		}
	})
}
