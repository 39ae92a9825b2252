package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// perSecond is the number of workflows per second at which the latency of starts is measured. blocked is the number of
// tasks that wait for the only slot of a session.
const (
	perSecond = 500
	blocked   = 1000
)

// arrivals records the waiting times of handlers by kind. App and worker run in one process with one clock.
type arrivals struct {
	mu    sync.Mutex // guards waits
	waits map[string][]time.Duration
}

// add records that a handler begins that was requested at a time in nanoseconds.
func (a *arrivals) add(what string, asked int64) {
	wait := time.Duration(time.Now().UnixNano() - asked)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waits == nil {
		a.waits = map[string][]time.Duration{}
	}
	a.waits[what] = append(a.waits[what], wait)
}

// takeAll returns the recorded times and clears them.
func (a *arrivals) takeAll() map[string][]time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.waits
	a.waits = nil
	return all
}

// These are the kinds of waiting times: for the first and the next activity of a workflow, without and with a session.
const (
	started     = "started"
	plainFirst  = "plain first"
	plainNext   = "plain next"
	heldFirst   = "session first"
	heldNext    = "session next"
	plainVisits = "visit"
	heldVisits  = "visit session"
)

// registerLatency adds the workflows of the latency scenarios. They read the machine's clock, which workflow code must
// otherwise never do.
func registerLatency(r *worker.Registry, a *arrivals, entered chan<- struct{}) {
	r.Workflow("start", func(_ workflow.Context, asked int64) error {
		a.add(started, asked)
		return nil
	})
	r.Activity("arrive", func(_ context.Context, what string, asked int64) error {
		a.add(what, asked)
		return nil
	})
	twice := func(ctx workflow.Context, run func(
		workflow.Context, any, ...any,
	) workflow.Future, first, next string,
	) error {
		for _, what := range []string{first, next} {
			if err := run(ctx, "arrive", what, time.Now().UnixNano()).Get(ctx, nil); err != nil {
				return err
			}
		}
		return nil
	}
	r.Workflow(plainVisits, func(ctx workflow.Context) error {
		return twice(ctx, workflow.ExecuteActivity, plainFirst, plainNext)
	})
	r.Workflow(heldVisits, func(ctx workflow.Context) error {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		if err != nil {
			return err
		}
		if err := twice(ctx, s.Execute, heldFirst, heldNext); err != nil {
			return err
		}
		return s.End(ctx)
	})
	r.Workflow("crowd", func(ctx workflow.Context) error {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{MaxActivities: 1})
		if err != nil {
			return err
		}
		var all []workflow.Future
		for range blocked + 1 {
			all = append(all, s.Execute(ctx, "hold"))
		}
		return all[0].Get(ctx, nil)
	})
	r.Activity("hold", func(ctx context.Context) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
}

// paced starts workflows at a constant rate, and measures the time from the call to the first line of workflow code.
func paced(ctx context.Context, n *node, ops int) (sample, error) {
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	n.arrivals.takeAll()
	failed := make(chan error, ops)
	var group sync.WaitGroup
	start := time.Now()
	for i := range ops {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / perSecond)))
		group.Go(func() {
			asked := json.RawMessage(fmt.Sprintf("[%d]", time.Now().UnixNano()))
			failed <- c.workflow(ctx, n, "start", asked)
		})
	}
	group.Wait()
	s := sample{elapsed: time.Since(start), each: n.arrivals.takeAll()[started]}
	for range ops {
		if err := <-failed; err != nil {
			return s, err
		}
	}
	return s, nil
}

// measureSessionWait runs workflows one after the other, alternately with and without a session, and measures how long
// their activities wait in both cases.
func measureSessionWait(held, plain string) func(context.Context, *node, int) (sample, error) {
	return func(ctx context.Context, n *node, ops int) (sample, error) {
		c := watch(&n.app.Dispatch().Hub)
		defer c.stop()
		n.arrivals.takeAll()
		start := time.Now()
		for range ops {
			for _, typ := range []string{plainVisits, heldVisits} {
				if err := c.workflow(ctx, n, typ, nil); err != nil {
					return sample{}, err
				}
			}
		}
		waits := n.arrivals.takeAll()
		return sample{elapsed: time.Since(start), each: waits[held], without: waits[plain]}, nil
	}
}

// measureBlocked runs workflows one after the other, alternately without other tasks and while a session blocks other
// tasks, so that a change of the machine's speed affects both.
func measureBlocked(ctx context.Context, n *node, ops int) (all sample, err error) {
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	one := func() error { return c.workflow(ctx, n, plainVisits, nil) }
	start := time.Now()
	for done := 0; done < ops; {
		turn := min(25, ops-done)
		alone, err := runMany(turn, 1, one)
		if err != nil {
			return all, err
		}
		crowd, err := n.crowd(ctx)
		if err != nil {
			return all, err
		}
		loaded, err := runMany(turn, 1, one)
		if err != nil {
			return all, err
		}
		end := protocol.EndRequest{Target: protocol.Target{WorkflowID: crowd}, Reason: "measured"}
		if _, err := n.app.Broker().Terminate(ctx, end); err != nil {
			return all, err
		}
		done += turn
		all.each, all.without = append(all.each, loaded.each...), append(all.without, alone.each...)
	}
	all.elapsed = time.Since(start)
	return all, nil
}

// crowd starts a workflow whose tasks wait for the single slot of their session, and returns its ID once the first task
// has the slot.
func (n *node) crowd(ctx context.Context) (string, error) {
	a, err := n.app.Broker().Start(ctx, protocol.StartRequest{WorkflowType: "crowd"})
	if err != nil {
		return "", err
	}
	select {
	case <-n.entered:
		return a.WorkflowID, nil
	case <-time.After(time.Minute):
		return "", fmt.Errorf("no activity of workflow %s began within a minute", a.WorkflowID)
	}
}

// workflow runs one workflow of a type to its end.
func (c *closings) workflow(ctx context.Context, n *node, typ string, in json.RawMessage) error {
	return c.wait(ctx, func(id string) error {
		_, err := n.app.Broker().Start(ctx, protocol.StartRequest{WorkflowID: id, WorkflowType: typ, Input: in})
		return err
	})
}
