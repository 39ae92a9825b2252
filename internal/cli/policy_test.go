package cli_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

const children = 5

func registerParents(r *worker.Registry) {
	r.Workflow("policy.parent", func(ctx workflow.Context, name string) error {
		for i := range children {
			workflow.StartChild(workflow.WithChild(ctx, workflow.ChildOptions{
				WorkflowID: childOf(name, i), Queue: "nobody", ParentClose: workflow.TerminateHard,
			}), "policy.child")
		}
		return workflow.Signal(ctx, "go").Receive(ctx, nil)
	})
}

func childOf(parent string, i int) string { return fmt.Sprintf("%s-child-%d", parent, i) }

// An app is killed while parents close, until it dies between the end of a parent and the application of the close
// policy. The next app applies the policy to the children.
func TestTheClosePolicyOutlivesAKilledApp(t *testing.T) {
	onDatabases(t, "killed", func(p *plant) {
		t := p.t
		p.begin("A", env{})
		database := p.fleet.app["SOJOURN_DATABASE_URL"]
		if database == "" {
			database = "sqlite:" + filepath.Join(p.fleet.app["SOJOURN_DATA_DIR"], "sojourn.db")
		}
		owed := 0
		for round := 0; owed == 0; round++ {
			if round == 20 {
				t.Fatal("no app died between the end of a parent and that of its children")
			}
			var parents []string
			for i := range 20 {
				parents = append(parents, fmt.Sprintf("parent-%d-%d", round, i))
			}
			each := func(do func(id string)) {
				var all sync.WaitGroup
				for _, id := range parents {
					all.Go(func() { do(id) })
				}
				all.Wait()
			}
			each(func(id string) { p.waits(id, p.client.start(id, "policy.parent", id).RunID) })
			var signals sync.WaitGroup
			for _, id := range parents {
				signals.Go(func() { // an app that dies loses some of them
					ctx, cancel := context.WithTimeout(t.Context(), ceiling)
					defer cancel()
					_, _, _ = p.client.call(ctx, "POST", "/api/workflows/"+id+"/signal/go", map[string]any{})
				})
			}
			until(t, "a parent has ended", func() bool {
				for _, id := range parents {
					if p.client.describe(id).Status == "completed" {
						return true
					}
				}
				return false
			})
			p.app.kill()
			signals.Wait()
			owed = unpaid(t, database, parents)
			t.Logf("round %d: %d children of parents that had ended were open", round, owed)
			p.app = launch(t, p.dir, p.fleet.app, "app")
			p.client.up()
			each(func(id string) {
				ctx, cancel := context.WithTimeout(t.Context(), ceiling)
				defer cancel()
				// the signal may have arrived
				_, _, _ = p.client.call(ctx, "POST", "/api/workflows/"+id+"/signal/go", map[string]any{})
			})
			each(func(id string) {
				until(t, id+" and its children have ended", func() bool {
					if p.client.describe(id).Status != "completed" {
						return false
					}
					for i := range children {
						if p.client.describe(childOf(id, i)).Status != "terminated" {
							return false
						}
					}
					return true
				})
			})
		}
	})
}

// unpaid counts the open children of closed parents, as seen by an app without background work.
func unpaid(t *testing.T, database string, parents []string) (n int) {
	t.Helper()
	a := apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) { o.ManualTime = true }})
	defer a.Stop()
	c := client{t: t, base: a.URL()}
	for _, id := range parents {
		if c.describe(id).Status != "completed" {
			continue
		}
		for i := range children {
			if c.describe(childOf(id, i)).Status != "terminated" {
				n++
			}
		}
	}
	return n
}
