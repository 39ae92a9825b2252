package sessiontest

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A network gap between a worker and its app costs an idle session nothing while no other worker wants it: the holder
// suspends the state when its lease ends, and resumes the session under the same epoch.
func TestAnIdleSessionKeepsItsMemoryDuringANetworkOutage(t *testing.T) {
	for _, session := range []string{"s", "own"} {
		for name, cut := range map[string]func(*proc) (mend func()){
			"lost connection": func(p *proc) func() { p.drop(); return p.rejoin },
			"failing calls":   func(p *proc) func() { p.sever(); return p.rejoin },
			"swallowed calls": func(p *proc) func() { return p.swallow() },
		} {
			for _, gap := range []time.Duration{8 * sec, 16 * sec, 20 * sec, 90 * sec, 4 * time.Minute} {
				bubble(t, fmt.Sprintf("%s, %s of %s", session, name, gap), func(h *harness) {
					h.flow("relay", relay)
					a := h.start("A", byDefault)
					run := h.begin("relay", session, []string{"first", "second"}, 1)
					first := h.done("first")
					h.start("B", byDefault)
					h.wait(37 * sec) // the lease is renewed several times
					mend := cut(a)
					h.wait(gap)
					mend()
					h.wait(20 * sec) // the worker dials again, and its next heartbeat resumes the session
					h.signal(run, "go")
					h.finish(run)
					second := h.once("second")
					if second.worker != "A" || second.session.Epoch != first.session.Epoch || second.session.IsNew {
						t.Errorf("%+v after %+v, timeline %v", second, first, h.timeline(first.session.ID))
					}
					resumed := slices.Contains(h.timeline(first.session.ID), "resumed")
					if want := gap > 30*sec; resumed != want {
						t.Errorf("the timeline has %v", h.timeline(first.session.ID))
					}
				})
			}
		}
	}
}

// If another worker acquired the session in the gap, the owner's resume is refused: it drops the state, and the next
// holding has a higher epoch.
func TestASessionAcquiredInTheGapIsNotResumed(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.flow("relay", relay)
		a := h.start("A", byDefault)
		run := h.begin("relay", "s", []string{"first", "second", "third"}, 1)
		first := h.done("first")
		b := h.start("B", byDefault)
		h.wait(37 * sec)
		a.drop()
		h.wait(10 * sec)
		h.signal(run, "go")
		second := h.done("second")
		a.rejoin()
		h.wait(20 * sec)
		b.stop() // releases the session
		h.signal(run, "go")
		h.finish(run)
		third := h.once("third")
		if second.worker != "B" || second.session.Epoch <= first.session.Epoch || !second.session.IsNew {
			t.Errorf("%+v after %+v", second, first)
		}
		if third.worker != "A" || third.session.Epoch <= second.session.Epoch || !third.session.IsNew {
			t.Errorf("%+v after %+v", third, second)
		}
		h.equal("timeline", h.timeline("s"), []string{"claimed", "expired", "reclaimed", "released", "reclaimed"})
	})
}

// State that was suspended for five minutes is dropped, and no work starts under its epoch.
func TestAStateSuspendedForTooLongIsDropped(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.flow("relay", relay)
		a := h.start("A", byDefault)
		run := h.begin("relay", "own", []string{"first", "second"}, 1)
		first := h.done("first")
		h.wait(37 * sec)
		a.drop()
		h.wait(6 * time.Minute)
		a.rejoin()
		h.wait(20 * sec)
		h.signal(run, "go")
		h.finish(run)
		if second := h.once("second"); second.session.Epoch <= first.session.Epoch || !second.session.IsNew {
			t.Errorf("%+v after %+v, timeline %v", second, first, h.timeline(first.session.ID))
		}
	})
}
