package bench

import (
	"context"
	"os"
	"testing"

	"github.com/rs/zerolog"
)

// An activity of 1,000 at once is 3.1 rows: it scheduled, leased and ended, while events share theirs. The least of a
// few measurements counts, since a task that finds no poll free is written once more.
func TestAnActivityOfAThousandAtOnceIsFewRows(t *testing.T) {
	stores := map[string]string{"sqlite": ""}
	if url := os.Getenv("SOJOURN_TEST_POSTGRES"); url != "" {
		stores["postgres"] = url
	}
	for kind, url := range stores {
		t.Run(kind, func(t *testing.T) {
			n, err := openNode(t.Context(), nodeOptions{store: kind, postgres: url, worker: "in-process", log: zerolog.Nop()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := n.close(); err != nil {
					t.Error(err)
				}
			}()
			c := watch(&n.app.Dispatch().Hub)
			defer c.stop()
			const wide, atMost = 1000, 4
			least := 0.0
			for i := 0; i < 3 || i < 10 && least > atMost; i++ {
				before := n.app.Store().Stats().Rows
				if err := c.wide(context.Background(), n, wide); err != nil {
					t.Fatal(err)
				}
				if rows := float64(n.app.Store().Stats().Rows-before) / wide; i == 0 || rows < least {
					least = rows
				}
			}
			if t.Logf("%.2f rows an activity", least); least > atMost {
				t.Errorf("%.2f rows an activity, want at most %d", least, atMost)
			}
		})
	}
}
