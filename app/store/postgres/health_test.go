package postgres_test

import (
	"errors"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// While the database refuses connections, the store reports that it cannot write. When the database accepts them again,
// the next check succeeds.
func TestStoreIsNotWritableAfterAFailedCommit(t *testing.T) {
	url := database(t)
	s, err := postgres.Open(t.Context(), url, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := &storetest.Fixture{T: t, S: s, Queue: storetest.Queue}
	w.Start("before")
	do := func(statement string) {
		t.Helper()
		if err := administer(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	before := s.Stats()
	if err := s.Writable(t.Context()); err != nil || s.Stats() != before {
		t.Errorf("after a good commit: %v, and it sent %+v, before %+v", err, s.Stats(), before)
	}
	do("ALTER DATABASE " + nameOf(url) + " ALLOW_CONNECTIONS false")
	do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + nameOf(url) + "'")
	if _, err := s.Commit(t.Context(), store.Transaction{
		Needs: store.Keys{Tokens: []string{"x"}}, Decide: storetest.Nothing,
	}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("commit: got %v, want unavailable", err)
	}
	for range 2 {
		if err := s.Writable(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want unavailable", err)
		}
	}
	do("ALTER DATABASE " + nameOf(url) + " ALLOW_CONNECTIONS true")
	if err := s.Writable(t.Context()); err != nil {
		t.Errorf("let in again: %v", err)
	}
}
