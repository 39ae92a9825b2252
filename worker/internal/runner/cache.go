package runner

import (
	"context"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// cache is the sticky cache: an LRU of the machines of runs. A machine is the running code of a workflow with its
// goroutines; caching it saves the replay of the history in the next workflow task. Eviction is always safe, because
// the worker that gets the next task replays the run. A machine is either in the cache or owned by one workflow task
// or eager workflow task. Machines are closed without the lock, since Close may wait for their goroutines.
type cache struct {
	most int

	mu   sync.Mutex                    // guards what follows
	runs *simplelru.LRU[string, *kept] // nil once the cache is closed
	// runs with an eager workflow task that the app has not answered; the channel is closed when the app has
	ahead map[string]chan struct{}
}

type kept struct {
	machine *workflow.Machine
	tail    []history.Event // that are known here, behind what the machine has seen
}

func newCache(most int) *cache {
	runs, _ := simplelru.NewLRU[string, *kept](max(most, 1), nil) // fails for a size below one only
	return &cache{most: most, runs: runs, ahead: map[string]chan struct{}{}}
}

// takeMachine removes the machine of a run from the cache and returns it, or nil.
func (c *cache) takeMachine(run string) *workflow.Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.takeOut(run); k != nil {
		return k.machine
	}
	return nil
}

// takeOut removes a run. The caller must hold mu.
func (c *cache) takeOut(run string) *kept {
	if c.runs == nil {
		return nil
	}
	k, _ := c.runs.Peek(run)
	c.runs.Remove(run)
	return k
}

// await removes the machine of a run from the cache and returns it for a task of the run, or nil. If the run has an
// eager workflow task, await first waits until the app has accepted or rejected it.
func (c *cache) await(ctx context.Context, run string) *kept {
	for {
		c.mu.Lock()
		// Both are read under one lock: otherwise the eager task could end in between, and await would find neither.
		k, ahead := c.takeOut(run), c.ahead[run]
		c.mu.Unlock()
		if k != nil || ahead == nil {
			return k
		}
		select {
		case <-ahead:
		case <-ctx.Done():
			return nil
		}
	}
}

// goAhead removes the machine of a run for an eager workflow task; nil if it is not available. The caller must call
// settled afterwards.
func (c *cache) goAhead(run string) *kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead[run] != nil {
		return nil
	}
	k := c.takeOut(run)
	if k != nil {
		c.ahead[run] = make(chan struct{})
	}
	return k
}

// settled ends a turn, whose machine is back or closed.
func (c *cache) settled(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.ahead[run])
	delete(c.ahead, run)
}

// put caches a machine with the events that it has not applied yet. It replaces another machine of the run.
func (c *cache) put(run string, m *workflow.Machine, tail ...history.Event) {
	for _, m := range c.replace(run, &kept{m, tail}) {
		m.Close()
	}
}

// replace is put without closing: it returns the machines that were evicted.
func (c *cache) replace(run string, k *kept) (out []*workflow.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil || c.most < 1 {
		return append(out, k.machine)
	}
	if old, ok := c.runs.Peek(run); ok {
		out = append(out, old.machine)
	} else if c.runs.Len() >= c.most {
		_, oldest, _ := c.runs.RemoveOldest()
		out = append(out, oldest.machine)
	}
	c.runs.Add(run, k)
	return out
}

// drop throws the machine of a run away.
func (c *cache) drop(run string) {
	if m := c.takeMachine(run); m != nil {
		m.Close()
	}
}

// kept returns the cached runs with the last event that each machine has applied.
func (c *cache) kept() (list []protocol.KeptRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		return nil
	}
	for _, run := range c.runs.Keys() {
		if k, ok := c.runs.Peek(run); ok {
			list = append(list, protocol.KeptRun{RunID: run, Seen: k.machine.Seen()})
		}
	}
	return list
}

// close throws everything away, now and from now on.
func (c *cache) close() {
	c.mu.Lock()
	var all []*kept
	if c.runs != nil {
		all = c.runs.Values()
	}
	c.runs = nil
	c.mu.Unlock()
	for _, k := range all {
		k.machine.Close()
	}
}

// runOf is the run a workflow task belongs to: its id is RUN-n-workflow.
func runOf(task string) string {
	run, _, _ := strings.Cut(task, "-")
	return run
}
