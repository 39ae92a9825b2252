package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// passages records when the steps of a long run were reached, and the processor time until then.
type passages struct {
	mu  sync.Mutex // guards at, cpu
	at  []time.Time
	cpu []time.Duration
}

func (p *passages) add() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.cpu = append(p.at, time.Now()), append(p.cpu, cpuTime())
}

// takeAll returns the recorded times and clears them.
func (p *passages) takeAll() ([]time.Time, []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, cpu := p.at, p.cpu
	p.at, p.cpu = nil, nil
	return at, cpu
}

// registerLong adds the workflow of one long run: activities one after the other.
func registerLong(r *worker.Registry, p *passages) {
	r.Workflow("long", func(ctx workflow.Context, activities int) error {
		for range activities {
			if err := workflow.ExecuteActivity(ctx, "pass").Get(ctx, nil); err != nil {
				return err
			}
		}
		return nil
	})
	r.Activity("pass", func(context.Context) error {
		p.add()
		return nil
	})
}

// oneLongRun measures one run of ops sequential activities: the processor time of a step near the end of the run and
// near its beginning. Each returned duration is that of one step.
func oneLongRun(ctx context.Context, n *node, ops int) (sample, error) {
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	n.passages.takeAll()
	began := time.Now()
	if err := c.workflow(ctx, n, "long", json.RawMessage(fmt.Sprintf("[%d]", ops))); err != nil {
		return sample{}, err
	}
	s := sample{elapsed: time.Since(began)}
	at, cpu := n.passages.takeAll()
	if len(at) != ops {
		return s, fmt.Errorf("%d activities ran, want %d", len(at), ops)
	}
	for _, t := range at {
		s.each, began = append(s.each, t.Sub(began)), t
	}
	if ops > 1 {
		part := max(1, ops/10)
		s.plain = cpu[part] - cpu[0]
		s.used = cpu[ops-1] - cpu[ops-1-part]
	}
	return s, allCompleted(ctx, n.app.View())
}

// ratio returns the processor time relative to that of the baseline.
func ratio(s sample) float64 { return float64(s.used) / float64(s.plain) }
