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
	write(engine.SessionChange{Session: row, Delete: true})
	if got := stored(); got != "" {
		t.Errorf("%d bytes outlive the session", len(got))
	}
}
