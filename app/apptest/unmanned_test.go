package apptest_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// Promoting a build that no worker has, for example by a typo, pins every new run to it. The response has a warning.
func TestPromotingAnUnknownBuildCausesAWarning(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		register(c, "w", `,"build_id":"v1"`)
		const path = "/api/task-queues/" + handQueue + "/build-ids/promote"
		if s := c.want(200, "POST", path, `{"build_id":"v1"}`); s.body["warning"] != nil {
			t.Errorf("a build that has a worker: %s", s.raw)
		}
		if s := c.want(200, "POST", path, `{"build_id":"v11"}`); !strings.Contains(
			s.text("warning"), "no live worker of queue "+handQueue+" has build v11",
		) {
			t.Errorf("a build that has none: %s", s.raw)
		}
		if s := c.want(200, "POST", "/api/deployments/default%2F"+handQueue+"@v12/promote", ""); !strings.Contains(
			s.text("warning"), "v12",
		) {
			t.Errorf("as a deployment: %s", s.raw)
		}
		c.want(200, "POST", "/api/sojourn/fleet/drain", `{"worker_id":"w"}`)
		if s := c.want(200, "POST", path, `{"build_id":"v1"}`); !strings.Contains(
			s.text("warning"), "all live workers of queue "+handQueue+" with build v1 are draining",
		) {
			t.Errorf("a build whose only worker is drained: %s", s.raw)
		}
	})
}
