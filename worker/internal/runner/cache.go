package runner

import (
	"context"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// cache is the sticky cache: an LRU cache of the replay machines of runs. A machine is the running code of a workflow
// with its goroutines; caching it saves the replay of the history in the next workflow task. Eviction is always safe,
// because the worker that gets the next task replays the run. A machine is either in the cache, or owned by one
// workflow task or eager workflow task. Machines are closed without holding the lock, since Close may wait for their
// goroutines.
type cache struct {
	size int

	mu   sync.Mutex                         // guards the fields below
	runs *simplelru.LRU[string, *cachedRun] // nil after close
	// runs with an eager workflow task to which the app has not responded; the channel is closed when it has
	eager map[string]chan struct{}
}

type cachedRun struct {
	machine replay.Machine
	tail    []history.Event // known events that the machine has not applied yet
}

func newCache(most int) *cache {
	runs, _ := simplelru.NewLRU[string, *cachedRun](max(most, 1), nil) // NewLRU fails only for a size below one
	return &cache{size: most, runs: runs, eager: map[string]chan struct{}{}}
}

// removeMachine removes the replay machine of a run from the cache and returns it, or nil.
func (c *cache) removeMachine(run string) replay.Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.remove(run); k != nil {
		return k.machine
	}
	return nil
}

// remove removes a run. The caller must hold mu.
func (c *cache) remove(run string) *cachedRun {
	if c.runs == nil {
		return nil
	}
	k, _ := c.runs.Peek(run)
	c.runs.Remove(run)
	return k
}

// await removes the replay machine of a run from the cache and returns it for a task of the run, or nil. If the run has
// an eager workflow task, await first waits until the app has accepted or rejected that task.
func (c *cache) await(ctx context.Context, run string) *cachedRun {
	for {
		c.mu.Lock()
		// Read both under one lock: otherwise the eager task could end in between, and await would find neither.
		k, eager := c.remove(run), c.eager[run]
		c.mu.Unlock()
		if k != nil || eager == nil {
			return k
		}
		select {
		case <-eager:
		case <-ctx.Done():
			return nil
		}
	}
}

// removeForEager removes the replay machine of a run for an eager workflow task and returns it; nil if the cache does
// not have it. The caller must call finishEager afterwards.
func (c *cache) removeForEager(run string) *cachedRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eager[run] != nil {
		return nil
	}
	k := c.remove(run)
	if k != nil {
		c.eager[run] = make(chan struct{})
	}
	return k
}

// finishEager records that an eager workflow task of a run has ended: its machine is cached again or closed.
func (c *cache) finishEager(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.eager[run])
	delete(c.eager, run)
}

// add caches a replay machine with the events that it has not applied yet. If the cache has another machine of the run,
// add closes that one.
func (c *cache) add(run string, m replay.Machine, tail ...history.Event) {
	for _, m := range c.insert(run, &cachedRun{m, tail}) {
		m.Close()
	}
}

// insert is like add, but returns the evicted replay machines instead of closing them.
func (c *cache) insert(run string, k *cachedRun) (out []replay.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil || c.size < 1 {
		return append(out, k.machine)
	}
	if old, ok := c.runs.Peek(run); ok {
		out = append(out, old.machine)
	} else if c.runs.Len() >= c.size {
		_, oldest, _ := c.runs.RemoveOldest()
		out = append(out, oldest.machine)
	}
	c.runs.Add(run, k)
	return out
}

// evict closes the cached replay machine of a run.
func (c *cache) evict(run string) {
	if m := c.removeMachine(run); m != nil {
		m.Close()
	}
}

// entries returns the cached runs with the last event that each replay machine has applied.
func (c *cache) entries() (list []protocol.CachedRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		return nil
	}
	for _, run := range c.runs.Keys() {
		if k, ok := c.runs.Peek(run); ok {
			list = append(list, protocol.CachedRun{RunID: run, Seen: k.machine.Seen()})
		}
	}
	return list
}

// close closes all replay machines; the cache stays empty.
func (c *cache) close() {
	c.mu.Lock()
	var all []*cachedRun
	if c.runs != nil {
		all = c.runs.Values()
	}
	c.runs = nil
	c.mu.Unlock()
	for _, k := range all {
		k.machine.Close()
	}
}

// runOf returns the run ID of a workflow task, whose ID is RUN-n-workflow.
func runOf(task string) string {
	run, _, _ := strings.Cut(task, "-")
	return run
}
