package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A task replaces the row of the task before it. If that row is missing, because another program wrote to the file, the
// change is refused: otherwise the result would be stored without its next task, and the run would wait forever.
func TestTaskWithoutItsRowIsNotLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "row.db")
	w := &storetest.Fixture{T: t, S: open(t, path, sqldb.Options{}), Queue: storetest.Queue}
	run := w.Begun("order", storetest.Activity("x", ""))
	leased := w.One(protocol.KindActivity, w.Worker("w"))
	before := len(w.History(run))
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "DELETE FROM tasks WHERE run_id = ?", run); err != nil {
		t.Fatal(err)
	}
	_, err = w.S.Commit(t.Context(), storetest.Finishing(leased))
	if err == nil || !strings.Contains(err.Error(), "wrote 0 rows instead of one") {
		t.Errorf("a result whose task has no row: %v", err)
	}
	if after := len(w.History(run)); after != before {
		t.Errorf("%d events, want the %d of before", after, before)
	}
}
