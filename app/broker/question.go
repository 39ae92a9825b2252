package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// maxQuestions is how many questions of a kind may wait for a worker in one queue.
const maxQuestions = 64

// The ways in which a question ends without a reply.
var (
	errUnclaimed  = errors.New("no worker took it in time")
	errUnanswered = errors.New("no worker answered in time")
	errAskDrained = errors.New("the app drains")
)

var _ dispatch.Claimer = (*Broker)(nil)

// newDesk is where this broker's questions lie.
func (b *Broker) newPendingQuestions() pendingQuestions {
	if s, ok := b.store.(interface{ Questions() store.Questions }); ok {
		if q := s.Questions(); q != nil {
			return &storedQuestions{q, b.dispatch.WatchAnswer}
		}
	}
	return newMemoryQuestions(func(l questionQueue) { b.dispatch.Backlog(l.namespace, l.queue, l.kind) })
}

// questionOf is a question about a run as it stands.
func questionOf(kind protocol.TaskKind, h *engine.Head, name, arguments string) store.Question {
	status, _, _ := h.Public()
	return store.Question{
		ID: ulid.Make().String(), Kind: kind, Namespace: h.Namespace, Queue: h.Queue, WorkflowID: h.WorkflowID, RunID: h.ID,
		Type:      h.Type,
		RunStatus: status, LastSeq: h.LastSeq, Name: name, Arguments: arguments, Requirements: h.Wanted().Requirements,
	}
}

// ask lays a question down and waits for its reply. Once it returns, nobody works on the question any more.
func (b *Broker) ask(ctx context.Context, q store.Question, patience time.Duration) (store.Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errUnanswered)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-b.drained:
			end(errAskDrained)
		case <-ctx.Done():
		}
	}()
	if err := b.questions.add(ctx, q, patience, maxQuestions); err != nil {
		return store.Reply{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := b.questions.remove(ctx, q.ID); err != nil {
			b.log.Warn().Err(err).Str("question", q.ID).Msg("take a question away")
		}
	}()
	r, err := b.questions.reply(ctx, q.ID)
	switch {
	case errors.Is(err, store.ErrNotFound): // lost with the database's memory
		err = errUnanswered
	case errors.Is(err, errUnanswered):
		if seen, e := b.questions.get(context.WithoutCancel(ctx), q.ID); e == nil && seen.Attempt == 0 {
			err = errUnclaimed
		}
	}
	return r, err
}

// someWorker says whether a living worker of the queue may be asked a question. Those that only other apps know are
// looked up when none here may.
func (b *Broker) someWorker(ctx context.Context, q *store.Question) (bool, error) {
	here := func() bool {
		now := time.Now()
		for _, w := range b.workers.all(q.Namespace) {
			if b.alive(w, now) && w.worker.Serves(q.Queue) && takes(w.worker, q) {
				return true
			}
		}
		return false
	}
	if found := here(); found || !b.opt.Shared {
		return found, nil
	}
	err := b.learn(ctx, q.Namespace, q.Queue)
	return here(), err
}

// learn reads the workers of a queue that other apps registered.
func (b *Broker) learn(ctx context.Context, ns, queue string) error {
	return b.store.View(ctx, func(r store.Reader) error {
		mark := b.workers.mark()
		list, err := r.Workers(ctx, store.WorkerQuery{Namespace: ns, Queue: queue, Limit: 1000})
		for _, w := range list {
			b.workers.learn(&w, mark)
		}
		return err
	})
}

// Claim leases pending questions; every other kind of task comes from the store. It makes the broker the claimer of a
// dispatch.
func (b *Broker) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Leased, error) {
	if !r.Kind.Asked() {
		r.Full = b.full
		return b.store.Claim(ctx, r)
	}
	line := questionQueue{r.Namespace, r.Queue, r.Kind}
	waiting, err := b.questions.waiting(ctx, line, maxQuestions)
	if err != nil {
		return nil, err
	}
	var out []store.Leased
	given := make([]int, len(r.Pollers))
	left := false
	for _, q := range waiting {
		i := slices.IndexFunc(r.Pollers, func(p store.Poller) bool { return takes(p.Lessee.Worker, &q) })
		for i >= 0 && i < len(given) && (given[i] >= r.Pollers[i].Max || !takes(r.Pollers[i].Lessee.Worker, &q)) {
			i++
		}
		if i < 0 {
			continue
		}
		if i == len(given) { // those who may have it have no room
			left = true
			break
		}
		q.Owner, q.Incarnation = r.Pollers[i].Lessee.Worker.ID, r.Pollers[i].Lessee.Worker.Incarnation
		q.Attempt++
		got, err := b.questions.lease(ctx, q)
		if err != nil {
			b.log.Warn().Err(err).Str("question", q.ID).Msg("lease a question")
			left = true
			break
		}
		if got {
			given[i]++
			out = append(out, store.Leased{Kind: r.Kind, Question: &q, Poller: i})
		}
	}
	if left {
		b.dispatch.Backlog(r.Namespace, r.Queue, r.Kind)
	}
	return out, nil
}

// takes says whether a worker may be asked a question: it runs the workflow's code, and answers questions of that kind.
func takes(w *engine.Worker, q *store.Question) bool {
	if !w.Runs(q.Kind, q.Type) || len(engine.Missing(q.Requirements, w.Capabilities)) > 0 {
		return false
	}
	if q.Kind == protocol.KindValidation {
		return slices.Contains(w.Capabilities, CapValidation) && validates(w, q.Type, q.Name)
	}
	return slices.Contains(w.Capabilities, CapQueries)
}

// past is the history a question is about, with the arguments the workflow was started with.
func (b *Broker) past(
	ctx context.Context, q *store.Question,
) (events []history.Event, args payload.Payload, err error) {
	for after := int64(0); after < q.LastSeq; {
		page, err := b.page(ctx, q.RunID, after, q.LastSeq, maxPage)
		if err != nil {
			return nil, args, err
		}
		if len(page.Events) == 0 {
			break
		}
		events = append(events, page.Events...)
		after = page.Events[len(page.Events)-1].Seq
	}
	return events, startArguments(events), nil
}

// questionTask is a leased question as its worker gets it.
func (b *Broker) questionTask(ctx context.Context, in protocol.PollRequest, l store.Leased) (protocol.Task, error) {
	if l.Kind == protocol.KindValidation {
		t, err := b.validationTask(ctx, l.Question, in.PagedQueries)
		return protocol.Task{Kind: l.Kind, Validation: t}, err
	}
	t, err := b.queryTask(ctx, l.Question, in.PagedQueries)
	return protocol.Task{Kind: l.Kind, Query: t}, err
}

// completeQuestion takes a worker's reply to its caller.
func (b *Broker) completeQuestion(ctx context.Context, in protocol.CompleteItem) (outcome string, err error) {
	q, err := b.questions.get(ctx, in.TaskID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	if err != nil || q.Namespace != namespace(in.Namespace) || q.Kind != in.Kind {
		return "", noQuestion(in.Kind, in.TaskID)
	}
	sight := b.sight(ctx, q.Namespace, q.Kind, q.ID, in.Owner)
	if err := sight.question(&q); err != nil {
		return "", err
	}
	if err := holdsQuestion(&q, in); err != nil {
		return "", sight.refused(err)
	}
	if in.Returned != "" {
		return "returned", b.questions.requeue(ctx, q.ID, q.Attempt)
	}
	if err := Blob("result", in.Result.Blob); err != nil {
		return "", err
	}
	taken, err := b.questions.complete(ctx, q, store.Reply{Result: in.Result.Blob, Failure: in.Failure})
	if err != nil {
		return "", err
	}
	if !taken { // it changed since it was looked at
		return "", noQuestion(in.Kind, in.TaskID)
	}
	return replyWords[in.Kind][in.Failure != nil], nil
}

// replyWords are the outcomes of replies, without and with a failure.
var replyWords = map[protocol.TaskKind]map[bool]string{
	protocol.KindQuery:      {false: "completed", true: "failed"},
	protocol.KindValidation: {false: "approved", true: "rejected"},
}

// holdsQuestion checks that a reply comes from whoever holds the question.
func holdsQuestion(q *store.Question, in protocol.CompleteItem) error {
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
			reason(protocol.ReasonQueryNotLeased, protocol.ReasonValidationNotLeased), "task %s is leased to nobody", q.ID,
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

func noQuestion(kind protocol.TaskKind, id string) error {
	if kind == protocol.KindValidation {
		return protocol.Refuse(protocol.ReasonValidationNotFound, "there is no update validation task %s", id)
	}
	return protocol.Refuse(protocol.ReasonQueryTaskNotFound, "there is no query task %s", id)
}
