package bench

import (
	"os"
	"runtime"
	"testing"

	"github.com/rs/zerolog"
)

// onStores runs a test on each available database, with an app and a worker in its process.
func onStores(t *testing.T, test func(t *testing.T, kind string, n *node)) {
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			url := os.Getenv("SOJOURN_TEST_POSTGRES")
			if kind == "postgres" && url == "" {
				t.Skip("SOJOURN_TEST_POSTGRES is not set")
			}
			n, err := openNode(t.Context(), nodeOptions{
				store: kind, postgres: url, worker: "in-process", sessions: 1000, more: registerTurns, log: zerolog.Nop(),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := n.close(); err != nil {
					t.Error(err)
				}
			}()
			test(t, kind, n)
		})
	}
}

// spent returns the costs of each operation of run: rows written, candidates for leases, and allocations of the
// process.
func (n *node) spent(t *testing.T, ops float64, run func() error) (rows, candidates, allocs float64) {
	t.Helper()
	runtime.GC()
	var before, after runtime.MemStats
	stats := n.app.Store().Stats()
	runtime.ReadMemStats(&before)
	if err := run(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	now := n.app.Store().Stats()
	return float64(now.Rows-stats.Rows) / ops, float64(now.Candidates-stats.Candidates) / ops,
		float64(after.Mallocs-before.Mallocs) / ops
}
