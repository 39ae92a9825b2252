package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// This is the number of events in the replayed history, also for quick measurements.
const (
	replayed      = 50_000
	replayedQuick = 2_000
)

// registerReplay adds the workflow whose history is replayed: activities in rounds, so that the history is created
// quickly.
func registerReplay(r *worker.Registry) {
	r.Workflow("rounds", func(ctx workflow.Context, activities int) error {
		for left := activities; left > 0; left -= parallel {
			all := make([]workflow.Future, min(left, parallel))
			for i := range all {
				all[i] = workflow.ExecuteActivity(ctx, "burn", int64(0))
			}
			if err := workflow.Join(ctx, all...); err != nil {
				return err
			}
		}
		return nil
	})
}

// replays measures how long a worker without a sticky cache needs to read a long history in pages and to replay it.
func replays(ctx context.Context, n *node, ops int) (sample, error) {
	registry := worker.NewRegistry()
	registerReplay(registry)
	registerWide(registry, &n.arrivals)
	def, _ := registry.FindWorkflow("rounds")
	if n.long == "" {
		events := replayed
		if n.quick {
			events = replayedQuick
		}
		c := watch(&n.app.Dispatch().Hub)
		defer c.stop()
		err := c.wait(ctx, func(id string) error {
			n.long = id
			_, err := n.app.Broker().Start(ctx, protocol.StartRequest{
				WorkflowID: id, WorkflowType: "rounds", Input: json.RawMessage(fmt.Sprintf("[%d]", events/perStep)),
			})
			return err
		})
		n.arrivals.takeAll()
		if err = errors.Join(err, allCompleted(ctx, n.app.View())); err != nil {
			return sample{}, err
		}
	}
	return runMany(ops, 1, func() error {
		events, err := n.history(ctx, n.long)
		if err != nil {
			return err
		}
		return replay.Events(def, replay.Options{Names: registry, CompareArguments: true}, events)
	})
}

// history returns all events of a run.
func (n *node) history(ctx context.Context, id string) (all []history.Event, err error) {
	q := protocol.HistoryQuery{Target: protocol.Target{WorkflowID: id}, PageSize: 1000}
	for {
		page, err := n.app.View().History(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Events...)
		if page.NextPageToken == nil || len(page.Events) == 0 {
			return all, nil
		}
		q.PageToken = *page.NextPageToken
	}
}

// seconds returns the time of an operation.
func seconds(s sample) float64 { return percentile(s.each, 50).Seconds() }

// last returns the time until the last operation ended, in seconds.
func last(s sample) float64 { return percentile(s.each, 100).Seconds() }
