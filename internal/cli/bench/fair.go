package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Tenants share a queue, each with a separate fairness key and one workflow at a time; the greedy tenant runs this many
// times as much.
const (
	tenants = 9
	greedy  = 100
)

// nextToGreedy measures the workflows of tenants alternately alone and next to a tenant with a hundred times as many,
// so that changes of the machine's speed affect both.
func nextToGreedy(ctx context.Context, n *node, ops int) (all sample, err error) {
	in, err := input()
	if err != nil {
		return all, err
	}
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	run := func(key string) error {
		return c.wait(ctx, func(id string) error {
			_, err := n.app.Broker().Start(ctx, protocol.StartRequest{
				WorkflowID: id, WorkflowType: "five", Input: in, FairnessKey: key,
			})
			return err
		})
	}
	keys := make(chan string, tenants)
	for i := range tenants {
		keys <- fmt.Sprint("tenant-", i)
	}
	one := func() error {
		key := <-keys
		defer func() { keys <- key }()
		return run(key)
	}
	began := time.Now()
	for done := 0; done < ops; {
		turn := min(250, ops-done)
		alone, err := runMany(turn, tenants, one)
		if err != nil {
			return all, err
		}
		quit := make(chan struct{})
		failed := make(chan error, greedy)
		var group sync.WaitGroup
		for range greedy {
			group.Go(func() {
				for {
					select {
					case <-quit:
						return
					default:
					}
					if err := run("greedy"); err != nil {
						failed <- err
						return
					}
				}
			})
		}
		loaded, err := runMany(turn, tenants, one)
		close(quit)
		group.Wait()
		close(failed)
		if err == nil {
			err = <-failed
		}
		if err != nil {
			return all, err
		}
		done += turn
		all.each, all.without = append(all.each, loaded.each...), append(all.without, alone.each...)
	}
	all.elapsed = time.Since(began)
	return all, allCompleted(ctx, n.app.View())
}

// slowestRatio returns the 99th percentile relative to that of the baseline.
func slowestRatio(s sample) float64 {
	return millis(percentile(s.each, 99)) / millis(percentile(s.without, 99))
}

// measureWeights claims activities one after the other, while many activities of four weights are ready. It measures by
// how many percent the share of a weight differs from the expected share, for the weight with the largest difference.
func measureWeights(ctx context.Context, n *node, ops int) (sample, error) {
	weights := []int{1, 2, 3, 4}
	sum := 10
	b := n.app.Broker()
	owner := "p13-" + ulid.Make().String()
	types := make([]string, len(weights))
	for i, w := range weights {
		types[i] = fmt.Sprint("weight-", w)
	}
	if _, err := b.Register(ctx, protocol.RegisterRequest{
		WorkerID: owner, TaskQueue: owner, WorkflowTypes: []string{leased}, ActivityTypes: types, Incarnation: owner,
	}); err != nil {
		return sample{}, err
	}
	args, err := payload.EncodeArgs(kilobyte)
	if err != nil {
		return sample{}, err
	}
	for i, w := range weights {
		if err := scheduleAs(ctx, b, owner, ops*w/sum+ops/5+1, protocol.Command{
			Type: protocol.ScheduleActivity, ActivityType: types[i], Arguments: args,
			FairnessKey: types[i], FairnessWeight: w,
		}); err != nil {
			return sample{}, err
		}
	}
	got := map[string]int{}
	s, err := runMany(ops, 1, func() error {
		tasks, err := pollNow(ctx, b, owner, protocol.KindActivity, 1)
		if err != nil {
			return err
		}
		if len(tasks) != 1 {
			return fmt.Errorf("a poll found %d tasks", len(tasks))
		}
		got[tasks[0].Activity.ActivityType]++
		return nil
	})
	for i, w := range weights {
		want := float64(ops*w) / float64(sum)
		s.off = max(s.off, 100*math.Abs(float64(got[types[i]])/want-1))
	}
	return s, err
}
