package apptest_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
)

func TestRetentionRemovesWhatClosedLongAgoAndFreesItsId(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	open := func(shift time.Duration) *apptest.App {
		return apptest.Start(t, apptest.Options{Change: func(o *app.Options) {
			o.Open = func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
				return sqlite.Open(ctx, path, sqldb.Options{App: "app", Dispatch: d, Shift: func() time.Duration { return shift }})
			}
		}})
	}
	a := open(0)
	c := caller{t, a, ""}
	for _, id := range []string{"closed", "open"} {
		c.want(201, "POST", "/api/workflows", `{"workflow_id":"`+id+`","workflow_type":"t"}`)
	}
	c.want(200, "POST", "/api/workflows/closed/terminate", `{"request_id":"r"}`)
	if got := c.want(200, "POST", "/api/system/retention/pass", `{}`); got.body["pruned"] != 0.0 {
		t.Errorf("at once: %s", got.raw)
	}
	a.Stop()
	c = caller{t, open(31 * 24 * time.Hour), ""}
	if got := c.want(200, "GET", "/api/system/retention", ""); got.body["expired_run_count"] != 1.0 || got.body["retention_days"] != 30.0 {
		t.Errorf("status: %s", got.raw)
	}
	if got := c.want(200, "POST", "/api/system/retention/pass", `{}`); got.body["pruned"] != 1.0 || got.body["skipped"] != 0.0 {
		t.Errorf("pass: %s", got.raw)
	}
	c.want(404, "GET", "/api/workflows/closed", "")
	c.want(200, "GET", "/api/workflows/open", "")
	c.want(201, "POST", "/api/workflows", `{"workflow_id":"closed","workflow_type":"t"}`)
}
