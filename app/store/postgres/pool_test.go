package postgres_test

import (
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// A store opens at most the configured number of connections, however many callers read at once, and works with the
// minimum.
func TestAStoreOpensNoMoreConnectionsThanItsPool(t *testing.T) {
	for _, pool := range []int{4, 6} {
		url := database(t)
		s, err := postgres.Open(t.Context(), url, sqldb.Options{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		w := &storetest.Fixture{T: t, S: s, Queue: storetest.Queue}
		run := w.Start("a")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				err := s.View(t.Context(), func(r store.Reader) error {
					_, err := r.Events(t.Context(), run, 0, 0, 100, 0)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var open int
		const all = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1"
		if err := counted(t, all, nameOf(url), &open); err != nil {
			t.Fatal(err)
		}
		if open > pool || open < pool-1 { // the notifier connects only when it has a notice
			t.Errorf("a pool of %d: %d connections", pool, open)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
