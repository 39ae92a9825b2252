package broker_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A killed worker does not deregister. While it is not stale, a worker with other code cannot register under its worker
// ID; afterwards it can.
func TestOtherCodeWaitsUntilTheWorkerIsStale(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "definition.db")
			synctest.Test(t, func(t *testing.T) {
				d := dispatch.New(dispatch.Options{})
				db, err := sqlite.Open(t.Context(), path, sqldb.Options{App: "a", Dispatch: d})
				if err != nil {
					t.Fatal(err)
				}
				b := broker.New(db, d, broker.Options{Release: "1", App: "a", Shared: shared})
				d.Bind(db, nil, nil)
				register := func(app *broker.Broker, code string, want protocol.Reason) {
					t.Helper()
					_, err := app.Register(t.Context(), protocol.RegisterRequest{
						WorkerID: "w", TaskQueue: "q", WorkflowTypes: []string{"wf"}, Fingerprints: map[string]string{"wf": code},
					})
					if got := protocol.ReasonOf(err); got != want || err != nil && want == "" {
						t.Errorf("code %s: %v, want %q", code, err, want)
					}
				}
				register(b, "1", "")
				time.Sleep(59 * time.Second)
				register(b, "2", protocol.ReasonDefinitionChanged)
				if _, err := b.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{WorkerID: "w"}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(59 * time.Second)
				register(b, "2", protocol.ReasonDefinitionChanged)
				time.Sleep(2 * time.Second)
				register(b, "2", "")
				// An app that received no heartbeat of the worker uses the stored heartbeat if several apps share the
				// database. If the app is alone, it has restarted, so no worker is alive yet.
				other := broker.New(db, d, broker.Options{Release: "1", App: "b", Shared: shared})
				if shared {
					register(other, "3", protocol.ReasonDefinitionChanged)
					time.Sleep(121 * time.Second)
				}
				register(other, "3", "")
				b.Drain()
				b.Close()
				other.Close()
				if err := d.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
