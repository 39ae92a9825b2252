package runner

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An outcome is valid until its lease expires: afterwards another worker may have the task. The worker repeats a report
// until then. If the app does not respond, the worker stops polling, so that outcomes do not fill its memory.

// These are the maximum number of outcomes in one request, and the approximate maximum size of their values.
const (
	maxItems = 256
	maxBytes = 4 << 20
)

// reportTimeout is the timeout of one request with outcomes. A request without a response is repeated.
const reportTimeout = time.Minute

// handBackTime is how long the worker repeats the return of a task. By then the task's lease has usually expired.
const handBackTime = 2 * time.Minute

// entry is an outcome that must be reported.
type entry struct {
	class string // fairness class of the task; empty: the queue has no fairness keys
	item  protocol.CompleteItem
	until time.Time  // expiry of the lease; afterwards the outcome is useless
	eager *eagerTask // eager workflow task sent with the outcome; nil: none

	workflowID string // for log lines; empty: the outcome has no commands
}

// report sends outcomes to the app. A task's slot becomes free once its outcome is queued. The queue is bounded: if the
// app does not respond, the worker stops polling instead of filling its memory. Outcomes that arrive while all senders
// are busy share one request. The app responds to a request when it has stored the last outcome in it, and it stores
// fairness classes in turn. Therefore a request contains outcomes of one class only, so that a class with few outcomes
// does not wait for a class with many.
type report struct {
	r *Runner

	mu       sync.Mutex             // guards the fields below
	queues   map[string]*classQueue // queues by class; a queue without outcomes is removed
	waiting  int                    // number of outcomes in all queues
	inFlight int                    // number of outcomes being sent
	changed  chan struct{}          // closed and replaced when a queue shrinks or a sender ends
	closed   bool
	wait     sync.WaitGroup
}

// classQueue is the queue of outcomes of one fairness class.
type classQueue struct {
	class   string
	queue   []entry
	senders int
}

func newReport(r *Runner) *report {
	return &report{r: r, queues: map[string]*classQueue{}, changed: make(chan struct{})}
}

// add queues an outcome. It blocks while the queue of the outcome's fairness class is full.
func (p *report) add(e entry) {
	p.mu.Lock()
	// The caller releases the task's slot after add returns, so the worker polls for no more tasks than it can report.
	for p.full(e.class) && !p.closed {
		changed := p.changed
		p.mu.Unlock()
		<-changed
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	p.enqueue(e)
}

// full reports whether the queue of a class is full. A class may use at most as much space as is free for all other
// classes together, so that one class cannot block the outcomes of the others. The caller must hold mu.
func (p *report) full(class string) bool {
	free := p.r.opt.Outcomes - p.waiting
	l := p.queues[class]
	return free <= 0 || class != "" && l != nil && len(l.queue) >= free
}

// handBack queues the return of a task that was not begun. It never blocks, because senders call it.
func (p *report) handBack(item protocol.CompleteItem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enqueue(entry{item: item, until: time.Now().Add(handBackTime)})
}

// enqueue adds an outcome to the queue of its class. The caller must hold mu.
func (p *report) enqueue(e entry) {
	if p.closed {
		e.eager.applyResponse(nil, time.Time{})
		return
	}
	if e.item.Returned != "" {
		e.item = e.item.AsReturn()
	}
	l := p.queues[e.class]
	if l == nil {
		l = &classQueue{class: e.class}
		p.queues[e.class] = l
	}
	l.queue = append(l.queue, e)
	p.waiting++
	if l.senders < p.r.opt.Senders {
		l.senders++
		p.wait.Go(func() {
			stack.Grow()
			p.send(l)
		})
	}
}

func (p *report) wakeWaiters() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// next removes the outcomes of one request from the queue. An empty result ends the sender.
func (p *report) next(l *classQueue) []entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, size := 0, 0
	for n < len(l.queue) && n < maxItems {
		size += sizeOf(&l.queue[n].item)
		if n > 0 && size > maxBytes {
			break
		}
		n++
	}
	if n == 0 || p.closed {
		if l.senders--; l.senders == 0 {
			delete(p.queues, l.class)
		}
		p.wakeWaiters()
		return nil
	}
	batch := append([]entry(nil), l.queue[:n]...)
	clear(l.queue[:n])
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	p.waiting -= n
	p.inFlight += n
	p.wakeWaiters()
	return batch
}

func sizeOf(item *protocol.CompleteItem) int {
	n := len(item.Result.Blob) + 512 + sizeOfAll(item.Commands)
	if item.Eager != nil {
		n += sizeOfAll(item.Eager.Commands)
	}
	for _, c := range item.Lines {
		n += protocol.LogSize(c.Lines)
	}
	if item.Failure != nil {
		n += len(item.Failure.Details) + len(item.Failure.Message) + len(item.Failure.StackTrace)
	}
	return n
}

func sizeOfAll(commands []protocol.Command) (n int) {
	for i := range commands {
		c := &commands[i]
		n += len(c.Arguments.Blob) + len(c.Result.Blob) + len(c.Entries.Blob) + c.Headers.Size() + 256
	}
	return n
}

// send is the goroutine of one sender. It ends when the queue is empty.
func (p *report) send(l *classQueue) {
	for {
		batch := p.next(l)
		if batch == nil {
			return
		}
		p.deliver(batch)
		p.mu.Lock()
		p.inFlight -= len(batch)
		p.wakeWaiters()
		p.mu.Unlock()
	}
}

// deliver sends a batch until the app has responded or all its outcomes have expired. The app answers a repeated
// outcome with the first response, so repeating a request after a lost response is safe.
func (p *report) deliver(batch []entry) {
	back := retry.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	poll := true
	for {
		now := time.Now()
		unexpired := batch[:0]
		for _, e := range batch {
			if e.until.After(now) {
				unexpired = append(unexpired, e)
			} else {
				p.drop(e, "its lease ended before the app received it")
			}
		}
		if batch = unexpired; len(batch) == 0 {
			return
		}
		req := protocol.CompleteRequest{Items: make([]protocol.CompleteItem, len(batch))}
		for i, e := range batch {
			req.Items[i] = e.item
		}
		var got slotCounts
		if poll && !p.r.stopped.Load() {
			// The request also polls, for as many tasks as it reports outcomes, so that a worker that finishes a task
			// gets the next one without another request. If fairness classes share the queue, only the poll loops poll:
			// the response waits until all outcomes of the request are stored, and its tasks would wait with it.
			if batch[0].class == "" {
				got = p.r.slots.tryAcquire(len(batch))
			}
			if got != nil || slices.ContainsFunc(batch, func(e entry) bool { return e.eager != nil }) {
				next := p.r.request(got)
				if got == nil { // an eager workflow task needs a poll, even one for no tasks
					next.Kinds = p.r.kinds()
					for _, k := range next.Kinds {
						next.Free[k] = 0
					}
				}
				req.Next = &next
			}
		}
		failed, err := p.call(batch, req, got)
		switch {
		case err == nil && len(failed) == 0:
			return
		case err == nil:
			retried := make([]entry, len(failed))
			for i, n := range failed {
				retried[i] = batch[n]
			}
			batch = retried
			if p.r.life.Err() == nil {
				p.r.log.Warn().Int("outcomes", len(batch)).Msg("app could not store task outcomes; retrying")
			}
		case link.Lost(err) && !large(err):
			if p.r.life.Err() == nil {
				p.r.log.Warn().Err(err).Int("outcomes", len(batch)).Msg("failed to report task outcomes; retrying")
			}
		case poll && req.Next != nil && !large(err):
			poll = false // the app may have refused only the poll
			continue
		// One outcome may be the reason for the refusal. Send each outcome separately, so that the others are not lost.
		case len(batch) > 1:
			for i := range batch {
				p.deliver(batch[i : i+1 : i+1])
			}
			return
		case refusesContent(err) && batch[0].item.Lines != nil:
			batch[0].item.Lines = nil // send the outcome without its log lines, which may be the reason
			continue
		case refusesContent(err) && batch[0].eager != nil:
			batch[0] = batch[0].withoutEager() // the app may have refused the content of the eager workflow task
			continue
		case p.r.replaceByFailure(&batch[0].item, err):
			continue
		default:
			p.drop(batch[0], err.Error())
			return
		}
		if !p.pause(back.Next()) {
			for _, e := range batch {
				e.eager.applyResponse(nil, time.Time{})
			}
			return
		}
	}
}

// large reports whether a request was refused for its size: by this worker, by the app or by a proxy in between.
func large(err error) bool {
	return errors.Is(err, socketio.ErrPayloadTooLarge) || protocol.ReasonOf(err) == protocol.ReasonPayloadTooLarge
}

// drop discards an outcome.
func (p *report) drop(e entry, why string) {
	e.eager.applyResponse(nil, time.Time{})
	p.r.dropped(e.item, why)
}

// withoutEager returns the outcome without its eager workflow task.
func (e entry) withoutEager() entry {
	e.eager.applyResponse(nil, time.Time{})
	e.eager, e.item.Eager = nil, nil
	return e
}

// call sends one request, which may include a poll. It returns the indexes of the outcomes that the app could not store
// and that must be sent again.
func (p *report) call(batch []entry, req protocol.CompleteRequest, got slotCounts) (failed []int, err error) {
	// Do not use the context of the tasks: a stopping worker still reports outcomes, until close.
	ctx, cancel := context.WithTimeout(p.r.pollCtx, reportTimeout)
	defer cancel()
	sent := time.Now()
	a, err := p.r.opt.Link.Complete(ctx, req)
	// Start the received tasks first, then process the responses to the outcomes.
	if got != nil {
		if err == nil && a.Next != nil {
			got = p.r.accept(*a.Next, got, sent)
		}
		p.r.slots.returnSlots(got)
	}
	if err != nil {
		return nil, err
	}
	for i := range req.Items {
		switch {
		case i >= len(a.Items):
			batch[i].eager.applyResponse(nil, sent)
		case a.Items[i].Error != nil && a.Items[i].Error.Reason.Away():
			failed = append(failed, i)
		default:
			p.r.logWarnings(batch[i], a.Items[i].Warnings)
			p.r.handleResponse(req.Items[i], a.Items[i])
			batch[i].eager.applyResponse(&a.Items[i], sent)
			batch[i].eager = nil
		}
	}
	return failed, nil
}

// pause waits. It returns false if outcomes can no longer be sent.
func (p *report) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.r.pollCtx.Done():
		return false
	}
}

// flush waits until the app has responded to every outcome.
func (p *report) flush(ctx context.Context) error {
	for {
		p.mu.Lock()
		idle, changed := p.waiting == 0 && p.inFlight == 0, p.changed
		p.mu.Unlock()
		if idle {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// close discards unsent outcomes and waits for the senders, whose requests end with the runner's poll context.
func (p *report) close() {
	p.mu.Lock()
	p.closed = true
	var unsent []entry
	for _, l := range p.queues {
		unsent, l.queue = append(unsent, l.queue...), nil
	}
	p.waiting = 0
	p.wakeWaiters()
	p.mu.Unlock()
	for _, e := range unsent {
		e.eager.applyResponse(nil, time.Time{})
	}
	p.wait.Wait()
}

// handleResponse processes the app's response to one outcome.
func (r *Runner) handleResponse(item protocol.CompleteItem, a protocol.CompleteResponse) {
	if a.Error == nil {
		return
	}
	if r.replaceByFailure(&item, a.Error.Err()) {
		r.report.handBack(item)
		return
	}
	if item.Kind == protocol.KindWorkflow {
		// The app did not record the commands that the replay machine has issued.
		r.cache.evict(runOf(item.TaskID))
	}
	r.dropped(item, string(a.Error.Reason)+": "+a.Error.Message)
}

// logWarnings logs the app's warnings about the commands of an outcome. A command that is not recorded is sent with
// each completion until a later command is recorded, so the worker logs a warning once for each run and subject.
func (r *Runner) logWarnings(e entry, list []protocol.Warning) {
	for _, w := range list {
		run := runOf(e.item.TaskID)
		if w.Code == protocol.WarnSessionMissing && r.warned.first(run+" "+w.Subject, w.Code) {
			r.log.Warn().Str("workflow_id", e.workflowID).Str("run_id", run).Str("session_id", w.Subject).
				Msg("workflow ended a session that it never started; the end had no effect")
		}
	}
}

// These are the types of failures that replace refused outcomes. The failure for an outcome that is too large has the
// reason of the refusal as its type.
const (
	typeTaskRefused    = "WorkflowTaskRefused"
	typeOutcomeRefused = "OutcomeRefused"
)

var refusedTypes = []string{typeTaskRefused, typeOutcomeRefused, string(protocol.ReasonPayloadTooLarge)}

// replaceByFailure replaces an outcome that the app refused for its content by a failure with the reason. The app would
// refuse the same outcome again, and without any outcome the task would be delivered again after its lease. It returns
// false for other refusals, and if the outcome is such a failure already.
func (r *Runner) replaceByFailure(item *protocol.CompleteItem, refusal error) bool {
	if !refusesContent(refusal) || item.Kind.Asked() || item.Returned != "" {
		return false
	}
	if f := item.Failure; f != nil && slices.Contains(refusedTypes, f.Type) {
		return false
	}
	f := &protocol.Failure{Type: typeOutcomeRefused, Message: "the app refused the outcome: ", NonRetryable: true}
	if item.Kind == protocol.KindWorkflow {
		f = &protocol.Failure{Type: typeTaskRefused, Message: "the app refused the commands: "}
	}
	if large(refusal) {
		f.Type = string(protocol.ReasonPayloadTooLarge)
	}
	why := refusal.Error()
	if e, ok := errors.AsType[*protocol.Error](refusal); ok {
		why = e.Message
	}
	f.Message = protocol.ErrorText(f.Message + why)
	if item.Kind == protocol.KindWorkflow {
		r.cache.evict(runOf(item.TaskID)) // the machine assumes that its commands were accepted
		r.log.Error().Str("task_id", item.TaskID).Str("run_id", runOf(item.TaskID)).Str("reason", why).
			Msg("workflow task failed: the app refused its commands")
	}
	item.Commands, item.Eager, item.Kept, item.Result, item.Failure, item.Lines = nil, nil, 0, payload.Payload{}, f, nil
	return true
}

// refusesContent reports whether the app refused an outcome for its content: with status 413 or 422, with status 400
// and the name of the invalid member, or with invalid_commands. Other refusals concern the task or the worker.
func refusesContent(err error) bool {
	if large(err) {
		return true
	}
	e, ok := errors.AsType[*protocol.Error](err)
	if !ok {
		return false
	}
	switch e.Reason.Status() {
	case http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	case http.StatusBadRequest:
		return len(e.Fields) > 0 || e.Details["errors"] != nil || e.Details["field"] != nil
	default:
		return e.Reason == protocol.ReasonInvalidCommands
	}
}

// dropped logs an outcome that the app rejected.
func (r *Runner) dropped(item protocol.CompleteItem, why string) {
	r.opt.Link.Abandon(item)
	r.log.Warn().Str("task_id", item.TaskID).Str("attempt", item.AttemptID).Str("kind", string(item.Kind)).Str("why", why).
		Msg("task outcome rejected by the app and dropped")
}
