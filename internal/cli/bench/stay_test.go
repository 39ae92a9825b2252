package bench

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/rs/zerolog"
)

// A filled database is measured again without changes, and a database whose filling was interrupted is filled again.
func TestAFilledDatabaseServesAnotherDay(t *testing.T) {
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			server := os.Getenv("SOJOURN_TEST_POSTGRES")
			if kind == "postgres" && server == "" {
				t.Skip("SOJOURN_TEST_POSTGRES is not set")
			}
			o := Options{Postgres: server, Data: t.TempDir(), Log: zerolog.Nop()}
			const size = 40
			open := func(prepare func(context.Context, *node, int, func(int)) error) (there int, err error) {
				g := growing{of: "runs", prepare: prepare, stays: true}
				n, err := g.openNode(t.Context(), kind, size, o, func(int) {})
				if err != nil {
					return 0, err
				}
				counts, err := n.app.View().RunCounts(t.Context(), keptNamespace)
				for _, n := range counts.Runs {
					there += n
				}
				return there, errors.Join(err, n.close())
			}
			if _, err := open(func(ctx context.Context, n *node, size int, report func(int)) error {
				return errors.Join(createRuns(ctx, n, size/2, report), errors.New("cut off"))
			}); err == nil {
				t.Fatal("it was not cut off")
			}
			if there, err := open(createRuns); err != nil || there != size {
				t.Fatalf("%d runs, %v", there, err)
			}
			there, err := open(func(context.Context, *node, int, func(int)) error { return errors.New("filled again") })
			if err != nil || there != size {
				t.Errorf("%d runs, %v", there, err)
			}
		})
	}
}
