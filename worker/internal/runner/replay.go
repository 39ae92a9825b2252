package runner

import (
	"context"
	cores "runtime"
	"sync"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A replay uses memory for the history and a whole core, so the number of concurrent replays is much lower than the
// number of workflow slots.
const (
	replayMemory = 64 << 20 // maximum size of all histories that are being replayed, in bytes
	shortRun     = 100      // a replay of at most this many events, all contained in the task, needs no slot
)

// replays limits the number of concurrent replays and the memory for their histories. The oldest replay may exceed the
// memory limit: if every replay waited for memory, none would finish.
type replays struct {
	maxReplays, maxBytes int

	mu      sync.Mutex    // guards the fields below
	all     []*replaySlot // replays in progress, oldest first
	used    int
	changed chan struct{} // closed and replaced when a replay ends
}

// replaySlot is the slot of a replay in progress.
type replaySlot struct {
	of       *replays
	bytes    int
	released bool
}

func newReplays() *replays {
	return &replays{maxReplays: 2 * cores.GOMAXPROCS(0), maxBytes: replayMemory, changed: make(chan struct{})}
}

// needsReplaySlot reports whether a task without a cached replay machine needs a slot for replays: its history has
// several pages or many events.
func needsReplaySlot(t *protocol.WorkflowTask) bool {
	return t.NextPageToken != nil || len(t.Events) == 0 || t.Events[0].Seq != 1 || len(t.Events) > shortRun
}

// begin waits for a slot.
func (p *replays) begin(ctx context.Context) (*replaySlot, error) {
	r := &replaySlot{of: p}
	err := p.until(ctx, func() bool {
		if len(p.all) >= p.maxReplays {
			return false
		}
		p.all = append(p.all, r)
		return true
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// reserve counts events that were read, and waits until there is memory for the next page.
func (r *replaySlot) reserve(ctx context.Context, events []history.Event) error {
	if r == nil {
		return nil
	}
	p := r.of
	n := 0
	for i := range events {
		n += weight(&events[i])
	}
	p.mu.Lock()
	p.used += n
	r.bytes += n
	p.mu.Unlock()
	// Count the page before waiting, since it is already in memory; only the next page waits.
	return p.until(ctx, func() bool { return p.used < p.maxBytes || p.all[0] == r })
}

// release frees the slot and its memory for other replays. Further calls have no effect.
func (r *replaySlot) release() {
	if r == nil {
		return
	}
	p := r.of
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.released {
		return
	}
	r.released = true
	for i, one := range p.all {
		if one == r {
			p.all = append(p.all[:i:i], p.all[i+1:]...)
			break
		}
	}
	p.used -= r.bytes
	close(p.changed)
	p.changed = make(chan struct{})
}

// until waits until ready returns true. It calls ready with mu held.
func (p *replays) until(ctx context.Context, ready func() bool) error {
	for {
		p.mu.Lock()
		ok, changed := ready(), p.changed
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// weight returns the approximate size of an event in bytes.
func weight(e *history.Event) int {
	const bare = 400
	switch d := e.Data.(type) {
	case *history.WorkflowStarted:
		return bare + len(d.Arguments)
	case *history.ActivityScheduled:
		return bare + len(d.Arguments)
	case *history.ActivityCompleted:
		return bare + len(d.Result)
	case *history.SideEffectRecorded:
		return bare + len(d.Result)
	case *history.SignalReceived:
		return bare + len(d.Value)
	case *history.SignalApplied:
		return bare + len(d.Value)
	case *history.ChildWorkflowScheduled:
		return bare + len(d.Arguments)
	case *history.ChildRunCompleted:
		return bare + len(d.Result)
	case *history.UpdateAccepted:
		return bare + len(d.Arguments)
	case *history.UpdateApplied:
		return bare + len(d.Arguments)
	case *history.UpdateCompleted:
		return bare + len(d.Result)
	}
	return bare
}
