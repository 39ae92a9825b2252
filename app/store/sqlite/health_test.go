package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A store whose last write succeeded reports that it can write without another write; one whose last write failed tries
// one first.
func TestWhetherAStoreCanWriteFollowsItsLastCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "health.db")
	if err := open(t, path, sqldb.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	restore := sqlite.LimitPages(120)
	defer restore()
	w := &storetest.Fixture{T: t, S: open(t, path, sqldb.Options{}), Queue: storetest.Queue}
	started := 0
	start := func(arguments string) error {
		started++
		in := engine.Start{RunID: w.ID(), Number: 1, Arguments: arguments, Request: protocol.StartRequest{
			Namespace: storetest.Namespace, WorkflowID: fmt.Sprint("w", started), WorkflowType: "flow",
			TaskQueue: storetest.Queue,
		}}
		_, err := w.S.Commit(t.Context(), storetest.StartChange(in))
		return err
	}
	writable := func(what string, tries bool) {
		t.Helper()
		before := w.S.Stats().Commits
		err := w.S.Writable(t.Context())
		if after := w.S.Stats().Commits; err != nil || after != before != tries {
			t.Errorf("%s: %v, with %d commits", what, err, after-before)
		}
	}
	if err := start(""); err != nil {
		t.Fatal(err)
	}
	writable("after a good commit", false)
	big := strings.Repeat("x", 100_000)
	for err := error(nil); err == nil; { // until the file may not grow any more
		if err = start(big); err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	writable("after a commit that failed", true) // a small row still fits
	writable("after the write that was tried", false)
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.S.Writable(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed: got %v", err)
	}
}
