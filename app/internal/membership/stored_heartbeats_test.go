package membership

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker reported its drain to another app. This app has an open poll of the worker and finds the drain in the
// worker's row when it stores the heartbeat; the poll must then end, and before any response the app must know the
// drain.
func TestADrainFoundInTheRowEndsOpenPolls(t *testing.T) {
	d := dispatch.New(dispatch.Options{})
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), sqldb.Options{App: "here", Dispatch: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(context.WithoutCancel(t.Context())), s.Close()); err != nil {
			t.Error(err)
		}
	})
	ws := Open(s, d, Options{App: "here", Alive: time.Minute, StoreAlive: time.Minute, Quiet: time.Minute, Shared: true})
	withStatus := func(status protocol.WorkerStatus) *engine.Worker {
		w := process("1")
		w.Status = status
		if _, err := s.Commit(t.Context(), store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{Workers: []engine.Worker{*w}}, nil
		}}); err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := withStatus(protocol.WorkerActive)
	ws.Put(w)
	ws.RecordHeartbeat(key)
	open := d.Enter(dispatch.Spec{
		Namespace: w.Namespace, Queues: w.Queues, Kinds: []protocol.TaskKind{protocol.KindQuery},
		Free: map[protocol.TaskKind]int{protocol.KindQuery: 1}, Lessee: engine.Lessee{Worker: w},
	})
	withStatus(protocol.WorkerDraining)
	if err := ws.storeAlive(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Wait(t.Context(), time.Second); !errors.Is(err, dispatch.ErrDraining) {
		t.Errorf("the open poll ended with %v", err)
	}
}
