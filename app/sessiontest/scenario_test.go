package sessiontest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// talk is a worker's state of a conversation: its messages so far.
type talk struct{ messages []string }

// conversations registers the activities of a chat with state in the session. "resume" restores it from the workflow's
// data.
func (h *harness) conversations(made, resumed *atomic.Int32) {
	h.uses(func(r *worker.Registry, p *proc) {
		r.Activity("create", func(ctx context.Context) (string, error) {
			made.Add(1)
			activity.SessionState(ctx).Set("talk", &talk{})
			return p.name, nil
		})
		r.Activity("resume", func(ctx context.Context, messages []string) (string, error) {
			resumed.Add(1)
			activity.SessionState(ctx).Set("talk", &talk{slices.Clone(messages)})
			return p.name, nil
		})
		r.Activity("turn", func(ctx context.Context, text string, millis int) (int, error) {
			t, err := activity.Get[*talk](ctx, "talk")
			if err != nil {
				return 0, err
			}
			if err := h.work(ctx, p, text, time.Duration(millis)*ms); err != nil {
				return 0, err
			}
			t.messages = append(t.messages, text)
			return len(t.messages), nil
		})
	})
}

// say runs one step of the conversation. If the worker has lost the conversation's state, say sends it once and repeats
// the step.
func say(ctx workflow.Context, session string, lines []string, text string, millis int) ([]string, error) {
	ctx = workflow.InSession(ctx, session)
	n, err := workflow.Execute[int](ctx, "turn", text, millis)
	if errors.Is(err, workflow.ErrSessionLost) {
		if err := workflow.ExecuteActivity(ctx, "resume", lines).Get(ctx, nil); err != nil {
			return lines, err
		}
		n, err = workflow.Execute[int](ctx, "turn", text, millis)
	}
	if err != nil {
		return lines, err
	}
	if lines = append(lines, text); n != len(lines) {
		return lines, fmt.Errorf("the worker has %d messages, %d were sent", n, len(lines))
	}
	return lines, nil
}

// Sessions as applications use them.
func TestScenarios(t *testing.T) {
	bubble(t, "IS-X1", func(h *harness) {
		var made, resumed atomic.Int32
		h.conversations(&made, &resumed)
		h.flow("chat", func(ctx workflow.Context, session string, lines []string, more bool) ([]string, error) {
			if session == "" {
				session = workflow.NewID(ctx)
				if err := workflow.ExecuteActivity(workflow.InSession(ctx, session), "create").Get(ctx, nil); err != nil {
					return nil, err
				}
			}
			for range 2 {
				var err error
				if lines, err = say(ctx, session, lines, fmt.Sprintf("%s-%d", session, len(lines)), 20); err != nil {
					return lines, err
				}
			}
			if err := workflow.Sleep(ctx, 100*ms); err != nil {
				return lines, err
			}
			if more {
				return nil, workflow.ContinueAsNew(ctx, session, lines, false)
			}
			return lines, nil
		})
		h.start("A", slots(2))
		h.start("B", slots(2))
		var runs []string
		for i := range 4 {
			runs = append(runs, h.begin("chat", "", []string{}, i < 2))
		}
		for i, run := range runs {
			lines, want := output[[]string](h, run), 2
			if i < 2 {
				want = 4
			}
			if len(lines) != want || !slices.IsSorted(lines) {
				h.t.Errorf("conversation %d: %q", i, lines)
			}
		}
		h.equal("conversations made", made.Load(), 4)
		h.equal("conversations resumed", resumed.Load(), 0)
		h.equal("turns", len(h.did()), 12)
	})

	bubble(t, "IS-X2", func(h *harness) {
		var made, resumed atomic.Int32
		h.conversations(&made, &resumed)
		h.flow("chat", func(ctx workflow.Context, session string) (lines []string, err error) {
			if err := workflow.ExecuteActivity(workflow.InSession(ctx, session), "create").Get(ctx, nil); err != nil {
				return nil, err
			}
			for i := range 4 {
				if lines, err = say(ctx, session, lines, fmt.Sprint("m", i), 10); err != nil {
					return lines, err
				}
				if i == 1 { // wait for longer than the idle time and the lease
					if err := workflow.Sleep(ctx, 10*time.Second); err != nil {
						return lines, err
					}
				}
			}
			return lines, nil
		})
		with := func(o *worker.Options) { lock(2*sec, 4*sec)(o); attempts(2 * sec)(o) }
		h.start("A", with)
		h.start("B", with)
		h.equal("messages", output[[]string](h, h.begin("chat", "s")), []string{"m0", "m1", "m2", "m3"})
		h.equal("made and resumed", fmt.Sprint(made.Load(), resumed.Load()), "1 1")
		h.equal("timeline", h.timeline("s"), []string{"claimed", "idle_unpinned", "reclaimed"})
		h.equal("epochs", h.once("m3").session.Epoch, h.once("m2").session.Epoch)
		if h.once("m2").session.Epoch <= h.once("m1").session.Epoch {
			h.t.Error("the epoch did not rise")
		}
	})

	for _, flying := range []bool{false, true} {
		bubble(t, map[bool]string{false: "IS-X3", true: "IS-X3-in-flight"}[flying], func(h *harness) {
			var made, resumed atomic.Int32
			h.conversations(&made, &resumed)
			h.flow("chat", func(ctx workflow.Context, session string) (lines []string, err error) {
				if err := workflow.ExecuteActivity(workflow.InSession(ctx, session), "create").Get(ctx, nil); err != nil {
					return nil, err
				}
				for i := range 6 {
					if lines, err = say(ctx, session, lines, fmt.Sprint("m", i), 300); err != nil {
						return lines, err
					}
					if i == 2 && !flying {
						if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
							return lines, err
						}
					}
				}
				return lines, nil
			})
			with := func(o *worker.Options) { lock(2*sec, 0)(o); attempts(2 * sec)(o) }
			a := h.start("A", with)
			run := h.begin("chat", "s")
			if flying {
				h.running("m3")
			} else {
				h.done("m2")
				h.wait(sec)
			}
			h.start("B", with)
			killed := h.at()
			a.kill()
			if !flying {
				h.signal(run, "go")
			}
			h.equal("messages", output[[]string](h, run), []string{"m0", "m1", "m2", "m3", "m4", "m5"})
			h.equal("made and resumed", fmt.Sprint(made.Load(), resumed.Load()), "1 1")
			last := h.did("m3")[len(h.did("m3"))-1]
			h.between("B continues", last.from, killed, killed+3*sec+500*ms) // a blamed task has a backoff of one second
			h.equal("worker", last.worker, "B")
		})
	}
}

// Cases of owners that stop, beyond the cases of the store.
func TestHoldersThatLeave(t *testing.T) {
	// A clean shutdown releases sessions at once, of every origin that permits a new acquisition.
	bubble(t, "released at shutdown", func(h *harness) {
		h.flow("twice", twice)
		a := h.start("A")
		run := h.begin("twice", "s", 10, 10)
		h.done("first")
		h.start("B")
		a.stop()
		began := h.at()
		h.signal(run, "go")
		h.equal("workers", output[[]string](h, run), []string{"A", "B"})
		h.near("B ran", h.once("second").from, began, 200*ms)
		h.equal("timeline", h.timeline("s"), []string{"claimed", "released", "reclaimed"})
	})

	// If a worker sends no heartbeats, the app ends its sessions, however long their leases are.
	bubble(t, "orphaned when silent", func(h *harness) {
		h.flow("twice", twice)
		a := h.start("A", lock(time.Hour, 2*time.Hour))
		run := h.begin("twice", "s", 10, 10)
		h.done("first")
		h.start("B")
		h.wait(30 * sec)
		killed := h.at()
		a.kill()
		h.signal(run, "go")
		h.equal("workers", output[[]string](h, run), []string{"A", "B"})
		h.between("B ran", h.once("second").from, killed+40*sec, killed+66*sec)
		h.equal("timeline", h.timeline("s"), []string{"claimed", "orphaned", "reclaimed"})
	})

	// A worker that restarts with another maximum of sessions keeps the sessions that it holds; the new maximum applies
	// to new acquisitions.
	bubble(t, "another cap after a restart", func(h *harness) {
		h.flow("one", one)
		n1 := h.start("n1", most(3))
		for i := range 3 {
			output[string](h, h.begin("one", fmt.Sprint("s", i), fmt.Sprint("first", i), 10))
		}
		n1.kill()
		h.start("n1", most(1))
		var runs []string
		for i := range 3 {
			runs = append(runs, h.begin("one", fmt.Sprint("s", i), fmt.Sprint("second", i), 10))
		}
		for _, run := range runs {
			h.equal("worker", output[string](h, run), "n1")
		}
		fresh := h.begin("one", "new", "new", 10)
		h.wait(10 * sec)
		h.equal("runs of a new session above the cap", len(h.did("new")), 0)
		h.start("B")
		h.equal("worker", output[string](h, fresh), "B")
	})

	// A disconnected worker that lost its session is notified after reconnecting, and its late result has no effect.
	bubble(t, "a holder that was cut off", func(h *harness) {
		h.flow("pair", func(ctx workflow.Context, session string) ([]string, error) {
			long := begin(ctx, session, "long", 8000)
			if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
				return nil, err
			}
			b, err := in(ctx, session, "other", 6000)
			if err != nil {
				return nil, err
			}
			a, err := workflow.Await[string](ctx, long)
			return []string{a, b}, err
		})
		// The lease of the attempt is longer than that of the session.
		a := h.start("A", lock(2*sec, 0), attempts(30*sec))
		run := h.begin("pair", "s")
		h.running("long")
		h.start("B", lock(2*sec, 0))
		a.sever()
		h.signal(run, "go")
		other := h.running("other")
		h.equal("worker", other.worker, "B")
		a.rejoin()
		h.wait(4 * sec)
		row, _ := h.row("s")
		h.equal("owner", row.Owner, "B")
		h.equal("epoch", row.Epoch, other.session.Epoch)
		h.equal("workers", output[[]string](h, run), []string{"A", "B"}) // the attempt's lease had not expired
		h.equal("runs", len(h.did("long")), 1)
		if got, _ := h.row("s"); got.Owner != "B" || got.Status != protocol.SessionActive {
			h.t.Errorf("the session is %+v", got)
		}
	})
}
