package sessiontest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// failFast runs items one after the other, each after a signal, in a fail-fast session of one of the three kinds.
func failFast(ctx workflow.Context, kind string, items []string, ms int) (done []string, err error) {
	in := workflow.WithActivity(ctx, workflow.ActivityOptions{Session: "s", SessionFailFast: true})
	switch kind {
	case "options":
		in = workflow.WithActivity(ctx, workflow.ActivityOptions{
			WorkerSession: &workflow.WorkerSession{ID: "s", FailFast: true},
		})
	case "started":
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{FailFast: true})
		if err != nil {
			return nil, err
		}
		in = workflow.InSession(ctx, s.ID)
	}
	for i, item := range items {
		if i > 0 {
			if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
				return done, err
			}
		}
		got, err := workflow.Execute[string](in, "work", item, ms)
		if err != nil {
			return done, err
		}
		done = append(done, got)
	}
	return done, nil
}

// After the owner of a fail-fast session was killed, idle or busy, at default settings, another worker has the session
// within 12 seconds. A plain session takes longer.
func TestAFailFastSessionIsTakenOverWithin12Seconds(t *testing.T) {
	for _, kind := range []string{"implicit", "options", "started"} {
		for _, busy := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s, busy %t", kind, busy), func(h *harness) {
				h.flow("failFast", failFast)
				a := h.start("A", byDefault)
				run := h.begin("failFast", kind, []string{"first", "second"}, 1000)
				h.until("first", 10*ms, func() bool { return len(h.did("first")) == 1 })
				h.wait(37 * sec)
				h.start("B", byDefault)
				if !busy {
					a.kill()
				}
				at := h.at()
				h.signal(run, "go")
				if busy {
					h.running("second")
					at = h.at()
					a.kill()
				}
				h.until("second on B", 10*ms, func() bool {
					return slices.ContainsFunc(h.did("second"), func(r ran) bool { return r.worker == "B" })
				})
				began := h.did("second")
				last := began[len(began)-1]
				h.between("the takeover", last.from, at+4*sec, at+12*sec)
				h.finish(run)
			})
		}
	}
}

// The owner of a fail-fast session renews it every three seconds, and other sessions of the worker at their usual
// interval. A gap that is shorter than the lease costs nothing.
func TestAFailFastSessionIsRenewedEveryThreeSeconds(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.flow("failFast", failFast)
		h.flow("relay", relay)
		a := h.start("A", byDefault)
		run := h.begin("failFast", "started", []string{"first", "second"}, 1)
		h.begin("relay", "plain", []string{"other", "another"}, 1)
		first := h.done("first")
		h.done("other")
		before, plain := h.renewals(first.session.ID), h.renewals("plain")
		h.wait(time.Minute)
		if n := h.renewals(first.session.ID) - before; n < 18 || n > 24 {
			h.t.Errorf("the fail-fast session was renewed %d times in a minute", n)
		}
		if n := h.renewals("plain") - plain; n > 24 {
			h.t.Errorf("the plain session was renewed %d times in a minute", n)
		}
		mend := a.swallow()
		h.wait(4 * sec)
		mend()
		h.wait(20 * sec)
		h.signal(run, "go")
		h.finish(run)
		if second := h.once("second"); second.session.Epoch != first.session.Epoch {
			h.t.Errorf("after a short gap the epoch is %d, was %d", second.session.Epoch, first.session.Epoch)
		}
	})
}

// renewals returns how often the current owner renewed a session.
func (h *harness) renewals(id string) int {
	h.t.Helper()
	s, ok := h.row(id)
	if !ok {
		h.t.Fatalf("no session %s", id)
	}
	return s.Renewals
}

// An attempt in a fail-fast session that is cut off ends before another worker may start it.
func TestAnAttemptInAFailFastSessionEndsBeforeItsLease(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.flow("failFast", failFast)
		a := h.start("A", byDefault)
		run := h.begin("failFast", "started", []string{"first"}, 60_000)
		h.running("first")
		h.start("B", byDefault)
		h.wait(7 * sec)
		a.swallow()
		h.finish(run)
		all := h.did("first")
		if len(all) != 2 || all[0].worker != "A" || all[1].worker != "B" || all[0].to > all[1].from {
			h.t.Errorf("the attempts are %+v", all)
		}
	})
}

// The idle owner of a fail-fast session is frozen, and its open poll receives the next activity. Another worker has the
// session and the activity when these leases end.
func TestAFailFastSessionOfAFrozenOwnerIsTakenOver(t *testing.T) {
	bubble(t, "", func(h *harness) {
		begin := func(item string) {
			raw, _ := json.Marshal([]any{item, 1})
			_, err := h.StartActivity(h.t.Context(), protocol.ActivityRequest{
				ActivityType: "work", Input: raw, ActivityOptions: protocol.ActivityOptions{SessionID: "s", FailFast: true},
			})
			if err != nil {
				h.t.Fatal(err)
			}
		}
		a := h.start("A", byDefault)
		begin("first")
		h.done("first")
		h.wait(37 * sec)
		h.start("B", byDefault)
		a.swallow()
		at := h.at()
		begin("second")
		h.until("second on B", 10*ms, func() bool {
			return slices.ContainsFunc(h.did("second"), func(r ran) bool { return r.worker == "B" })
		})
		h.between("the takeover", h.at(), at+7*sec, at+14*sec)
	})
}
