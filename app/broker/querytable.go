package broker

import (
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// query is one that a caller of this app waits for. All but what its task needs to know is guarded by the table's mu.
type query struct {
	id        string
	head      engine.Head
	name      string
	arguments string
	until     time.Time         // deadline of the caller, and of the lease
	answer    chan queryOutcome // holds one

	owner, incarnation string // empty: it waits for a worker
	attempt            int64
	over               bool
}

type queryOutcome struct {
	result  string
	failure *protocol.Failure
}

type queueKey struct{ namespace, queue string }

func (q *query) queue() queueKey { return queueKey{q.head.Namespace, q.head.Queue} }

// queryTable holds the queries that callers of this app wait for, in the order they came. Nothing of it outlives the callers.
type queryTable struct {
	mu    sync.Mutex // guards what follows
	all   map[string]*query
	ready map[queueKey][]*query
}

// add puts a query in line; false means that too many wait.
func (t *queryTable) add(q *query) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ready[q.queue()]) >= maxQueries {
		return false
	}
	if t.all == nil {
		t.all, t.ready = map[string]*query{}, map[queueKey][]*query{}
	}
	t.all[q.id] = q
	t.ready[q.queue()] = append(t.ready[q.queue()], q)
	return true
}

// tally counts the queries of a namespace by queue.
func (t *queryTable) tally(namespace string) map[string]protocol.QueryTally {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := map[string]protocol.QueryTally{}
	for _, q := range t.all {
		if q.head.Namespace != namespace || q.over {
			continue
		}
		c := m[q.head.Queue]
		if q.owner == "" {
			c.Ready++
		} else {
			c.Leased++
		}
		m[q.head.Queue] = c
	}
	return m
}

// drop forgets a query whose caller has left.
func (t *queryTable) drop(q *query) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, q.id)
	t.unready(q)
}

func (t *queryTable) unready(q *query) {
	k := q.queue()
	t.ready[k] = slices.DeleteFunc(t.ready[k], func(o *query) bool { return o == q })
	if len(t.ready[k]) == 0 {
		delete(t.ready, k)
	}
}

// get is a copy of a query as it is now.
func (t *queryTable) get(id string) (query, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.all[id]; q != nil {
		return *q, true
	}
	return query{}, false
}

// claim leases queries to pollers, first come first served on both sides. Those that no poller may have stay.
func (t *queryTable) claim(r store.ClaimRequest) []store.Leased {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []store.Leased
	given := make([]int, len(r.Pollers))
	for _, q := range slices.Clone(t.ready[queueKey{r.Namespace, r.Queue}]) {
		for i, p := range r.Pollers {
			if given[i] >= p.Max || !mayAnswer(p.Lessee.Worker, &q.head) {
				continue
			}
			given[i]++
			t.unready(q)
			q.owner, q.incarnation = p.Lessee.Worker.ID, p.Lessee.Worker.Incarnation
			q.attempt++
			out = append(out, store.Leased{Kind: protocol.KindQuery, Head: q.head, Query: q.id, Poller: i})
			break
		}
	}
	return out
}

// release puts a query back at the head of its line, when this attempt is the one under way; attempt 0 means whichever is.
func (t *queryTable) release(id string, attempt int64) (query, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.all[id]
	if q == nil || q.over || q.owner == "" || attempt != 0 && attempt != q.attempt {
		return query{}, false
	}
	q.owner, q.incarnation = "", ""
	t.ready[q.queue()] = slices.Insert(t.ready[q.queue()], 0, q)
	return *q, true
}

// settle takes an outcome, once, from whoever holds the query.
func (t *queryTable) settle(in protocol.CompleteItem) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.all[in.TaskID]
	switch {
	case q == nil || q.head.Namespace != namespace(in.Namespace):
		return "", noQuery(in.TaskID)
	case q.over || q.owner == "":
		return "", protocol.Refuse(protocol.ReasonQueryNotLeased, "query task %s is leased to nobody", q.id)
	case q.owner != in.Owner || in.Incarnation != "" && in.Incarnation != q.incarnation:
		return "", protocol.Refuse(protocol.ReasonLeaseOwnerMismatch, "query task %s is leased to %s", q.id, q.owner).With("lease_owner", q.owner)
	case q.attempt != in.Attempt:
		return "", protocol.Refuse(protocol.ReasonQueryAttempt, "query task %s is at attempt %d", q.id, q.attempt).With("current_attempt", q.attempt)
	case !time.Now().Before(q.until):
		return "", protocol.Refuse(protocol.ReasonLeaseExpired, "the lease of query task %s ended", q.id).With("lease_expires_at", history.At(q.until))
	}
	q.over = true
	if in.Failure != nil {
		q.answer <- queryOutcome{failure: in.Failure}
		return "failed", nil
	}
	q.answer <- queryOutcome{result: in.Result.Blob}
	return "completed", nil
}
