package runner

import (
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// cache keeps the machines of runs between their workflow tasks, the most recently used ones. A machine is in the cache
// or in the hands of one task. Machines are closed outside of the lock: their end may wait for goroutines of theirs.
type cache struct {
	most int

	mu   sync.Mutex                                // guards what follows
	runs *simplelru.LRU[string, *workflow.Machine] // nil once the cache is closed
}

func newCache(most int) *cache {
	runs, _ := simplelru.NewLRU[string, *workflow.Machine](max(most, 1), nil) // fails for a size below one only
	return &cache{most: most, runs: runs}
}

// takeMachine gives the machine of a run away, or nil.
func (c *cache) takeMachine(run string) *workflow.Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		return nil
	}
	m, _ := c.runs.Peek(run)
	c.runs.Remove(run)
	return m
}

// put keeps a machine, in place of any other of the run.
func (c *cache) put(run string, m *workflow.Machine) {
	for _, m := range c.replace(run, m) {
		m.Close()
	}
}

// replace is put without closing: it returns the machines that the cache has no place for.
func (c *cache) replace(run string, m *workflow.Machine) (out []*workflow.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil || c.most < 1 {
		return append(out, m)
	}
	if old, ok := c.runs.Peek(run); ok {
		out = append(out, old)
	} else if c.runs.Len() >= c.most {
		_, oldest, _ := c.runs.RemoveOldest()
		out = append(out, oldest)
	}
	c.runs.Add(run, m)
	return out
}

// drop throws the machine of a run away.
func (c *cache) drop(run string) {
	if m := c.takeMachine(run); m != nil {
		m.Close()
	}
}

// close throws everything away, now and from now on.
func (c *cache) close() {
	c.mu.Lock()
	var all []*workflow.Machine
	if c.runs != nil {
		all = c.runs.Values()
	}
	c.runs = nil
	c.mu.Unlock()
	for _, m := range all {
		m.Close()
	}
}

// runOf is the run a workflow task belongs to: its id is RUN-n-workflow.
func runOf(task string) string {
	run, _, _ := strings.Cut(task, "-")
	return run
}
