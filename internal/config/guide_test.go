package config

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheDefaults(t *testing.T) {
	c, _, _, err := load(t, Any, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	logs, _ := find("activity-log-age")
	docnumbers.In(t, "guide/postgresql.md", "`postgres-pool` ({}) is the maximum number of connections", c.PostgresPool)
	docnumbers.In(t, "guide/deploy.md", "All of it takes at most `drain-timeout`, {}, of which", c.DrainTimeout)
	docnumbers.In(t, "guide/deploy.md", "its leases last {} (`attempt-lease`, `session-lease`)", c.AttemptLease)
	docnumbers.In(t, "guide/sizing.md", "`sockets-per-token` ({}): one more is rejected with `too_many_connections`", c.MaxSockets)
	docnumbers.In(t, "guide/sizing.md", "An app holds at most `max-polls` ({}) polls of workers over HTTP", c.MaxPolls)
	docnumbers.In(t, "guide/runs.md", "removed after `activity-log-age` ({}) already", c.ActivityLogAge)
	if c.SessionLease != c.AttemptLease {
		t.Errorf("a session is leased for %s, an attempt for %s", c.SessionLease, c.AttemptLease)
	}
	docnumbers.In(t, "guide/runs.md", "Audit entries are removed after `audit-log-age` ({}).", c.AuditLogAge)
	docnumbers.In(t, "guide/activities.md", "`activity-log-age`, a setting of the app, `{}`;", logs.value)
	docnumbers.In(t, "guide/workflows-in-go.md", "(`sticky-cache-size`, {} unless set, says how many", c.StickyCacheSize)
	docnumbers.In(t, "guide/command-line.md", "The commands call the app at `--app-url` (`SOJOURN_APP_URL`, `{}`)", c.AppURLs[0])
	docnumbers.In(t, "guide/command-line.md", "in `--namespace` (`SOJOURN_NAMESPACE`, `{}`).", c.Namespace)

	app, _, _, err := load(t, App, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	docnumbers.In(t, "guide/deploy.md", "after its lease, {} unless it registered `attempt_lease_seconds` | it extends", app.AttemptLease)
}
