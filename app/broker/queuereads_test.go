package broker_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// What counts all tasks or all runs of a namespace is read once for everybody who asks, as long as nothing changes:
// fifty who ask for the queues cost what fifty cost who ask for builds, of which no task is counted, and one reading
// more. Who asks after a change is told of it all the same.
func TestTasksAreCountedOnceForAllWhoAsk(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		const asked = 50
		reads := func(ask func()) int64 {
			before := a.store.Stats().Reads
			for range asked {
				ask()
			}
			return a.store.Stats().Reads - before
		}
		for n := 1; n <= 3; n++ {
			a.start(string(rune('a' + n)))
			q := must[protocol.QueueState](t)(a.Queue(t.Context(), "", "default"))
			if q.Stats.Workflow.Ready != 1 {
				t.Errorf("after start %d, with the tasks before taken, %d are ready", n, q.Stats.Workflow.Ready)
			}
			a.poll("w", protocol.KindWorkflow, 0)
			q = must[protocol.QueueState](t)(a.Queue(t.Context(), "", "default"))
			if q.Stats.Workflow.Ready != 0 || q.Stats.Workflow.Leased != n {
				t.Errorf("with %d taken: %+v", n, q.Stats.Workflow)
			}
			if o := must[protocol.Overview](t)(a.Tally(t.Context(), "")); o.Counts["runs"]["running"] != n {
				t.Errorf("after %d starts the runs are %v", n, o.Counts["runs"])
			}
		}
		servers := reads(func() { must[protocol.BuildRollout](t)(a.BuildIDs(t.Context(), "", "default")) })
		for name, ask := range map[string]func(){
			"queues": func() { must[protocol.QueuePage](t)(a.Queues(t.Context(), protocol.QueueList{})) },
			"builds": func() { must[bool](t)(a.Manned(t.Context(), "", "default", "b")) },
		} {
			most := servers + 5 // a second may pass, and then it is counted anew
			if name == "queues" && database != "" && !strings.HasPrefix(database, "sqlite") {
				most += asked // the questions that wait, which are few and told by no commit
			}
			if n := reads(ask); n > most {
				t.Errorf("%d who ask for %s cost %d reads, those of who serves them %d", asked, name, n, servers)
			}
		}
		for name, ask := range map[string]func(){
			"overview": func() { must[protocol.Overview](t)(a.Overview(t.Context(), "")) },
			"metrics":  func() { must[protocol.Overview](t)(a.Tally(t.Context(), "")) },
			"order":    func() { must[protocol.QueueOrder](t)(a.Order(t.Context(), "", "default")) },
		} {
			if n := reads(ask); n > asked {
				t.Errorf("%d who ask for %s cost %d reads", asked, name, n)
			}
		}
	})
}
