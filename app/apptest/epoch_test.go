package apptest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
)

// The epoch of a session rises over the whole life of its ID, also if clean-up deleted its row and the clock of the
// next acquisition is earlier than that of the last: at another app, on PostgreSQL, that has cached the old epoch
// watermark. All kinds of acquisition are tested.
func TestAnEpochRisesAfterCleanUpWithAClockSetBack(t *testing.T) {
	for name, claim := range map[string]func(h hand, id string) float64{
		"by its verb": func(h hand, id string) float64 {
			got := h.want(201, "POST", "/api/worker/sessions", `{"worker_id":"`+h.id+`","session_id":"`+id+`"}`)
			return got.body["session"].(map[string]any)["epoch"].(float64)
		},
		"by a poll of a task in it": func(h hand, id string) float64 {
			h.start(h.id + "-" + id)
			h.decide(h.poll("workflow"), inSession(id))
			return h.poll("activity")["worker_session"].(map[string]any)["epoch"].(float64)
		},
		"by a task that is claimed by its id": func(h hand, id string) float64 {
			h.start(h.id + "-" + id)
			made := h.decide(h.poll("workflow"), inSession(id))
			task := made.body["created_task_ids"].([]any)[0].(string)
			got := taskOf(h.t, h.want(200, "POST", "/api/worker/activity-tasks/"+task+"/claim", `{"worker_id":"`+h.id+`"}`))
			return got["worker_session"].(map[string]any)["epoch"].(float64)
		},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Databases(t, func(t *testing.T, database string) {
				if database == "" {
					database = apptest.SQLite(t)
				}
				path, lite := strings.CutPrefix(database, "sqlite:")
				open := func(shift time.Duration) *apptest.App {
					return apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) {
						o.Open = func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
							open := sqldb.Options{App: id, Dispatch: d, Shift: func() time.Duration { return shift }}
							if lite {
								return sqlite.Open(ctx, path, open)
							}
							return postgres.Open(ctx, database, open)
						}
					}})
				}
				hire := func(a *apptest.App, id string) hand { return register(caller{t, a, ""}, id, "") }
				const ahead = time.Hour
				var first, back *apptest.App
				if lite {
					first = open(ahead)
				} else {
					first, back = open(ahead), open(0)
					claim(hire(back, "early"), "other") // this app read the watermark before it was set
				}
				epoch := claim(hire(first, "w1"), "s")
				first.Stop()
				later := open(ahead + 10*time.Minute)
				key := engine.SessionKey{Namespace: "default", ID: "s"}
				c := caller{t, later, ""}
				c.want(200, "DELETE", "/api/worker/registrations/w1", "")
				c.ask("POST", "/api/workflows/w1-s/terminate", `{}`) // the run w1-s may not exist
				if err := later.Broker().CleanUp(t.Context(), []engine.SessionKey{key}); err != nil {
					t.Fatal(err)
				}
				c.want(404, "GET", "/api/worker-sessions/s", "")
				later.Stop()
				if lite {
					back = open(0)
				}
				if second := claim(hire(back, "w2"), "s"); second <= epoch {
					t.Errorf("epoch %.0f after %.0f", second, epoch)
				}
			})
		})
	}
}
