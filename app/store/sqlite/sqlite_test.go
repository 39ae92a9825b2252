package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/app/store/storetest"
	"github.com/sojourn-run/sojourn/shared/protocol"
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

func TestSmoke(t *testing.T) {
	w := suite(t).New(t)
	run := w.Begun("a", storetest.Activity("x", ""), storetest.Activity("y", "s1"))
	wk := w.Worker("w1")
	l := w.Claim(protocol.KindActivity, wk, 10)
	for _, x := range l {
		t.Log(storetest.Name(x), x.IsNew)
		w.Finish(x)
	}
	t.Log(w.Run(run))
	for _, e := range w.History(run) {
		t.Log(e.Seq, e.Type())
	}
	wt := w.One(protocol.KindWorkflow, wk)
	w.Decide(wt, protocol.Command{Type: protocol.CompleteWorkflow})
	t.Logf("%+v", w.S.Stats())
	t.Log(w.Run(run).Status)
}
