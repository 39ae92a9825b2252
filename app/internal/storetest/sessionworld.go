package storetest

import (
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// tick is the unit in which tests advance the clock. Ten ticks are longer than any test runs.
const tick = 10 * time.Second

// idleTimeout sets the idle timeout of a worker's sessions.
func idleTimeout(d time.Duration) func(*engine.Worker) {
	return func(w *engine.Worker) { w.SessionIdle = d.Microseconds() }
}

// attemptLease sets the lease duration of a worker's attempts.
func attemptLease(d time.Duration) func(*engine.Worker) {
	return func(w *engine.Worker) { w.AttemptLease = d.Microseconds() }
}

// startInSessions schedules activities in a new run, named by their sessions ("" is none).
func (w *Fixture) startInSessions(sessions ...string) string {
	w.T.Helper()
	var commands []protocol.Command
	for i, s := range sessions {
		commands = append(commands, Activity(fmt.Sprint("t", i+1), s))
	}
	return w.Begun(w.ID(), commands...)
}

// claimActivity leases one activity to a worker.
func (w *Fixture) claimActivity(worker *engine.Worker) store.Leased {
	w.T.Helper()
	return w.One(protocol.KindActivity, worker)
}

func (w *Fixture) claimNoActivity(worker *engine.Worker) {
	w.T.Helper()
	w.None(protocol.KindActivity, worker)
}

// sessionRow reads a session, which must exist.
func (w *Fixture) sessionRow(id string) engine.Session {
	w.T.Helper()
	s, err := w.Session(id)
	if err != nil {
		w.T.Fatal(err)
	}
	return s
}

// cleanUp removes rows that may be removed and returns their number.
func (w *Fixture) cleanUp() int {
	w.T.Helper()
	now, err := w.S.Now(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	var keys []engine.SessionKey
	w.View(func(r store.Reader) (err error) {
		keys, err = r.Removable(w.T.Context(), now, now.Add(-time.Hour), 100)
		return err
	})
	for _, k := range keys {
		w.Commit(SessionStep(k.ID, engine.CleanUp{Before: now.Add(-time.Hour)}))
	}
	return len(keys)
}
