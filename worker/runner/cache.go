package runner

import (
	"container/list"
	"strings"
	"sync"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// cache keeps the machines of runs between their workflow tasks, the most recently used ones. A machine is in the cache
// or in the hands of one task.
type cache struct {
	most int

	mu     sync.Mutex // guards what follows
	runs   map[string]*list.Element
	order  *list.List // of *kept, most recent first
	closed bool
}

type kept struct {
	run     string
	machine *workflow.Machine
}

func newCache(most int) *cache {
	return &cache{most: most, runs: map[string]*list.Element{}, order: list.New()}
}

// takeMachine gives the machine of a run away, or nil.
func (c *cache) takeMachine(run string) *workflow.Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.runs[run]
	if e == nil {
		return nil
	}
	delete(c.runs, run)
	c.order.Remove(e)
	return e.Value.(*kept).machine
}

// put keeps a machine, in place of any other of the run.
func (c *cache) put(run string, m *workflow.Machine) {
	var out []*workflow.Machine
	c.mu.Lock()
	if c.closed {
		out = append(out, m)
	} else {
		if e := c.runs[run]; e != nil {
			out = append(out, e.Value.(*kept).machine)
			c.order.Remove(e)
		}
		c.runs[run] = c.order.PushFront(&kept{run, m})
		for c.order.Len() > c.most {
			e := c.order.Back()
			c.order.Remove(e)
			delete(c.runs, e.Value.(*kept).run)
			out = append(out, e.Value.(*kept).machine)
		}
	}
	c.mu.Unlock()
	for _, m := range out {
		m.Close()
	}
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
	c.closed = true
	all := c.order
	c.runs, c.order = map[string]*list.Element{}, list.New()
	c.mu.Unlock()
	for e := all.Front(); e != nil; e = e.Next() {
		e.Value.(*kept).machine.Close()
	}
}

// runOf is the run a workflow task belongs to: its id is RUN-n-workflow.
func runOf(task string) string {
	run, _, _ := strings.Cut(task, "-")
	return run
}
