// Package querytask runs query tasks: queries and update validations. They appear in no history and end with their
// caller. A worker leases a query task like any other task, and its answer is returned to the caller. A query task
// whose caller has disconnected is removed.
package querytask

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// CapQueries is the capability of a worker that runs queries, CapValidation the capability of a worker that validates
// updates before they are accepted.
const (
	CapQueries    = "query_tasks"
	CapValidation = "update_validation_tasks"
)

// These are the errors of a query task that ended without a reply.
var (
	ErrUnclaimed  = errors.New("no worker leased it in time")
	ErrUnanswered = errors.New("no worker answered in time")
	ErrDraining   = errors.New("the app is draining")
	ErrNoWorker   = errors.New("the last worker that could respond has disconnected")
)

// NoReply is ErrUnanswered with the workers that leased the query task.
type NoReply struct{ Workers []string }

func (*NoReply) Error() string { return ErrUnanswered.Error() }

// Unwrap returns ErrUnanswered for callers that do not need the names.
func (*NoReply) Unwrap() error { return ErrUnanswered }

// Dispatch notifies pollers of query tasks, and callers of replies.
type Dispatch interface {
	Backlog(namespace, queue string, kind protocol.TaskKind, keys ...store.RoutingKey)
	WatchResponse(id string) (<-chan struct{}, func())
}

// Pending holds the query tasks that wait for their replies. All methods may be called from any goroutine.
type Pending struct {
	queue    queue
	store    transaction.Reads // contains the histories that query tasks read
	dispatch Dispatch
	draining <-chan struct{}
	log      zerolog.Logger
	// Avoid reports whether a worker process must not get this query task because another process may run it; nil: no
	// process is avoided.
	Avoid func(w *engine.Worker, q *store.Question) bool
	// Answerable reports whether a live worker may run the query task; nil: always.
	Answerable func(ctx context.Context, q *store.Question) bool

	mu        sync.Mutex    // guards departure
	departure chan struct{} // closed when a worker leaves
}

// reregistrationTime is the time between a worker's departure and the check whether another worker can answer, because
// a process that registers anew replaces the one before.
const reregistrationTime = 100 * time.Millisecond

// WorkerLeft ends the query tasks that no live worker may run with ErrNoWorker.
func (p *Pending) WorkerLeft() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.departure)
	p.departure = make(chan struct{})
}

func (p *Pending) nextDeparture() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.departure
}

// watch ends a query task when the app drains, or when no registered worker can answer it. left is closed when the next
// worker deregisters or expires.
func (p *Pending) watch(ctx context.Context, q *store.Question, left <-chan struct{}, end context.CancelCauseFunc) {
	for {
		select {
		case <-p.draining:
			end(ErrDraining)
			return
		case <-ctx.Done():
			return
		case <-left:
		}
		select {
		case <-time.After(reregistrationTime):
		case <-ctx.Done():
			return
		}
		left = p.nextDeparture() // read before the check, which may miss a worker that leaves during it
		if p.Answerable != nil && !p.Answerable(ctx, q) {
			end(ErrNoWorker)
			return
		}
	}
}

// New returns the query tasks of an app: in a table if several apps share the database (the store then has Questions),
// else in memory. Once draining is closed, no query task is dispatched.
func New(s store.Store, d Dispatch, draining <-chan struct{}, log zerolog.Logger) *Pending {
	p := &Pending{store: s, dispatch: d, draining: draining, log: log, departure: make(chan struct{})}
	if s, ok := s.(interface{ Questions() store.Questions }); ok {
		if q := s.Questions(); q != nil {
			p.queue = &storeQueue{q, d.WatchResponse}
			return p
		}
	}
	p.queue = newMemoryQueue(func(l queueKey) { d.Backlog(l.namespace, l.queue, l.kind) })
	return p
}

// Run enqueues a query task and waits for its reply. The error may be one of the errors above, or store.ErrFull. After
// the return no worker runs the query task any more.
func (p *Pending) Run(ctx context.Context, q store.Question, timeout time.Duration) (store.Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrUnanswered)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go p.watch(ctx, &q, p.nextDeparture(), end)
	// A caller that disconnects does not cancel the insert: the app would not know whether the row exists, and a worker
	// could lease the query task of a caller that is gone.
	add, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer stop()
	err := p.queue.add(add, q, timeout, protocol.MaxPendingQuestions)
	if errors.Is(err, store.ErrFull) {
		return store.Reply{}, err
	}
	defer p.removeTask(ctx, q.ID)
	if err != nil { // the row may exist anyway
		return store.Reply{}, err
	}
	r, asked, err := p.awaitReply(ctx, q)
	switch {
	case errors.Is(err, store.ErrNotFound): // lost with the database's memory
		err = ErrUnanswered
	case errors.Is(err, ErrUnanswered):
		seen, e := p.queue.get(context.WithoutCancel(ctx), q.ID)
		switch {
		case len(asked) > 0:
			err = &NoReply{asked}
		case e == nil && seen.Attempt == 0:
			err = ErrUnclaimed
		}
	}
	return r, err
}

// removeTask deletes a query task whose caller no longer waits for it.
func (p *Pending) removeTask(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := p.queue.remove(ctx, id); err != nil {
		store.Warn(&p.log, err).Str("question", id).Msg("failed to delete a query task")
	}
}

// LeaseTasks leases waiting query tasks to eligible pollers.
func (p *Pending) LeaseTasks(ctx context.Context, r store.LeaseRequest) ([]store.Leased, error) {
	waiting, err := p.queue.waiting(ctx, queueKey{r.Namespace, r.Queue, r.Kind}, protocol.MaxPendingQuestions)
	if err != nil {
		return nil, err
	}
	var out []store.Leased
	given, bytes := make([]int, len(r.Pollers)), store.NewBudgets(r.Pollers)
	full := make([]bool, len(r.Pollers)) // by poller: a query task did not fit into the response
	left := false
	for _, q := range waiting {
		takes := func(o store.Poller) bool {
			return CanRun(o.Lessee.Worker, &q) && (p.Avoid == nil || !p.Avoid(o.Lessee.Worker, &q))
		}
		i := slices.IndexFunc(r.Pollers, takes)
		for ; i >= 0 && i < len(given); i++ {
			if !takes(r.Pollers[i]) || given[i] >= r.Pollers[i].Max || full[i] {
				continue
			}
			if bytes.Fits(i, q.Bytes) {
				break
			}
			full[i] = true
		}
		if i < 0 {
			continue
		}
		if i == len(given) { // eligible pollers have no free slot
			left = true
			break
		}
		q.Owner, q.Incarnation = r.Pollers[i].Lessee.Worker.ID, r.Pollers[i].Lessee.Worker.Incarnation
		q.Attempt++
		got, err := p.queue.lease(ctx, q)
		if err != nil {
			store.Warn(&p.log, err).Str("question", q.ID).Msg("failed to lease a query task")
			left = true
			break
		}
		if got {
			given[i]++
			bytes.Subtract(i, q.Bytes)
			out = append(out, store.Leased{Kind: r.Kind, Question: &q, Poller: i, Size: q.Bytes})
		}
	}
	if left {
		p.dispatch.Backlog(r.Namespace, r.Queue, r.Kind)
	}
	return out, nil
}

// Get returns the state of a query task; store.ErrNotFound if its caller has disconnected.
func (p *Pending) Get(ctx context.Context, id string) (store.Question, error) {
	return p.queue.get(ctx, id)
}

// Requeue puts a query task back into the queue; attempt 0 selects the current attempt.
func (p *Pending) Requeue(ctx context.Context, id string, attempt int64) error {
	return p.queue.requeue(ctx, id, attempt)
}

// Complete stores the reply of the worker that leased the query task, as Get returned the task; it returns the
// outcome's name.
func (p *Pending) Complete(ctx context.Context, q store.Question, r store.Reply) (outcome string, err error) {
	taken, err := p.queue.complete(ctx, q, r)
	if err != nil {
		return "", err
	}
	if !taken { // another worker leased it after the list was read
		return "", NotFound(q.Kind, q.ID)
	}
	return outcomes[q.Kind][r.Failure != nil], nil
}

// Count counts the query tasks of a kind without a reply in a namespace, by queue.
func (p *Pending) Count(
	ctx context.Context, namespace string, kind protocol.TaskKind,
) (map[string]protocol.QueryTally, error) {
	return p.queue.count(ctx, namespace, kind)
}

// NewTask returns a query task about the current state of a run.
func NewTask(
	kind protocol.TaskKind, h *engine.Head, name, arguments string, headers history.Headers,
) store.Question {
	status, _, _ := h.Public()
	return store.Question{
		ID: ulid.Make().String(), Kind: kind, Namespace: h.Namespace, Queue: h.Queue, WorkflowID: h.WorkflowID, RunID: h.ID,
		Type:      h.Type,
		RunStatus: status, LastSeq: h.LastSeq, Name: name, Arguments: arguments, Headers: headers,
		Requirements: h.TaskRequirements().Requirements,
		Bytes:        h.DeliveryBytes(false) + int64(len(arguments)+headers.Size()),
	}
}

// CanRun reports whether a worker may run a query task: it has the workflow type and supports this kind of task.
func CanRun(w *engine.Worker, q *store.Question) bool {
	if !w.Runs(q.Kind, q.Type) || len(engine.Missing(q.Requirements, w.Capabilities)) > 0 ||
		slices.Contains(q.Asked, w.Incarnation) {
		return false
	}
	if q.Kind == protocol.KindValidation {
		return slices.Contains(w.Capabilities, CapValidation) &&
			slices.Contains(w.Declares("update_validators")[q.Type], q.Name)
	}
	return slices.Contains(w.Capabilities, CapQueries)
}

// outcomes are the outcomes of replies, without and with a failure.
var outcomes = map[protocol.TaskKind]map[bool]string{
	protocol.KindQuery:      {false: "completed", true: "failed"},
	protocol.KindValidation: {false: "approved", true: "rejected"},
}

// CheckLease checks that a reply comes from the worker that leased the query task.
func CheckLease(q *store.Question, in protocol.CompleteItem) error {
	query := q.Kind == protocol.KindQuery
	reason := func(ofQuery, ofValidation protocol.Reason) protocol.Reason {
		if query {
			return ofQuery
		}
		return ofValidation
	}
	mine := q.Owner == in.Owner && (in.Incarnation == "" || in.Incarnation == q.Incarnation)
	switch {
	case q.Over && mine && q.Attempt == in.Attempt:
		return protocol.Refuse(
			reason(protocol.ReasonQueryNotLeased, protocol.ReasonValidationDuplicate), "task %s was answered already", q.ID,
		)
	case q.Over || q.Owner == "":
		return protocol.Refuse(
			reason(protocol.ReasonQueryNotLeased, protocol.ReasonValidationNotLeased), "task %s is not leased", q.ID,
		)
	case !mine:
		return protocol.Refuse(protocol.ReasonLeaseOwnerMismatch, "task %s is leased to %s", q.ID, q.Owner).
			With("lease_owner", q.Owner)
	case q.Attempt != in.Attempt:
		return protocol.Refuse(
			reason(protocol.ReasonQueryAttempt, protocol.ReasonValidationStale), "task %s is at attempt %d", q.ID, q.Attempt,
		).With("current_attempt", q.Attempt)
	case !time.Now().Before(q.Until):
		return protocol.Refuse(
			reason(protocol.ReasonLeaseExpired, protocol.ReasonValidationExpired), "the lease of task %s ended", q.ID,
		).With("lease_expires_at", history.At(q.Until))
	}
	return nil
}

// NotFound returns the error for a query task that has ended.
func NotFound(kind protocol.TaskKind, id string) error {
	if kind == protocol.KindValidation {
		return protocol.Refuse(protocol.ReasonValidationNotFound, "update validation task %s not found", id)
	}
	return protocol.Refuse(protocol.ReasonQueryTaskNotFound, "query task %s not found", id)
}
