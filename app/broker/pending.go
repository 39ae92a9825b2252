package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// pendingQuestions is where questions wait until a worker takes them and its reply goes back: in memory when this app
// has the database to itself, else in the database. Nothing in it outlives the callers.
type pendingQuestions interface {
	// add adds a question for that long; store.ErrFull when most wait there already.
	add(ctx context.Context, q store.Question, patience time.Duration, most int) error
	// waiting lists up to limit questions that wait in a line, oldest first.
	waiting(ctx context.Context, line questionQueue, limit int) ([]store.Question, error)
	// lease gives one to its Owner under its Attempt; false when somebody was faster.
	lease(ctx context.Context, q store.Question) (bool, error)
	// get is a question as it stands; store.ErrNotFound when its caller has left.
	get(ctx context.Context, id string) (store.Question, error)
	// requeue puts a question back in line; attempt 0 means whichever is under way.
	requeue(ctx context.Context, id string, attempt int64) error
	// complete takes the reply of the live lease; false when there is none such.
	complete(ctx context.Context, q store.Question, r store.Reply) (bool, error)
	// reply waits for the answer.
	reply(ctx context.Context, id string) (store.Reply, error)
	// count counts the unanswered questions of a kind in a namespace by queue.
	count(ctx context.Context, namespace string, kind protocol.TaskKind) (map[string]protocol.QueryTally, error)
	// remove takes a question away whose caller has left.
	remove(ctx context.Context, id string) error
}

type questionQueue struct {
	namespace, queue string
	kind             protocol.TaskKind
}

func lineOf(q *store.Question) questionQueue { return questionQueue{q.Namespace, q.Queue, q.Kind} }

// memoryQuestions holds the pending questions of the only app there is.
type memoryQuestions struct {
	backlog func(questionQueue)

	mu    sync.Mutex // guards what follows
	all   map[string]*pendingQuestion
	ready map[questionQueue][]*pendingQuestion // in the order they came
}

// pendingQuestion is one of memoryQuestions, guarded by its mu.
type pendingQuestion struct {
	store.Question
	answer chan store.Reply // holds one
}

func newMemoryQuestions(backlog func(questionQueue)) *memoryQuestions {
	return &memoryQuestions{
		backlog: backlog, all: map[string]*pendingQuestion{}, ready: map[questionQueue][]*pendingQuestion{},
	}
}

func (d *memoryQuestions) add(_ context.Context, q store.Question, patience time.Duration, most int) error {
	line := lineOf(&q)
	q.Until = time.Now().Add(patience)
	d.mu.Lock()
	if len(d.ready[line]) >= most {
		d.mu.Unlock()
		return store.ErrFull
	}
	l := &pendingQuestion{Question: q, answer: make(chan store.Reply, 1)}
	d.all[q.ID] = l
	d.ready[line] = append(d.ready[line], l)
	d.mu.Unlock()
	d.backlog(line)
	return nil
}

func (d *memoryQuestions) waiting(_ context.Context, line questionQueue, limit int) (list []store.Question, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.ready[line][:min(limit, len(d.ready[line]))] {
		list = append(list, l.Question)
	}
	return list, nil
}

func (d *memoryQuestions) lease(_ context.Context, q store.Question) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.all[q.ID]
	if l == nil || l.Over || l.Owner != "" || l.Attempt != q.Attempt-1 {
		return false, nil
	}
	l.Owner, l.Incarnation, l.Attempt = q.Owner, q.Incarnation, q.Attempt
	d.unready(l)
	return true, nil
}

func (d *memoryQuestions) unready(l *pendingQuestion) {
	line := lineOf(&l.Question)
	d.ready[line] = slices.DeleteFunc(d.ready[line], func(o *pendingQuestion) bool { return o == l })
	if len(d.ready[line]) == 0 {
		delete(d.ready, line)
	}
}

func (d *memoryQuestions) get(_ context.Context, id string) (store.Question, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.all[id]; l != nil {
		return l.Question, nil
	}
	return store.Question{}, store.ErrNotFound
}

func (d *memoryQuestions) requeue(_ context.Context, id string, attempt int64) error {
	d.mu.Lock()
	l := d.all[id]
	if l == nil || l.Over || l.Owner == "" || attempt != 0 && attempt != l.Attempt {
		d.mu.Unlock()
		return nil
	}
	l.Owner, l.Incarnation = "", ""
	line := lineOf(&l.Question)
	d.ready[line] = slices.Insert(d.ready[line], 0, l)
	d.mu.Unlock()
	d.backlog(line)
	return nil
}

func (d *memoryQuestions) complete(_ context.Context, q store.Question, r store.Reply) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.all[q.ID]
	if l == nil || l.Over || l.Owner != q.Owner || l.Attempt != q.Attempt || !time.Now().Before(l.Until) {
		return false, nil
	}
	l.Over = true
	l.answer <- r
	return true, nil
}

func (d *memoryQuestions) reply(ctx context.Context, id string) (store.Reply, error) {
	d.mu.Lock()
	l := d.all[id]
	d.mu.Unlock()
	if l == nil {
		return store.Reply{}, store.ErrNotFound
	}
	select {
	case r := <-l.answer:
		return r, nil
	case <-ctx.Done():
		return store.Reply{}, context.Cause(ctx)
	}
}

func (d *memoryQuestions) count(
	_ context.Context, namespace string, kind protocol.TaskKind,
) (map[string]protocol.QueryTally, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := map[string]protocol.QueryTally{}
	for _, l := range d.all {
		if l.Namespace != namespace || l.Kind != kind || l.Over {
			continue
		}
		t := m[l.Queue]
		if l.Owner == "" {
			t.Ready++
		} else {
			t.Leased++
		}
		m[l.Queue] = t
	}
	return m, nil
}

func (d *memoryQuestions) remove(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.all[id]; l != nil {
		delete(d.all, id)
		d.unready(l)
	}
	return nil
}

// storedQuestions holds the pending questions of several apps: a table of the database they share.
type storedQuestions struct {
	store.Questions
	watch func(id string) (<-chan struct{}, func())
}

// lookAgain is how often a caller looks for its answer by itself: the hint that there is one may be lost.
const lookAgain = 2 * time.Second

func (d *storedQuestions) add(ctx context.Context, q store.Question, patience time.Duration, most int) error {
	return d.Ask(ctx, q, patience, most)
}

func (d *storedQuestions) waiting(ctx context.Context, l questionQueue, limit int) ([]store.Question, error) {
	return d.Waiting(ctx, l.namespace, l.queue, l.kind, limit)
}

func (d *storedQuestions) lease(ctx context.Context, q store.Question) (bool, error) {
	return d.Lease(ctx, q)
}

func (d *storedQuestions) get(ctx context.Context, id string) (store.Question, error) {
	return d.Question(ctx, id)
}

func (d *storedQuestions) requeue(ctx context.Context, id string, attempt int64) error {
	return d.Unlease(ctx, id, attempt)
}

func (d *storedQuestions) complete(ctx context.Context, q store.Question, r store.Reply) (bool, error) {
	return d.Settle(ctx, q, r)
}

func (d *storedQuestions) reply(ctx context.Context, id string) (store.Reply, error) {
	answered, stop := d.watch(id)
	defer stop()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		r, ok, err := d.Reply(ctx, id)
		switch {
		case ctx.Err() != nil:
			return store.Reply{}, context.Cause(ctx)
		case ok, errors.Is(err, store.ErrNotFound):
			return r, err
		}
		select { // an error may pass
		case <-answered:
		case <-again.C:
		case <-ctx.Done():
			return store.Reply{}, context.Cause(ctx)
		}
	}
}

func (d *storedQuestions) count(
	ctx context.Context, namespace string, kind protocol.TaskKind,
) (map[string]protocol.QueryTally, error) {
	return d.Tally(ctx, namespace, kind)
}

func (d *storedQuestions) remove(ctx context.Context, id string) error { return d.Forget(ctx, id) }
