package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// testManySessions writes 4,096 sessions in one change, the maximum that one heartbeat renews.
func testManySessions(t *testing.T, s Suite) {
	w := s.New(t)
	for _, status := range []protocol.SessionStatus{protocol.SessionActive, protocol.SessionClosed} {
		var keys []engine.SessionKey
		var changes []engine.SessionChange
		for i := range 4_096 {
			k := engine.SessionKey{Namespace: Namespace, ID: fmt.Sprint("s", i)}
			keys = append(keys, k)
			changes = append(changes, engine.SessionChange{Session: engine.Session{
				Namespace: k.Namespace, ID: k.ID, Origin: engine.OriginWorkflow, Status: status,
			}})
		}
		before := w.S.Stats().Statements
		if _, err := w.S.Commit(t.Context(), store.Transaction{
			Needs: store.Keys{Sessions: keys},
			Decide: func(store.Rows, time.Time) (store.Writes, error) {
				return store.Writes{Sessions: changes}, nil
			},
		}); err != nil {
			t.Fatal(err)
		}
		if n := w.S.Stats().Statements - before; n > 6 {
			t.Errorf("a change of 4,096 sessions took %d statements, want 6 at most", n)
		}
		if err := w.S.View(t.Context(), func(r store.Reader) error {
			got, err := r.Session(t.Context(), keys[len(keys)-1])
			if err == nil && got.Status != status {
				t.Errorf("the last session is %s, want %s", got.Status, status)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
