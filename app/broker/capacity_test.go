package broker_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Capacity excludes slots of workers that the release gate blocks, also at an app that does not receive their
// heartbeats.
func TestCapacityCountsOnlyWorkersThatTheGateAdmits(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := twoApps(t, database)
		apps := map[string]*app{"the app that receives their heartbeats": a, "the other app": b}
		join := func(id, release string, activities int) {
			t.Helper()
			must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
				WorkerID: id, Incarnation: id, Release: release, Gated: true, TaskQueue: "default", AnyActivity: true,
				WorkflowTypes: []string{"wf"}, ActivitySlots: &activities, WorkflowSlots: &activities,
			}))
		}
		join("ours", "test", 3)
		join("older", "0.9.0", 40)
		join("newer", "9.0.0", 500)
		for name, at := range apps {
			at.eventually("it looked which releases are served", func() bool { return len(at.Membership().Releases()) > 0 })
			q := must[protocol.QueueState](t)(at.Queue(t.Context(), "", "default")).Admission
			for kind, c := range map[string]protocol.TaskAdmission{"workflow": q.Workflow, "activity": q.Activity} {
				if c.Slots != 3 || c.ActiveWorkers != 1 || c.AvailableSlots != 3 {
					t.Errorf("%s, %s: %d slots of %d workers, %d available", name, kind, c.Slots, c.ActiveWorkers, c.AvailableSlots)
				}
			}
		}
	})
}
