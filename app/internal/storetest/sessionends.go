package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func released(w *Fixture) {
	a, b := w.Worker("a"), w.Worker("b")
	w.startInSessions("s")
	w.Finish(w.claimActivity(a))
	w.startInSessions("s")
	w.claimNoActivity(b)
	w.Commit(SessionStep("s", engine.ReleaseSession{SessionHolder: engine.SessionHolder{Worker: "a"}, Why: "shutdown"}))
	if l := w.claimActivity(b); !l.IsNew || l.Activity.SessionID != "s" {
		w.T.Fatalf("b got %+v", l)
	}
}

func restarted(w *Fixture) {
	a, b := w.Worker("a"), w.Worker("b")
	w.startInSessions("s")
	first := w.claimActivity(a)
	w.Finish(first)
	w.startInSessions("s")
	second := w.Worker("a", func(x *engine.Worker) { x.Incarnation = "2" })
	w.claimNoActivity(b)
	if l := w.claimActivity(second); !l.IsNew || l.Session.Epoch <= first.Session.Epoch {
		w.T.Fatalf("the restarted holder got %+v", l.Session)
	}
}

func chainEnds(w *Fixture) {
	a, b := w.Worker("a"), w.Worker("b")
	run := w.Start("chained")
	id := engine.StepID(run, 1)
	w.Decide(
		w.One(protocol.KindWorkflow, a), protocol.Command{Type: protocol.StartSession}, Activity("x", id), Activity("y", id),
	)
	if row := w.sessionRow(id); row.Owner != "" || row.WorkflowID != "chained" {
		w.T.Fatalf("started %+v", row)
	}
	if l := w.claimActivity(a); !l.IsNew {
		w.T.Fatalf("a got %+v", l)
	}
	w.claimNoActivity(b)
	if n := w.cleanUp(); n != 0 {
		w.T.Fatalf("removed %d of a live workflow", n)
	}
	w.Do(run, engine.EndRun{Terminate: true})
	if row := w.sessionRow(id); !row.Terminal || row.Status != protocol.SessionClosed {
		w.T.Fatalf("after the end %+v", row)
	}
	w.claimNoActivity(a)
	w.View(func(r store.Reader) error {
		left, err := r.SessionTasks(w.T.Context(), engine.SessionKey{Namespace: Namespace, ID: id}, 10)
		if len(left) != 0 {
			w.T.Errorf("%d tasks are left", len(left))
		}
		return err
	})
}

func requires(w *Fixture) {
	bare := w.Worker("bare")
	gpu := w.Worker("gpu", func(x *engine.Worker) { x.Capabilities = []string{"gpu"} })
	c := Activity("x", "")
	c.WorkerSession = &protocol.SessionOptions{SessionID: "s", Requirements: []string{"gpu"}}
	w.Begun("needs", c)
	w.claimNoActivity(bare)
	if l := w.claimActivity(gpu); l.Session.ID != "s" {
		w.T.Fatalf("gpu got %+v", l.Session)
	}
}

func freed(w *Fixture) {
	a, b := w.Worker("a"), w.Worker("b")
	w.startInSessions("s", "s", "s")
	w.claimActivity(a)
	w.Pass(31 * time.Second)
	w.Sweep()
	if got := len(w.LeaseTasks(protocol.KindActivity, b, 5)); got != 2 {
		w.T.Fatalf("b got %d, want the two that waited", got)
	}
}

// testTimelineRetention checks that the timeline of a removed session is stored until its last entry is old, and that
// of an existing session in any case.
func testTimelineRetention(w *Fixture) {
	a := w.Worker("a")
	for _, id := range []string{"old", "young", "held"} {
		w.startInSessions(id)
	}
	for range 3 {
		w.Finish(w.claimActivity(a))
	}
	w.Commit(SessionStep("old", engine.ReleaseSession{SessionHolder: engine.SessionHolder{Worker: "a"}, Why: "test"}))
	w.cleanUp()
	w.Pass(time.Second)
	cut, err := w.S.Now(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	w.Pass(time.Second)
	w.Commit(SessionStep("young", engine.ReleaseSession{SessionHolder: engine.SessionHolder{Worker: "a"}, Why: "test"}))
	w.cleanUp()
	key := func(id string) engine.SessionKey { return engine.SessionKey{Namespace: Namespace, ID: id} }
	w.View(func(r store.Reader) error {
		list, err := r.Forgettable(w.T.Context(), Namespace, cut, 10)
		if !slices.Equal(list, []engine.SessionKey{key("old")}) {
			w.T.Errorf("may be forgotten: %v", list)
		}
		return err
	})
	w.Commit(store.Transaction{Needs: store.Keys{
		Sessions: []engine.SessionKey{key("old")},
	}, Decide: func(store.Rows, time.Time) (store.Writes, error) {
		return store.Writes{DropTimelines: []engine.SessionKey{key("old")}}, nil
	}})
	w.View(func(r store.Reader) error {
		for id, kept := range map[string]bool{"old": false, "young": true, "held": true} {
			line, err := r.Timeline(w.T.Context(), key(id), 0, 10)
			if err != nil || (len(line) > 0) != kept {
				w.T.Errorf("timeline of %s: %+v, %v", id, line, err)
			}
		}
		return nil
	})
}

// testFormerHolders checks a session that two workers have lost while an attempt of each still runs in it. A store that
// is opened later counts both attempts towards the session's limit, lists them, and does not remove the session.
func testFormerHolders(t *testing.T, s Suite) {
	w := s.Fixture(t, "a", Options{})
	restart := func() {
		t.Helper()
		shift := w.shift.Load()
		if err := w.S.Close(); err != nil {
			t.Fatal(err)
		}
		w = s.Fixture(t, "a", Options{})
		w.shift.Store(shift)
	}
	c := Activity("x", "")
	c.WorkerSession = &protocol.SessionOptions{SessionID: "s", MaxActivities: 2, Lease: 1}
	w.Begun("f", c, c, c, c)
	var running []store.Leased
	for _, id := range []string{"a", "b"} {
		running = append(running, w.claimActivity(w.Worker(id)))
		w.Pass(1100 * time.Millisecond)
		restart()
		w.Sweep()
	}
	third := w.Worker("c")
	w.claimNoActivity(third)
	w.View(func(r store.Reader) error {
		list, err := r.SessionTasks(t.Context(), engine.SessionKey{Namespace: Namespace, ID: "s"}, 10)
		if len(list) != 4 || list[0].State != engine.LeasedState || list[1].State != engine.LeasedState {
			t.Errorf("the session's tasks are %+v", list)
		}
		return err
	})
	w.Finish(running[0])
	restart()
	l := w.claimActivity(w.Worker("c"))
	w.claimNoActivity(w.Worker("c"))
	w.Finish(l)
	w.Commit(SessionStep("s", engine.ReleaseSession{SessionHolder: engine.SessionHolder{Worker: "c"}, Why: "test"}))
	restart()
	w.Finish(w.claimActivity(w.Worker("d"))) // the last one; b now holds everything
	w.Commit(SessionStep("s", engine.ReleaseSession{SessionHolder: engine.SessionHolder{Worker: "d"}, Why: "test"}))
	restart()
	if n := w.cleanUp(); n != 0 {
		t.Error("a session was removed in which a former holder runs an attempt")
	}
	w.Finish(running[1])
	if n := w.cleanUp(); n != 1 {
		t.Errorf("once nothing runs in it %d sessions are removed", n)
	}
}
