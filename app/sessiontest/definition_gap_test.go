package sessiontest

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A network gap during the set-up that is shorter than the leases does not end it, and a longer gap after it leaves the
// state in memory: no set-up is repeated.
func TestASetUpSurvivesANetworkOutage(t *testing.T) {
	for name, cut := range map[string]func(*proc) (mend func()){
		"lost connection": func(p *proc) func() { p.drop(); return p.rejoin },
		"failing calls":   func(p *proc) func() { p.sever(); return p.rejoin },
		"swallowed calls": func(p *proc) func() { return p.swallow() },
	} {
		bubble(t, name, func(h *harness) {
			h.defines(20*sec, nil)
			h.flow("flow", func(ctx workflow.Context) ([]string, error) {
				ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: 5 * sec})
				a, err := workflow.Await[string](ctx, asking(ctx, "s", "m.gguf", "first", 10))
				if err != nil {
					return nil, err
				}
				if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
					return nil, err
				}
				b, err := workflow.Await[string](ctx, asking(ctx, "s", "m.gguf", "second", 10))
				return []string{a, b}, err
			})
			a := h.start("A", byDefault)
			run := h.begin("flow")
			h.running("set up")
			mend := cut(a)
			h.wait(8 * sec)
			mend()
			h.until("first", 10*ms, func() bool { return len(h.did("first")) == 1 })
			h.wait(sec)
			mend = cut(a)
			h.wait(time.Minute)
			mend()
			h.wait(20 * sec)
			h.signal(run, "go")
			h.equal("states", output[[]string](h, run), []string{"A m.gguf", "A m.gguf"})
			h.once("set up")
			h.equal("set-ups", h.setUps(run), []string{"llama completed"})
		})
	}
}

// An activity that is cancelled during the set-up ends it. An activity that waits for the same set-up runs it again.
func TestACancelledSetUpIsRunByTheActivityThatWaits(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.defines(20*sec, nil)
		flow := func(ctx workflow.Context) ([]string, error) {
			inner, cancel := workflow.WithCancel(ctx)
			first := asking(inner, "s", "m.gguf", "first", 10)
			if err := workflow.Sleep(ctx, sec); err != nil {
				return nil, err
			}
			second := asking(ctx, "s", "m.gguf", "second", 10)
			if err := workflow.Sleep(ctx, sec); err != nil {
				return nil, err
			}
			cancel()
			out := []string{"not cancelled"}
			if err := first.Get(ctx, nil); errors.Is(err, workflow.ErrCancelled) {
				out[0] = "cancelled"
			}
			got, err := workflow.Await[string](ctx, second)
			return append(out, got), err
		}
		h.flow("flow", flow)
		h.start("A")
		run := h.begin("flow")
		h.equal("results", output[[]string](h, run), []string{"cancelled", "A m.gguf"})
		h.equal("set-ups", h.setUps(run), []string{"llama cancelled", "llama completed"})
		h.equal("set-ups that ran", len(h.did("set up")), 2)
		h.replays(run, flow)
	})
}

// An update during the set-up is accepted at once, and its activity waits for the same set-up.
func TestAnUpdateDuringASetUpWaitsForIt(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.defines(20*sec, nil)
		flow := func(ctx workflow.Context) (string, error) {
			workflow.HandleUpdate(ctx, "ask", func(ctx workflow.Context, item string) (string, error) {
				return workflow.Await[string](ctx, asking(ctx, "s", "m.gguf", item, 10))
			})
			got, err := workflow.Await[string](ctx, asking(ctx, "s", "m.gguf", "main", 10))
			if err != nil {
				return "", err
			}
			return got, workflow.Signal(ctx, "go").Receive(ctx, nil)
		}
		h.flow("flow", flow)
		h.start("A")
		run := h.begin("flow")
		h.running("set up")
		update := func(item, wait string) protocol.UpdateResponse {
			raw, _ := json.Marshal([]string{item})
			v, err := h.Describe(h.t.Context(), protocol.Target{RunID: run})
			if err != nil {
				h.t.Fatal(err)
			}
			got, err := h.Update(h.t.Context(), protocol.UpdateRequest{
				Target: protocol.Target{WorkflowID: v.WorkflowID}, UpdateName: "ask", Input: raw, WaitFor: wait,
			})
			if err != nil {
				h.t.Fatal(err)
			}
			return got
		}
		at := h.at()
		h.equal("outcome", update("update", "accepted").Outcome, "update_accepted")
		h.near("the acceptance", h.at(), at, sec)
		h.until("the update's activity", 10*ms, func() bool { return len(h.did("update")) == 1 })
		h.equal("outcome", update("later", "completed").Outcome, "update_completed")
		h.signal(run, "go")
		h.equal("state", output[string](h, run), "A m.gguf")
		h.once("set up")
		h.equal("set-ups", h.setUps(run), []string{"llama completed"})
		h.replays(run, flow)
	})
}
