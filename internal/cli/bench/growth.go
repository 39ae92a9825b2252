package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// growing measures how the cost of the same work grows with the size of the data. Each size has its own node. The sizes
// are measured in turns, so that a change of the machine's speed affects all of them.
type growing struct {
	of           string // name of the data that grows
	sizes, quick []int
	large        int // an additional size that takes long to measure; 0: none
	only         string
	options      func(o *nodeOptions, size int)
	// prepare fills a node and reports the progress; nil: no preparation
	prepare       func(ctx context.Context, n *node, size int, report func(there int)) error
	parts         []growingPart
	freshEachTime bool // the measurement changes the node, so that each run needs a new node
	// The measurement changes nothing, or adds little: the filled database can be reused.
	stays bool
}

// growingPart is one measurement, which is repeated at each size. Its number of operations may depend on the size.
type growingPart struct {
	id, transport, unit string
	ops                 func(size int, quick bool) int
	figure              func(sample) float64 // nil: operations a second
	reads               bool                 // nothing is written, so the commit rate of the store is no limit
	measure             func(size int) func(ctx context.Context, n *node, ops int) (sample, error)
}

// fixed returns the same number of operations for every size.
func fixed(n, quick int) func(int, bool) int {
	return func(_ int, q bool) int {
		if q {
			return quick
		}
		return n
	}
}

// sameAtEverySize returns a measurement that is the same at every size.
func sameAtEverySize(
	measure func(context.Context, *node, int) (sample, error),
) func(int) func(context.Context, *node, int) (sample, error) {
	return func(int) func(context.Context, *node, int) (sample, error) { return measure }
}

func growths() []growing {
	inProcess := func(o *nodeOptions, _ int) { o.worker = "in-process" }
	return []growing{
		{
			of: "retained runs", sizes: []int{1_000, 100_000}, quick: []int{100, 2_000}, large: 1_000_000, options: inProcess,
			prepare: retain, stays: true,
			parts: []growingPart{
				{
					id: "P1-RETAINED", transport: "store", unit: "completions/s", ops: fixed(20_000, 2_000),
					measure: sameAtEverySize(completions),
				},
				{
					id: "P3-RETAINED", transport: "in-process", unit: "activities/s", ops: fixed(20_000, 2_000),
					measure: sameAtEverySize(burnDown),
				},
				{
					id: "P5-RETAINED", transport: "in-process", unit: "workflows/s", ops: fixed(1_000, 100),
					measure: sameAtEverySize(runTogether(128)),
				},
			},
		},
		{
			of: "runs", sizes: []int{1_000, 100_000}, quick: []int{200, 1_000}, large: 1_000_000, prepare: createRuns,
			stays: true, parts: listings(),
		},
		{
			of: "connected workers", sizes: []int{10, 100, 1_000}, quick: []int{10, 100},
			parts: []growingPart{{
				id: "P4-WORKERS", transport: "http", unit: "workflows/s", ops: fixed(1_000, 200),
				measure: workersOverHTTP,
			}},
		},
		{
			of: "ready activities", sizes: []int{1_000, 10_000, 100_000}, quick: []int{500, 5_000}, freshEachTime: true,
			prepare: backlog,
			parts: []growingPart{{
				id: "CLAIMS", transport: "store", unit: "claims/s", ops: fixed(500, 200), measure: sameAtEverySize(measureClaims),
			}},
		},
		{
			of: "events of the run", sizes: []int{500, 5_000, 50_000}, quick: []int{100, 1_000}, options: inProcess,
			parts: []growingPart{{
				id: "LONG", transport: "in-process", unit: "ms of processors a step", ops: longSteps, figure: eachUsed,
				measure: sameAtEverySize(longRun),
			}},
		},
		{
			of: "parallel activities", sizes: []int{100, 1_000, 10_000}, quick: []int{100, 1_000}, options: inProcess,
			parts: []growingPart{{
				id: "WIDE", transport: "in-process", unit: "activities/s", measure: sameAtEverySize(oneWide),
				ops: func(size int, _ bool) int { return size },
			}},
		},
		{
			of: "inherited signals", sizes: []int{250, 1_000, 4_000}, quick: []int{20, 60}, options: inProcess,
			freshEachTime: true,
			parts: []growingPart{{
				id: "CARRY", transport: "in-process", unit: "signals/s", measure: sameAtEverySize(inheriting),
				ops: func(size int, _ bool) int { return size },
			}},
		},
		{
			of: "apps on one database", sizes: []int{1, 2, 4}, quick: []int{1, 2}, only: "postgres",
			options: func(o *nodeOptions, size int) { o.worker, o.apps = "in-process", size },
			parts: []growingPart{{
				id: "P5-APPS", transport: "in-process", unit: "workflows/s", ops: fixed(2_000, 200),
				measure: sameAtEverySize(onEachApp),
			}},
		},
	}
}

// measureGrowth measures the selected parts of a growing scenario. It reports to step the current measurement, and how
// many measurements have ended.
func measureGrowth(
	ctx context.Context, g growing, kind string, o Options, step func(what string, over int),
) ([]Result, error) {
	parts := slices.DeleteFunc(slices.Clone(g.parts), func(p growingPart) bool {
		return !slices.Contains(o.Scenarios, p.id)
	})
	sizes := g.sized(o)
	nodes := make([]*node, len(sizes))
	var closing []error
	shut := func(i int) {
		if nodes[i] != nil {
			closing = append(closing, nodes[i].close())
			nodes[i] = nil
		}
	}
	results := make([]Result, 0, len(parts)*len(sizes))
	each, cpu := map[int][]time.Duration{}, map[int]time.Duration{}
	for _, p := range parts {
		for _, size := range sizes {
			results = append(results, Result{
				Scenario: p.id, Description: describe(p.id),
				Store: kind, Transport: p.transport, Unit: p.unit, N: p.ops(size, o.Quick), Size: size,
				SizeOf: g.of, Cores: runtime.NumCPU(), Go: runtime.Version(), Version: o.Version,
				Date: time.Now().UTC().Format(time.DateOnly),
			})
		}
	}
	err := func() error {
		for range o.Runs {
			for i, size := range sizes {
				if g.freshEachTime {
					shut(i)
				}
				if nodes[i] == nil {
					n, err := g.openNode(ctx, kind, size, o, func(there int) {
						step(fmt.Sprintf("preparing %s: %d of %d %s", kind, there, size, g.of), 0)
					})
					if err != nil {
						return err
					}
					nodes[i] = n
				}
				for j, p := range parts {
					at := j*len(sizes) + i
					r := &results[at]
					one, used, err := measured(ctx, nodes[i], p, size, r)
					if err != nil {
						return fmt.Errorf("%s with %d %s: %w", p.id, size, g.of, err)
					}
					each[at], cpu[at] = append(each[at], one.each...), cpu[at]+used
					r.middle()
					r.P50, r.P99 = millis(percentile(each[at], 50)), millis(percentile(each[at], 99))
					r.CPU = millis(cpu[at]) / float64(r.N*len(r.Runs))
					if o.Figure != nil {
						o.Figure(*r)
					}
					step(fmt.Sprintf("%s %s, %d %s", p.id, kind, size, g.of), 1)
				}
			}
		}
		return nil
	}()
	for i := range nodes {
		shut(i)
	}
	if err = errors.Join(append(closing, err)...); err != nil {
		return nil, err
	}
	return results, nil
}

// sized returns the sizes at which to measure.
func (g growing) sized(o Options) []int {
	switch {
	case len(o.Sizes) > 0:
		return o.Sizes
	case o.Quick:
		return g.quick
	case o.Large && g.large > 0:
		return append(slices.Clone(g.sizes), g.large)
	}
	return g.sizes
}

// stores returns the selected databases on which the scenario can run.
func (g growing) stores(o Options) []string { return on(g.only, o.Stores) }

func (g growing) openNode(
	ctx context.Context, kind string, size int, o Options, report func(there int),
) (*node, error) {
	no := nodeOptions{store: kind, postgres: o.Postgres, quick: o.Quick, log: o.Log}
	if g.options != nil {
		g.options(&no, size)
	}
	if o.Data != "" && g.stays {
		if err := os.MkdirAll(o.Data, 0o700); err != nil {
			return nil, err
		}
		no.kept = filepath.Join(o.Data, fmt.Sprintf("%s-%s-%d", kind, g.of, size))
	}
	n, err := openNode(ctx, no)
	if err != nil || g.prepare == nil {
		return n, err
	}
	if _, there := n.filled(); there {
		return n, nil
	}
	report(0)
	err = g.prepare(ctx, n, size, report)
	if err == nil {
		err = n.stays()
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// measured runs one part once on a node and adds the sample to the result.
func measured(
	ctx context.Context, n *node, p growingPart, size int, r *Result,
) (one sample, used time.Duration, err error) {
	if !p.reads {
		if r.Limit, err = n.limits(ctx); err != nil {
			return one, 0, err
		}
	}
	runtime.GC()
	before, stats := cpuTime(), n.app.Store().Stats()
	one, err = p.measure(size)(ctx, n, r.N)
	if err != nil {
		return one, 0, err
	}
	used = cpuTime() - before
	one.commits = n.app.Store().Stats().Commits - stats.Commits
	value := float64(r.N) / one.elapsed.Seconds()
	if p.figure != nil {
		one.used = used
		value = p.figure(one)
	}
	r.Runs = append(r.Runs, value)
	r.OfLimit = fractionOfLimit(one, r.Limit)
	return one, used, nil
}

// retain creates size completed runs in the store.
func retain(ctx context.Context, n *node, size int, report func(there int)) error {
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	in, err := input()
	if err != nil {
		return err
	}
	for there := 0; there < size && err == nil; report(there) {
		some := min(reportEvery, size-there)
		_, err = runMany(some, 1000, func() error { return c.workflow(ctx, n, "brief", in) })
		there += some
	}
	return err
}

// reportEvery is the number of rows between two progress reports; creating the rows may take minutes.
const reportEvery = 20_000

// registerGrowth adds the workflows of the growing scenarios.
func registerGrowth(r *worker.Registry) {
	r.Workflow("brief", func(_ workflow.Context, in string) (string, error) { return in, nil })
}

// claimer is the ID of the worker for which tasks wait.
const claimer = "claimer"

// backlog creates size ready activities for polls.
func backlog(ctx context.Context, n *node, size int, _ func(int)) error {
	b := n.app.Broker()
	_, err := b.Register(ctx, protocol.RegisterRequest{
		WorkerID: claimer, TaskQueue: claimer, WorkflowTypes: []string{leased}, ActivityTypes: []string{"step"},
		Incarnation: claimer,
	})
	if err != nil {
		return err
	}
	return scheduleAll(ctx, b, claimer, size)
}

// measureClaims measures sequential polls that each lease one ready activity.
func measureClaims(ctx context.Context, n *node, ops int) (sample, error) {
	return runMany(ops, 1, func() error {
		tasks, err := pollNow(ctx, n.app.Broker(), claimer, protocol.KindActivity, 1)
		if err == nil && len(tasks) != 1 {
			err = fmt.Errorf("a poll found %d tasks", len(tasks))
		}
		return err
	})
}

// perStep is the number of history events of a step in a long run.
const perStep = 2

// longSteps returns the number of steps of a run with a number of events.
func longSteps(events int, _ bool) int { return events / perStep }

// eachUsed is the processor time of an operation, in milliseconds.
func eachUsed(s sample) float64 { return millis(s.used) / float64(len(s.each)) }

// longRun measures one run of ops sequential activities until it closes.
func longRun(ctx context.Context, n *node, ops int) (sample, error) { return oneLongRun(ctx, n, ops) }

// oneWide measures one run of ops concurrent activities.
func oneWide(ctx context.Context, n *node, ops int) (sample, error) {
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	n.arrivals.takeAll()
	start := time.Now()
	if err := c.wide(ctx, n, ops); err != nil {
		return sample{}, err
	}
	s := sample{elapsed: time.Since(start), each: n.arrivals.takeAll()[burned]}
	return s, allCompleted(ctx, n.app.View())
}

// onEachApp runs ops workflows, an equal part of them on each app that shares the database, with its own worker and
// queue.
func onEachApp(ctx context.Context, n *node, ops int) (all sample, err error) {
	in, err := input()
	if err != nil {
		return all, err
	}
	nodes := append([]*node{n}, n.others...)
	parts, failed := make([]sample, len(nodes)), make([]error, len(nodes))
	var group sync.WaitGroup
	start := time.Now()
	for i, one := range nodes {
		group.Go(func() {
			c := watch(&one.app.Dispatch().Hub)
			defer c.stop()
			parts[i], failed[i] = runMany(ops/len(nodes), 128/len(nodes), func() error {
				return c.wait(ctx, func(id string) error {
					_, err := one.app.Broker().Start(ctx, protocol.StartRequest{
						WorkflowID: id, WorkflowType: "five", TaskQueue: one.queue, Input: in,
					})
					return err
				})
			})
		})
	}
	group.Wait()
	all.elapsed = time.Since(start)
	for _, p := range parts {
		all.each = append(all.each, p.each...)
	}
	if err := errors.Join(failed...); err != nil {
		return all, err
	}
	return all, allCompleted(ctx, n.app.View())
}

// workersOverHTTP returns scenario P4 with the given number of workers, each with one HTTP connection.
func workersOverHTTP(workers int) func(context.Context, *node, int) (sample, error) {
	return func(ctx context.Context, n *node, ops int) (sample, error) {
		return fiveOverHTTP(ctx, n, ops, workers, 1)
	}
}
