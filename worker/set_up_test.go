package worker_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// defined counts the set-ups and tear-downs of sessions.
type defined struct{ setUps, tearDowns atomic.Int32 }

// define registers a session definition whose set-up takes longer than the StartToClose timeout of the activities, and
// a workflow that runs two activities concurrently and then a third one, all in one session. The workflow's argument
// selects how that session begins.
func (d *defined) define(o *worker.Options, takes time.Duration) {
	o.Registry.Session("slow", activity.SessionDefinition{
		SetUp: func(_ context.Context, text string) (*string, error) {
			d.setUps.Add(1)
			time.Sleep(takes)
			return &text, nil
		},
		TearDown: func(context.Context, *string) error { d.tearDowns.Add(1); return nil },
	})
	o.Registry.Activity("state", func(ctx context.Context) (string, error) {
		s, err := activity.State[*string](ctx)
		if err != nil {
			return "", err
		}
		return *s, nil
	})
	o.Registry.Workflow("defined", func(ctx workflow.Context, kind string) (string, error) {
		ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: time.Second})
		def := workflow.SessionDefinition{Name: "slow", Arguments: []any{"loaded"}}
		inside := workflow.InSession(ctx, "s", def)
		switch kind {
		case "options":
			inside = workflow.WithActivity(ctx, workflow.ActivityOptions{
				WorkerSession: &workflow.WorkerSession{ID: "o", MaxActivities: 2}, SessionDefinition: &def,
			})
		case "started":
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{Definition: &def})
			if err != nil {
				return "", err
			}
			inside = workflow.InSession(ctx, s.ID)
		}
		a, b := workflow.ExecuteActivity(inside, "state"), workflow.ExecuteActivity(inside, "state")
		all := ""
		for _, f := range []workflow.Future{a, b, nil} {
			if f == nil {
				f = workflow.ExecuteActivity(inside, "state")
			}
			got, err := workflow.Await[string](ctx, f)
			if err != nil {
				return "", err
			}
			all += got + " "
		}
		return all, nil
	})
}

// The set-up of a session runs once, over every transport and on both databases, however the session begins. It takes
// longer than the timeout of its activities.
func TestASessionIsSetUpOnceOverEveryTransport(t *testing.T) {
	for way, carrier := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			apptest.Databases(t, func(t *testing.T, database string) {
				a := apptest.Start(t, apptest.Options{Database: database})
				var d defined
				start(t, a, carrier(a), func(o *worker.Options) { d.define(o, 1200*time.Millisecond) })
				for i, kind := range []string{"implicit", "options", "started"} {
					last := run(t, a, "defined", kind)
					if got := result[string](t, last); got != "loaded loaded loaded " {
						t.Errorf("%s: the result is %q", kind, got)
					}
					if n := d.setUps.Load(); int(n) != i+1 {
						t.Errorf("%s: %d set-ups", kind, n)
					}
				}
				for _, id := range []string{"s", "o"} {
					_, err := a.Broker().OperateSession(t.Context(), protocol.SessionOperation{
						SessionID: id, Verb: "migrate", Identity: "operator", Force: true,
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				eventually(t, "tear-downs", func() bool { return d.tearDowns.Load() == 3 })
			})
		})
	}
}

// An activity run sets up its session in the same way as an activity of a workflow.
func TestAnActivityRunSetsItsSessionUp(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		var d defined
		start(t, a, ways["socket"](a), func(o *worker.Options) { d.define(o, 0) })
		for i := range 2 {
			run, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{
				ActivityType: "state", ActivityOptions: protocol.ActivityOptions{
					SessionID: "s", SessionDefinition: &protocol.ActivitySession{
						Name: "slow", Arguments: json.RawMessage(`["loaded"]`),
					},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := result[string](t, end(t, a, run.RunID)); got != "loaded" {
				t.Errorf("the result is %q", got)
			}
			setUps := 0
			for _, e := range events(t, a, run.RunID) {
				if _, ok := e.Data.(*history.SessionSetUp); ok {
					setUps++
				}
			}
			if setUps != 1-i {
				t.Errorf("run %d has %d events of set-ups", i, setUps)
			}
		}
	})
}
