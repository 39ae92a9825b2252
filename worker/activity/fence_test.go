package activity_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sojourn-run/sojourn/worker/activity"
)

// The epoch of an owner is stored with its write, equal epochs may write again, and lower ones may not. Sessions of
// other namespaces and other IDs are independent.
func TestAFenceAcceptsNoLowerEpoch(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "outside.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for range 2 {
		if _, err := db.ExecContext(t.Context(), activity.FenceTable); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		fence  activity.SessionFence
		fenced bool
	}{
		{activity.SessionFence{"default", "s", 5}, false},
		{activity.SessionFence{"default", "s", 5}, false},
		{activity.SessionFence{"default", "s", 7}, false},
		{activity.SessionFence{"default", "s", 5}, true},
		{activity.SessionFence{"default", "t", 1}, false},
		{activity.SessionFence{"other", "s", 1}, false},
		{activity.SessionFence{"default", "s", 7}, false},
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.fence.Apply(t.Context(), tx); errors.Is(err, activity.ErrFenced) != c.fenced || err != nil && !c.fenced {
			t.Errorf("%+v: got %v", c.fence, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := activity.Fence(t.Context()); err == nil {
		t.Error("an activity outside a session got a fence")
	}
}
