package channel

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Changes are collected for hintGather and then sent, at most once per hintEvery. A new topic of a page also gets the
// changes of the last hintMemory, since the page may have read its data before this app knew the topic.
const (
	hintGather = 100 * time.Millisecond
	hintEvery  = time.Second
	hintMemory = 3 * time.Second
	maxTopics  = 100 // maximum per page
)

// topics holds the topics that a page subscribed to. A page gets no hints before it subscribes or while it is not
// visible.
type topics struct {
	mu  sync.Mutex // guards the topics
	all []protocol.Topic
}

func (t *topics) get() []protocol.Topic {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// set replaces the topics and returns the topics that are new.
func (t *topics) set(to []protocol.Topic) (fresh []protocol.Topic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, topic := range to {
		if !slices.Contains(t.all, topic) {
			fresh = append(fresh, topic)
		}
	}
	t.all = to
	return fresh
}

// openBrowser receives the topics of a page; each message contains all of them.
func (c *Channel) openBrowser(s *socketio.Socket) {
	b, ok := s.Principal().(*browser)
	if !ok {
		return
	}
	s.On(protocol.EventWatch, func(_ context.Context, args []json.RawMessage) ([]any, error) {
		var asked struct {
			Topics []protocol.Topic `json:"topics"`
		}
		if len(args) == 0 || json.Unmarshal(args[0], &asked) != nil || len(asked.Topics) > maxTopics {
			//nolint:nilerr // the refusal is the answer
			return []any{rpc.Failure(rpc.Errorf(
				string(protocol.ReasonMalformedPayload), http.StatusUnprocessableEntity, "the argument must be {topics}, at most %d",
				maxTopics,
			))}, nil
		}
		fresh := b.topics.set(asked.Topics)
		c.recent.mu.Lock()
		rounds := slices.Clone(c.recent.rounds)
		c.recent.mu.Unlock()
		for _, r := range rounds {
			if time.Since(r.at) < hintMemory {
				c.sendHints(s, b, r, fresh)
			}
		}
		return []any{map[string]bool{"ok": true}}, nil
	})
}

// hintBatch holds the changes between two hint messages.
type hintBatch struct {
	at       time.Time
	overflow bool
	runs     map[string]*store.RunChange // run changes by run ID
	// kinds of objects with changes in a namespace, and kinds that also change without a commit
	kinds map[protocol.Topic]bool
}

// recentBatches holds the batches of the last hintMemory.
type recentBatches struct {
	mu     sync.Mutex // guards rounds
	rounds []*hintBatch
}

func (r *recentBatches) add(one *hintBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds = slices.DeleteFunc(r.rounds, func(old *hintBatch) bool { return time.Since(old.at) >= hintMemory })
	r.rounds = append(r.rounds, one)
}

// broadcastHints sends hints of changes to dashboards.
func (c *Channel) broadcastHints() {
	w := c.opt.Hub.Watch(dispatch.TopicRuns | dispatch.TopicSessions | dispatch.TopicWorkers)
	defer w.Close()
	pause := time.NewTimer(time.Hour)
	pause.Stop()
	defer pause.Stop()
	var last time.Time
	for {
		select {
		case <-c.life.Done():
			return
		case <-w.C:
		}
		pause.Reset(max(hintGather, hintEvery-time.Since(last)))
		select {
		case <-c.life.Done():
			return
		case <-pause.C:
		}
		last = time.Now()
		r := newHintBatch(w.Take())
		c.recent.add(r)
		for _, s := range c.browsers.Sockets() {
			if b, ok := s.Principal().(*browser); ok {
				c.sendHints(s, b, r, b.topics.get())
			}
		}
	}
}

func newHintBatch(changed store.Changed, overflow bool) *hintBatch {
	r := &hintBatch{
		at: time.Now(), overflow: overflow, runs: map[string]*store.RunChange{}, kinds: map[protocol.Topic]bool{},
	}
	one := func(kind, namespace, id string) {
		r.kinds[protocol.Topic{Kind: kind, Namespace: namespace}] = true
		r.kinds[protocol.Topic{Kind: kind, Namespace: namespace, ID: id}] = true
	}
	for i := range changed.Runs {
		run := &changed.Runs[i]
		r.runs[run.RunID] = run
		if run.OnlyRenewed { // renewals change what the page of the run shows, but not the list of runs
			r.kinds[protocol.Topic{Kind: "run", Namespace: run.Namespace, ID: run.RunID}] = true
			continue
		}
		one("run", run.Namespace, run.RunID)
	}
	for _, k := range changed.Sessions {
		one("session", k.Namespace, k.ID)
	}
	for _, k := range changed.Workers {
		one("worker", k.Namespace, k.ID)
	}
	return r
}

// sendHints sends a page one hint for each of its topics that changed in a round.
func (c *Channel) sendHints(s *socketio.Socket, b *browser, r *hintBatch, of []protocol.Topic) {
	for _, t := range of {
		if !r.overflow && !r.kinds[t] || c.opt.InNamespace != nil && !c.opt.InNamespace(b.principal, t.Namespace) {
			continue
		}
		h := protocol.Hint{Kind: t.Kind, ID: t.ID, Namespace: t.Namespace}
		if run := r.runs[t.ID]; run != nil && t.Kind == "run" {
			h.WorkflowID, h.LastSeq = run.WorkflowID, run.LastSeq
		}
		_ = s.Emit(protocol.EventHint, h) // a browser that does not read is disconnected by its connection's time-out
	}
}
