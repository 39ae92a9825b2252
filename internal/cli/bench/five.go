package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// kilobyte is the payload of every step, in and out.
var kilobyte = strings.Repeat("x", 1000)

// steps is the number of activities in the scenarios' workflow.
const steps = 5

// lanes is the number of workflows that P18 runs concurrently, each in a separate session, since the concurrency limit
// of one session would make them wait.
const lanes = 8

// heldIn returns the name of a lane's session, which is also the name of the workflow whose activities run in it.
// freeIn returns the name of the same workflow without a session. Both variants have equally many workflow types,
// because each type has its own range in the indexes of runs.
func heldIn(lane int) string { return fmt.Sprint("held ", lane) }
func freeIn(lane int) string { return fmt.Sprint("free ", lane) }

// These are the workflows of P22: the same number of local steps, recorded one by one and together.
const (
	localEach = "local-each"
	localTurn = "local-turn"
)

func inLocalSteps(d workflow.Durability) func(workflow.Context, string) (string, error) {
	return func(ctx workflow.Context, in string) (string, error) {
		for range steps {
			var err error
			in, err = workflow.Do(ctx, "echo", func(context.Context) (string, error) { return in, nil },
				workflow.StepOptions{Durability: d})
			if err != nil {
				return "", err
			}
		}
		return in, nil
	}
}

func register(r *worker.Registry) {
	inSteps := func(steps int) func(ctx workflow.Context, in string) (string, error) {
		return func(ctx workflow.Context, in string) (string, error) {
			for range steps {
				if err := workflow.ExecuteActivity(ctx, "echo", in).Get(ctx, &in); err != nil {
					return "", err
				}
			}
			return in, nil
		}
	}
	five := inSteps(steps)
	r.Workflow("five", five)
	r.Workflow("one", inSteps(1))
	r.Workflow(localEach, inLocalSteps(workflow.EachStep))
	r.Workflow(localTurn, inLocalSteps(workflow.WithTurn))
	for i := range lanes {
		r.Workflow(freeIn(i), five)
		r.Workflow(heldIn(i), func(ctx workflow.Context, in string) (string, error) {
			return five(workflow.InSession(ctx, heldIn(i)), in)
		})
	}
	r.Activity("echo", func(_ context.Context, in string) (string, error) { return in, nil })
}

func scenarios() []scenario {
	inProcess := func(o *nodeOptions) { o.worker = "in-process" }
	socket := func(o *nodeOptions) { o.worker = "socket" }
	several := func(workers int) func(*nodeOptions) {
		return func(o *nodeOptions) { o.worker, o.workers = "in-process", workers }
	}
	holders := func(o *nodeOptions) {
		rest := atRest(o.quick)
		o.worker, o.workers, o.sessions = "in-process", rest.workers, rest.sessions/rest.workers*6/5
	}
	return append([]scenario{
		{
			id: "P1", transport: "store", unit: "completions/s", only: "sqlite", n: 40_000, quick: 4_000,
			measure: completions,
		},
		{
			id: "P2", transport: "store", unit: "completions/s", only: "postgres", n: 40_000, quick: 4_000,
			measure: completions,
		},
		{
			id: "P3", transport: "in-process", unit: "activities/s", n: 100_000, quick: 10_000, options: inProcess,
			measure: burnDown,
		},
		{id: "P4", transport: "http", unit: "workflows/s", n: 1_500, quick: 200, measure: overHTTP},
		{
			id: "P5", transport: "in-process", unit: "workflows/s", n: 4_000, quick: 400, options: inProcess,
			measure: runTogether(128),
		},
		{
			id: "P5", transport: "socket", unit: "workflows/s", n: 3_000, quick: 300, options: socket,
			measure: runTogether(128),
		},
		{
			id: "P6", transport: "in-process", unit: "ms", n: 200, quick: 30, figure: median, options: inProcess,
			measure: runTogether(1),
		},
		{
			id: "P7", transport: "in-process", unit: "ms", n: 5_000, quick: 500, figure: median, options: inProcess,
			measure: paced,
		},
		{
			id: "P8", transport: "in-process", unit: "ms", n: 20, quick: 5, figure: median, options: inProcess,
			measure: allAtOnce,
		},
		{
			id: "P9", transport: "in-process", unit: "ms, first", n: 200, quick: 50, figure: durationAdded, options: inProcess,
			measure: measureSessionWait(heldFirst, plainFirst),
		},
		{
			id: "P9", transport: "in-process", unit: "ms, warm", n: 200, quick: 50, figure: durationAdded, options: inProcess,
			measure: measureSessionWait(heldNext, plainNext),
		},
		{
			id: "P10", transport: "in-process", unit: "statements/s", n: 60, quick: 30, rests: true, most: 3,
			figure: statementsASecond, more: []figure{{"% of a core", ofACore}}, options: holders, measure: heldSessions,
		},
		{
			id: "P10", transport: "in-process", unit: "statements/s, fail-fast", n: 60, quick: 30, rests: true, most: 3,
			figure: statementsASecond, more: []figure{{"% of a core, fail-fast", ofACore}}, options: holders,
			measure: heldFailFast,
		},
		{
			id: "P11", transport: "in-process", unit: "statements/min", n: 120, quick: 30, rests: true, most: 1,
			figure: statementsAMinute, more: []figure{{"% of a core", ofACore}, {"MB in memory", megabytes}},
			options: inProcess, measure: measureSleeping,
		},
		{
			id: "P11", transport: "socket", unit: "statements/min", n: 120, quick: 30, rests: true, most: 1,
			figure: statementsAMinute, more: []figure{{"% of a core", ofACore}, {"MB in memory", megabytes}},
			measure: asleepWithFleet,
		},
		{
			id: "P12", transport: "process", unit: "ms, ready", only: "sqlite", n: 10, quick: 2, figure: median,
			more: []figure{{"MB, binary", binaryMegabytes}, {"MB, in memory", megabytes}}, measure: footprint,
		},
		{
			id: "P13", transport: "in-process", unit: "×, slowest", n: 1_000, quick: 100, figure: slowestRatio,
			options: inProcess, measure: nextToGreedy,
		},
		{
			id: "P13", transport: "store", unit: "% off the weights", n: 1_000, quick: 200,
			figure: func(s sample) float64 { return s.off }, measure: measureWeights,
		},
		{
			id: "P14", transport: "in-process", unit: "s", n: 3, quick: 1, figure: seconds, options: inProcess,
			measure: replays,
		},
		{
			id: "P15", transport: "store", unit: "s, last", n: 60_000, quick: 1_000, figure: last, measure: dueAtOnce,
		},
		{
			id: "P17", transport: "in-process", unit: "%", n: 500, quick: 100, figure: percentAdded, options: inProcess,
			measure: measureBlocked,
		},
		{
			id: "P18", transport: "in-process", unit: "%", n: 4_000, quick: 400, figure: spent, options: inProcess,
			measure: inHeld,
		},
		{
			id: "P19", transport: "in-process", unit: "%", n: 8_000, quick: 500, figure: spent, options: inProcess,
			measure: nextToForeign,
		},
		{
			id: "P20", transport: "in-process", unit: "×, 1 worker", n: 2_000, quick: 500, figure: ratio, options: inProcess,
			measure: oneLongRun,
		},
		{
			id: "P20", transport: "in-process", unit: "×, 2 workers", n: 2_000, quick: 500, figure: ratio,
			options: several(2), measure: oneLongRun,
		},
		{
			id: "P20", transport: "in-process", unit: "×, 4 workers", n: 2_000, quick: 500, figure: ratio,
			options: several(4), measure: oneLongRun,
		},
		{
			id: "P22", transport: "in-process", unit: "workflows/s, each", n: 4_000, quick: 400, options: inProcess,
			measure: ofType(localEach, 128),
		},
		{
			id: "P22", transport: "in-process", unit: "workflows/s, turn", n: 8_000, quick: 400, options: inProcess,
			measure: ofType(localTurn, 128),
		},
	}, append(startsAndWaits(), flooded()...)...)
}

// input is the argument of each workflow, encoded once.
func input() (json.RawMessage, error) {
	p, err := payload.EncodeArgs(kilobyte)
	if err != nil {
		return nil, err
	}
	return p.MarshalJSON()
}

// runTogether starts ops workflows, atOnce at a time, and waits for each to close. The node's worker runs them.
func runTogether(atOnce int) func(context.Context, *node, int) (sample, error) {
	return func(ctx context.Context, n *node, ops int) (sample, error) {
		in, err := input()
		if err != nil {
			return sample{}, err
		}
		c := watch(&n.app.Dispatch().Hub)
		defer c.stop()
		s, err := runMany(ops, atOnce, func() error { return c.run(ctx, n.app.Broker(), in) })
		if err != nil {
			return s, err
		}
		return s, allCompleted(ctx, n.app.View())
	}
}

// ofType starts ops workflows of a type, atOnce at a time, and waits for each to close.
func ofType(workflow string, atOnce int) func(context.Context, *node, int) (sample, error) {
	return func(ctx context.Context, n *node, ops int) (sample, error) {
		in, err := input()
		if err != nil {
			return sample{}, err
		}
		c := watch(&n.app.Dispatch().Hub)
		defer c.stop()
		s, err := runMany(ops, atOnce, func() error { return c.workflow(ctx, n, workflow, in) })
		if err != nil {
			return s, err
		}
		return s, allCompleted(ctx, n.app.View())
	}
}

// inHeld measures the processor time of a workflow whose activities run in a session that is already held, and without
// a session.
func inHeld(ctx context.Context, n *node, ops int) (sample, error) {
	in, err := input()
	if err != nil {
		return sample{}, err
	}
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	free := make(chan int, lanes)
	for i := range lanes {
		if err := c.workflow(ctx, n, heldIn(i), in); err != nil { // the worker holds the session from now on
			return sample{}, err
		}
		free <- i
	}
	ofLane := func(workflow func(lane int) string) func(int) (sample, error) {
		return func(ops int) (sample, error) {
			return runManyCounted(ops, lanes, func() error {
				lane := <-free
				defer func() { free <- lane }()
				return c.workflow(ctx, n, workflow(lane), in)
			})
		}
	}
	all, err := inTurns(ops, 100, ofLane(freeIn), ofLane(heldIn))
	if err != nil {
		return all, err
	}
	return all, allCompleted(ctx, n.app.View())
}

// allCompleted returns an error if runs failed, because failed runs take less time.
func allCompleted(ctx context.Context, v *view.View) error {
	for _, status := range []string{"failed", "running"} {
		l, err := v.List(ctx, protocol.ListRequest{Status: status, PageSize: 1000})
		if err != nil {
			return err
		}
		for _, r := range l.Workflows {
			if r.WorkflowType != leased {
				return fmt.Errorf("run %s is %s", r.RunID, r.Status)
			}
		}
	}
	return nil
}

// closings notifies callers when their workflows close. It uses the hints of commits and reads nothing from the store.
type closings struct {
	watch *dispatch.Watch
	done  chan struct{}
	mu    sync.Mutex // guards waits
	waits map[string]chan struct{}
}

func watch(h *dispatch.Hub) *closings {
	c := &closings{watch: h.Watch(dispatch.TopicRuns), done: make(chan struct{}), waits: map[string]chan struct{}{}}
	go func() {
		for {
			select {
			case <-c.watch.C:
			case <-c.done:
				return
			}
			changed, _ := c.watch.Take()
			c.mu.Lock()
			for _, r := range changed.Runs {
				if wait, ok := c.waits[r.WorkflowID]; ok && r.Closed {
					close(wait)
					delete(c.waits, r.WorkflowID)
				}
			}
			c.mu.Unlock()
		}
	}()
	return c
}

func (c *closings) stop() {
	close(c.done)
	c.watch.Close()
}

// run runs one workflow to its end.
func (c *closings) run(ctx context.Context, b *broker.Broker, in json.RawMessage) error {
	return c.wait(ctx, func(id string) error {
		_, err := b.Start(ctx, protocol.StartRequest{WorkflowID: id, WorkflowType: "five", Input: in})
		return err
	})
}

// wait starts a workflow under a new id and returns when it has closed.
func (c *closings) wait(ctx context.Context, start func(id string) error) error {
	id, closed := ulid.Make().String(), make(chan struct{})
	c.mu.Lock()
	c.waits[id] = closed
	c.mu.Unlock()
	if err := start(id); err != nil {
		return err
	}
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	select {
	case <-closed:
		return nil
	case <-timeout.C:
		return fmt.Errorf("workflow %s did not end within a minute", id)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runMany runs ops operations, atOnce at a time, and returns the duration of each. The first error ends it.
func runMany(ops, atOnce int, do func() error) (sample, error) {
	s := sample{each: make([]time.Duration, ops)}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	start := time.Now()
	for range min(atOnce, ops) {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= ops || failed.Load() != nil {
					return
				}
				began := time.Now()
				if err := do(); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				s.each[i] = time.Since(began)
			}
		})
	}
	group.Wait()
	s.elapsed = time.Since(start)
	if err := failed.Load(); err != nil {
		return s, *err
	}
	return s, nil
}
