package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/app/store/storetest"
)

func suite(t testing.TB) storetest.Suite {
	dir := t.TempDir()
	return storetest.Suite{Statements: 40, Open: func(t testing.TB, name string, o storetest.Options) store.Store {
		t.Helper()
		s, err := sqlite.Open(t.Context(), filepath.Join(dir, name+".db"), sqldb.Options{App: o.App, Dispatch: o.Dispatch, Shift: o.Shift})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}}
}

func TestStore(t *testing.T) { storetest.Run(t, suite(t)) }
