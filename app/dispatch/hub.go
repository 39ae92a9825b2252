package dispatch

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// Readers that follow runs, and other apps, must learn that rows changed. The hub sends them hints, which may be merged
// or lost, so that a slow reader never delays a commit. The receiver of a hint reads the rows.

// Hub publishes what commits changed, as hints. Publishing never blocks. Hints that are not fetched are merged; if
// there are too many, the hub drops them and reports an overflow to the watcher.
type Hub struct {
	mu      sync.Mutex // guards all fields below and those of Watches
	runs    map[string]map[chan struct{}]struct{}
	watches map[*Watch]struct{}
	ends    runEnds
	changes atomic.Uint64
}

// Changes returns a counter of the changes that this app knows. While the counter is constant, this app knows of no
// change.
func (h *Hub) Changes() uint64 { return h.changes.Load() }

// WatchRun returns a channel that receives when the run got events since the last receive, and a function that ends the
// watch. If it is called before the run is read, no event is missed.
func (h *Hub) WatchRun(id string) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs = map[string]map[chan struct{}]struct{}{}
	}
	if h.runs[id] == nil {
		h.runs[id] = map[chan struct{}]struct{}{}
	}
	h.runs[id][c] = struct{}{}
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.runs[id], c)
		if len(h.runs[id]) == 0 {
			delete(h.runs, id)
		}
	}
}

// WatchResponse is like WatchRun, for a query task: the channel receives when the query task has a reply.
func (h *Hub) WatchResponse(id string) (<-chan struct{}, func()) {
	return h.WatchRun(questionPrefix + id)
}

// questionPrefix is the prefix of IDs of query tasks among the run IDs.
const questionPrefix = "question "

// Topics selects the hints of a Watch.
type Topics uint16

// These are the topics.
const (
	TopicRuns     Topics = 1 << iota // runs with new events; without their cancelled attempts
	TopicCancels                     // runs with cancelled attempts, and these attempts
	TopicSessions                    // sessions that changed
	TopicWorkers                     // workers whose registration changed
	TopicMoves                       // timeline entries of sessions: acquisitions, releases, ends
	// TopicSuperseded: processes that another app superseded, deregistered, or for which it changed the drain state.
	// After an overflow, any worker may be concerned.
	TopicSuperseded
	TopicLoose  // changes to sessions without an owner
	TopicTokens // tokens that were created, changed or deleted; after an overflow, any token
	TopicEnded  // runs that closed; after an overflow, any run
)

// watchLimit is the maximum number of hints that a Watch holds until Take.
const watchLimit = 10_000

// Watch collects hints until Take is called.
type Watch struct {
	// C receives a value when Take has hints to return.
	C <-chan struct{}

	hub    *Hub
	topics Topics
	c      chan struct{}
	// The fields below are guarded by hub.mu.
	runs         map[string]*store.RunChange
	order        []string // IDs of runs, in the order of their first hint
	sessions     map[engine.SessionKey]struct{}
	workers      map[engine.WorkerKey]struct{}
	moves        []store.SessionMove
	superseded   []store.Process // superseded
	drainChanged []store.Process
	tokens       []string
	size         int
	overflow     bool
}

// Watch starts to collect hints of the topics.
func (h *Hub) Watch(t Topics) *Watch {
	c := make(chan struct{}, 1)
	w := &Watch{C: c, c: c, hub: h, topics: t}
	w.reset()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watches == nil {
		h.watches = map[*Watch]struct{}{}
	}
	h.watches[w] = struct{}{}
	return w
}

// Close stops collecting hints.
func (w *Watch) Close() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	delete(w.hub.watches, w)
}

// Each calls took with the hints of the topics, again and again until ctx ends. overflow reports that hints were
// dropped.
func (h *Hub) Each(ctx context.Context, t Topics, took func(c store.Changed, overflow bool)) {
	w := h.Watch(t)
	defer w.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.C:
			took(w.Take())
		}
	}
}

// Take returns the hints since the last Take: each run once with its latest event number, each session and worker once.
// overflow reports that hints were dropped, so anything may have changed.
func (w *Watch) Take() (c store.Changed, overflow bool) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	for _, id := range w.order {
		c.Runs = append(c.Runs, *w.runs[id])
	}
	for k := range w.sessions {
		c.Sessions = append(c.Sessions, k)
	}
	for k := range w.workers {
		c.Workers = append(c.Workers, k)
	}
	c.Moves, c.Superseded, c.DrainChanged, c.Tokens, overflow = w.moves, w.superseded, w.drainChanged, w.tokens, w.overflow
	w.reset()
	return c, overflow
}

func (w *Watch) reset() {
	w.runs, w.order = map[string]*store.RunChange{}, nil
	w.sessions, w.workers = map[engine.SessionKey]struct{}{}, map[engine.WorkerKey]struct{}{}
	w.moves, w.superseded, w.drainChanged, w.tokens, w.size, w.overflow = nil, nil, nil, nil, 0, false
}

// Changed sends the hints of a batch to all watches.
func (h *Hub) Changed(c store.Changed) {
	h.changes.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.runs) > 0 {
		for i := range c.Runs {
			for watcher := range h.runs[c.Runs[i].RunID] {
				nudge(watcher)
			}
		}
		for _, id := range c.Answers {
			for watcher := range h.runs[questionPrefix+id] {
				nudge(watcher)
			}
		}
	}
	for w := range h.watches {
		if w.add(c) {
			nudge(w.c)
		}
	}
	h.ends.changed(&c)
}

// missed reports an overflow to all watches, except watches of session moves only, because moves of other apps may be
// lost anyway.
func (h *Hub) missed() {
	h.changes.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, watchers := range h.runs {
		for c := range watchers {
			nudge(c)
		}
	}
	for w := range h.watches {
		if w.topics&^TopicMoves != 0 {
			w.overflow = true
			nudge(w.c)
		}
	}
	h.ends.missed()
}

// add adds the hints that the watch selects, and reports whether there were any.
func (w *Watch) add(c store.Changed) bool {
	some := false
	for i := range c.Runs {
		r := &c.Runs[i]
		if w.topics&TopicRuns == 0 && (w.topics&TopicCancels == 0 || len(r.Cancelled) == 0) &&
			(w.topics&TopicEnded == 0 || !r.Closed) {
			continue
		}
		some = true
		w.addRun(r)
	}
	if w.topics&TopicSessions != 0 {
		some = some || len(c.Sessions) > 0
		for _, k := range c.Sessions {
			if _, ok := w.sessions[k]; !ok && w.grow(1) {
				w.sessions[k] = struct{}{}
			}
		}
	}
	some = some || w.topics&TopicLoose != 0 && c.Loose
	if w.topics&TopicWorkers != 0 {
		some = some || len(c.Workers) > 0
		for _, k := range c.Workers {
			if _, ok := w.workers[k]; !ok && w.grow(1) {
				w.workers[k] = struct{}{}
			}
		}
	}
	if w.topics&TopicMoves != 0 && len(c.Moves) > 0 && w.grow(len(c.Moves)) {
		some = true
		w.moves = append(w.moves, c.Moves...)
	}
	if n := len(c.Superseded) + len(c.DrainChanged); w.topics&TopicSuperseded != 0 && n > 0 && w.grow(n) {
		some = true
		w.superseded, w.drainChanged = append(w.superseded, c.Superseded...), append(w.drainChanged, c.DrainChanged...)
	}
	if w.topics&TopicTokens != 0 && len(c.Tokens) > 0 && w.grow(len(c.Tokens)) {
		some = true
		w.tokens = append(w.tokens, c.Tokens...)
	}
	return some
}

func (w *Watch) addRun(r *store.RunChange) {
	known := w.runs[r.RunID]
	if known == nil {
		if !w.grow(1) {
			return
		}
		fresh := *r
		fresh.Cancelled, fresh.Closing = nil, nil
		known = &fresh
		w.runs[r.RunID] = known
		w.order = append(w.order, r.RunID)
	}
	known.LastSeq = max(known.LastSeq, r.LastSeq)
	known.Closed, known.ContinuedTo = known.Closed || r.Closed, cmp.Or(r.ContinuedTo, known.ContinuedTo)
	known.OnlyRenewed = known.OnlyRenewed && r.OnlyRenewed
	if w.topics&TopicCancels != 0 && len(r.Cancelled) > 0 && w.grow(len(r.Cancelled)) {
		known.Cancelled = append(known.Cancelled, r.Cancelled...)
	}
}

// grow makes space for n more hints, or sets overflow if there is none.
func (w *Watch) grow(n int) bool {
	if w.size+n > watchLimit {
		w.overflow = true
		return false
	}
	w.size += n
	return true
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
