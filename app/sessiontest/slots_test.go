package sessiontest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/link"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A slot that falls free is asked for again at once, also by a worker that then only waits for workflow tasks.
func TestNoSlotIsIdleBesideReadyWork(t *testing.T) {
	bubble(t, "after a full house", func(h *house) {
		h.flow("other", func(workflow.Context) error { return nil }) // so that it asks for both kinds
		h.start("B", slots(4))
		r := worker.NewRegistry()
		r.Workflow("flow", func(ctx workflow.Context, prefix string) error {
			var all []workflow.Future
			for i := range 4 {
				all = append(all, begin(ctx, "", fmt.Sprintf("%s%d", prefix, i), 1000))
			}
			return workflow.Join(ctx, all...)
		})
		f, err := worker.New(worker.Options{
			Registry: r, Carrier: link.Local{Join: h.channel.Join}, Release: release, WorkerID: "F", NoSandbox: true, Log: apptest.Log(t),
		})
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
