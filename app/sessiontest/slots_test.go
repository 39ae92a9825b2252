package sessiontest

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// The worker polls for a free slot at once, also if it then waits only for workflow tasks.
func TestNoSlotIsIdleWithReadyTasks(t *testing.T) {
	bubble(t, "after a full house", func(h *harness) {
		h.flow("other", func(workflow.Context) error { return nil }) // so that it polls for both kinds
		h.start("B", slots(4))
		r := worker.NewRegistry()
		r.Workflow("flow", func(ctx workflow.Context, prefix string) error {
			var all []workflow.Future
			for i := range 4 {
				all = append(all, begin(ctx, "", fmt.Sprintf("%s%d", prefix, i), 1000))
			}
			return workflow.Join(ctx, all...)
		})
		f, err := worker.New(workeropt.Over(link.Local{Join: h.testServer.server.Connections().Join}, worker.Options{
			Registry: r, Release: release, WorkerID: "F",
			Logger:    slogbridge.Slog(apptest.Log(t)),
			Executors: worker.ExecutorOptions{Disabled: true},
		}))
		if err != nil {
			h.t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.WithoutCancel(h.t.Context()))
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		defer func() { stop(); <-done }()
		for round := range 5 {
			began := h.at()
			h.finish(h.begin("flow", fmt.Sprint("round", round, "-")))
			h.between("a round of four on four slots", h.at()-began, sec, sec+100*ms)
			h.wait(time.Duration(round+1) * 1100 * ms)
		}
	})
}

// With its default settings a worker runs more Go activities at once than twice its number of cores; in a session with
// only an ID it runs twice that number.
func TestDefaultSlotsAndTheSession(t *testing.T) {
	most := func(list []ran) (n int) {
		for _, a := range list {
			at := 0
			for _, b := range list {
				if b.from <= a.from && a.from < b.to {
					at++
				}
			}
			n = max(n, at)
		}
		return n
	}
	few := 2 * runtime.GOMAXPROCS(0)
	bubble(t, "in a session and without", func(h *harness) {
		h.flow("wide", func(ctx workflow.Context) error {
			var all []workflow.Future
			for i := range 3 * few {
				all = append(all, begin(ctx, "s", fmt.Sprintf("held%d", i), 1000), begin(ctx, "", fmt.Sprintf("plain%d", i), 1000))
			}
			return workflow.Join(ctx, all...)
		})
		h.start("A", slots(0))
		h.finish(h.begin("wide"))
		var held, plain []ran
		for _, r := range h.did() {
			if r.session.ID != "" {
				held = append(held, r)
			} else {
				plain = append(plain, r)
			}
		}
		h.equal("activities at once in the session", most(held), few)
		if few <= 32 { // otherwise there are not enough slots for all
			h.equal("activities at once without", most(plain), 3*few)
		}
	})
}
