package cli_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
)

func registerLastHeartbeat(r *worker.Registry) {
	r.Activity("heartbeat.resume", resumeItem)
	r.Activity("heartbeat.isolated", resumeItem, activity.Isolated)
}

// resumeItem reports a position and then lasts until its worker is killed; the next attempt returns the position that
// it finds.
func resumeItem(ctx context.Context, position int) (int, error) {
	if last, ok, err := activity.LastHeartbeat[int](ctx); ok || err != nil {
		return last, err
	}
	if err := activity.Heartbeat(ctx, position); err != nil {
		return 0, err
	}
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

// A worker is killed (SIGKILL) after the app has acknowledged a heartbeat, and so is the app. The next attempt, which
// another worker runs at a restarted app or at another one, receives the details. The link and the kind of the activity
// make no difference.
func TestHeartbeatDetailsSurviveAKilledWorkerAndAKilledApp(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
			f.worker["SOJOURN_TOKEN"], f.client.token = f.app["SOJOURN_TOKEN"], f.app["SOJOURN_TOKEN"]
			if kind == "postgres" {
				f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
			}
			p := &plant{fleet: f, node: map[string]*process{}}
			p.app = launch(t, f.dir, f.app, "app")
			f.client.up()
			types := map[string]string{"socket": "heartbeat.resume", "http": "heartbeat.isolated"}
			for link := range types {
				p.begin("first-"+link, env{"SOJOURN_LINK": link, "SOJOURN_QUEUES": link, "SOJOURN_ISOLATION": "auto"})
			}
			runs := map[string]string{}
			for link, typ := range types {
				var a protocol.ActivityResponse
				p.client.must(http.MethodPost, "/api/sojourn/activities", map[string]any{
					"workflow_id": link, "activity_type": typ, "input": []any{17}, "task_queue": link,
				}, &a)
				runs[link] = a.RunID
			}
			for link := range types {
				until(t, "the app has the position", func() bool {
					v := p.client.describe(link)
					return v.Pending != nil && len(v.Pending.Activities) == 1 && len(v.Pending.Activities[0].Progress) > 0
				})
			}
			p.app.kill()
			for link := range types {
				p.node["first-"+link].kill()
			}
			base := p.client.base
			if kind == "postgres" {
				_, base = p.another("app-2", address(t))
				p.client.base = base
			} else {
				p.app = launch(t, f.dir, f.app, "app")
				f.client.up()
			}
			p.begin("second", env{"SOJOURN_QUEUES": "socket,http", "SOJOURN_APP_URL": base, "SOJOURN_ISOLATION": "auto"})
			for link, run := range runs {
				var at int
				all := p.client.completed(link, run)
				out := all[len(all)-1].Data.(*history.WorkflowCompleted).Output
				if err := payload.Decode(payload.Payload{Blob: out}, &at); err != nil || at != 17 {
					t.Errorf("%s: the next attempt found %d, %v", link, at, err)
				}
			}
		})
	}
}
