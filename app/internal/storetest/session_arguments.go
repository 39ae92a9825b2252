package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// testSessionArguments stores the arguments of a session's definition. Changes of the session's row leave them
// unchanged, and they are removed with the row.
func testSessionArguments(t *testing.T, s Suite) {
	w := s.New(t)
	key := engine.SessionKey{Namespace: Namespace, ID: "s"}
	row := engine.Session{
		Namespace: key.Namespace, ID: key.ID, Origin: engine.OriginImplicit, Status: protocol.SessionActive,
		Definition: "llama", ArgumentsHash: "h",
	}
	blob := strings.Repeat("x", 1<<20)
	write := func(c engine.SessionChange) {
		t.Helper()
		if _, err := w.S.Commit(t.Context(), store.Transaction{
			Needs: store.Keys{Sessions: []engine.SessionKey{key}},
			Decide: func(store.Rows, time.Time) (store.Writes, error) {
				return store.Writes{Sessions: []engine.SessionChange{c}}, nil
			},
		}); err != nil {
			t.Fatal(err)
		}
	}
	stored := func() (got string) {
		t.Helper()
		if err := w.S.View(t.Context(), func(r store.Reader) (err error) {
			got, err = r.SessionArguments(t.Context(), key)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	write(engine.SessionChange{Session: row, Arguments: &blob})
	row.SetUpEpoch = 7
	write(engine.SessionChange{Session: row})
	if got := stored(); got != blob {
		t.Errorf("%d bytes are stored, want %d", len(got), len(blob))
	}
	snapshot := func() (got string) {
		t.Helper()
		if err := w.S.View(t.Context(), func(r store.Reader) (err error) {
			got, err = r.SessionSnapshot(t.Context(), key)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	// A snapshot is removed with its description in the row, and when a file replaces it.
	with := row
	with.Snapshot = &engine.Snapshot{Epoch: 7, Checksum: "1"}
	write(engine.SessionChange{Session: with, Snapshot: &blob})
	with.Epoch = 8
	write(engine.SessionChange{Session: with})
	if got := snapshot(); got != blob {
		t.Errorf("%d bytes of a snapshot are stored, want %d", len(got), len(blob))
	}
	short := "short"
	with.Snapshot = &engine.Snapshot{Epoch: 8, Checksum: "2"}
	write(engine.SessionChange{Session: with, Snapshot: &short})
	if got := snapshot(); got != short {
		t.Errorf("the snapshot has %d bytes after it was replaced", len(got))
	}
	with.Snapshot = &engine.Snapshot{Epoch: 8, Checksum: "3", File: "f"}
	none := ""
	write(engine.SessionChange{Session: with, Snapshot: &none})
	if got := snapshot(); got != "" {
		t.Errorf("%d bytes outlive the replacement of the snapshot by a file", len(got))
	}
	with.Snapshot = &engine.Snapshot{Epoch: 8, Checksum: "4"}
	write(engine.SessionChange{Session: with, Snapshot: &short})
	with.Snapshot = nil
	write(engine.SessionChange{Session: with})
	if got := snapshot(); got != "" {
		t.Errorf("%d bytes outlive the snapshot", len(got))
	}
	with.Snapshot = &engine.Snapshot{Epoch: 8, Checksum: "5"}
	write(engine.SessionChange{Session: with, Snapshot: &short})
	row = with
	write(engine.SessionChange{Session: row, Delete: true})
	if got := snapshot(); got != "" {
		t.Errorf("%d bytes of a snapshot outlive the session", len(got))
	}
	if got := stored(); got != "" {
		t.Errorf("%d bytes outlive the session", len(got))
	}
}
