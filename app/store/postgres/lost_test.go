package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/storetest"
)

// Connections are cut while changes are on their way. Whatever was acknowledged is there exactly once; what was refused is not.
func TestLostConnectionsLoseNothing(t *testing.T) {
	url := database(t)
	s, err := postgres.Open(t.Context(), url, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := &storetest.World{T: t, S: s, Queue: storetest.Queue}
	run := w.Start("flow")
	admin, err := pgx.Connect(t.Context(), server(t))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	var mu sync.Mutex
	stored := map[string]bool{}
	cut := func() { // called by callers now and then, so that there are as many cuts on a slow machine as on a fast one
		const all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'sojourn committer'"
		if _, err := admin.Exec(context.Background(), all, nameOf(url)); err != nil {
			t.Error(err)
		}
	}
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for k := range 60 {
				name := string(rune('a'+i)) + "-" + string(rune('A'+k%26)) + string(rune('A'+k/26))
				_, err := s.Commit(context.Background(), storetest.Step(run, engine.SignalRun{Name: name}, store.Keys{}))
				if err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("signal %s: %v", name, err)
				}
				mu.Lock()
				if stored[name] = err == nil; len(stored)%20 == 0 {
					cut()
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	found := map[string]int{}
	for _, v := range w.Run(run).Signals.All() {
		found[v.Name]++
	}
	ok := 0
	for name, acknowledged := range stored {
		if acknowledged {
			ok++
		}
		if n := found[name]; acknowledged && n != 1 || n > 1 {
			t.Errorf("signal %s, acknowledged %v, is there %d times", name, acknowledged, n)
		}
	}
	if ok < len(stored)/2 {
		t.Errorf("only %d of %d signals were acknowledged", ok, len(stored))
	}
	w.Do(run, engine.EndRun{})
}

func nameOf(url string) string {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		panic(err)
	}
	return cfg.Database
}
