package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// On a full disk the write-ahead log has room for one page but not for a step, so the store reports that it cannot
// write. Stored work stays, and the store continues when there is room again.
func TestAFullDiskTakesNoWrites(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("no disk of its own: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	s := open(t, filepath.Join(disk, "full.db"), sqldb.Options{})
	w := &storetest.Fixture{T: t, S: s, Queue: storetest.Queue}
	big := strings.Repeat("x", 20_000)
	start := func(id string) error {
		_, err := s.Commit(t.Context(), storetest.StartChange(engine.Start{
			RunID: w.ID(), Number: 1, Arguments: big, Request: protocol.StartRequest{
				Namespace: storetest.Namespace, WorkflowID: id, WorkflowType: "flow", TaskQueue: storetest.Queue,
			},
		}))
		return err
	}
	stored := 0
	for ; ; stored++ {
		if err := start(fmt.Sprint("w", stored)); errors.Is(err, store.ErrUnavailable) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // the write attempt must not hide the full disk
		if err := s.Writable(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("on a full disk: %v", err)
		}
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=60m"); err != nil {
		t.Fatal(err)
	}
	if err := s.Writable(t.Context()); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := start("later"); err != nil {
		t.Error(err)
	}
	err := s.View(t.Context(), func(r store.Reader) error {
		for i := range stored {
			if _, err := r.Workflow(t.Context(), engine.WorkflowKey{
				Namespace: storetest.Namespace, ID: fmt.Sprint("w", i),
			}); err != nil {
				return fmt.Errorf("w%d of %d: %w", i, stored, err)
			}
		}
		return nil
	})
	if err != nil || stored == 0 {
		t.Errorf("%d stored: %v", stored, err)
	}
}
