package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A lease is stored before the worker sees it, and the task's data is read afterwards. If the read fails, the lease
// must be released (see pollResponse); otherwise the task would wait for a worker that never received it. Data that the
// batch has in memory needs no read.

// tasksForLeases converts leases to tasks for the worker. It uses data that the batch had in memory, and reads the rest
// in one statement for all activities and one per workflow task.
func (b *Broker) tasksForLeases(
	ctx context.Context, in protocol.PollRequest, leased []store.Leased,
) ([]protocol.Task, error) {
	args, err := b.arguments(ctx, leased)
	if err != nil {
		return nil, err
	}
	setUps, err := b.setUpArguments(ctx, leased)
	if err != nil {
		return nil, err
	}
	out := make([]protocol.Task, len(leased))
	left := maxSentBytes
	for i, l := range leased {
		if l.Kind == protocol.KindActivity {
			t := activityTask(l, args[i])
			if t.Session != nil {
				t.Session.Arguments = payload.Payload{Blob: setUps[l.Session.Key()]}
				if l.Session.Restores() {
					if t.Session.Snapshot, err = b.snapshotOf(ctx, l.Session); err != nil {
						return nil, err
					}
				}
			}
			// Only a worker that supports eager workflow tasks receives the run's new events with an activity.
			if in.EagerTasks {
				t.LastSequence, t.Unseen = l.Head.LastSeq, b.unseenEvents(&l)
			}
			left -= activityBytes(t)
			out[i] = protocol.Task{Kind: l.Kind, Activity: t}
			continue
		}
		if l.Kind.Asked() {
			if out[i], err = b.leasedQueryTask(ctx, in, l); err != nil {
				return nil, err
			}
			continue
		}
		// The page may be shorter than expected when the task was leased, if less of the byte budget remains.
		t, err := b.workflowTask(ctx, in, l, max(shortestPage, min(left, transaction.MaxPageSize)))
		if err != nil {
			return nil, err
		}
		left -= workflowBytes(t)
		out[i] = protocol.Task{Kind: l.Kind, Workflow: t}
	}
	return out, nil
}

// maxSentBytes is the maximum actual size of the tasks in one response; tasks beyond it are released again. It leaves
// space in a frame for the rest of the response.
const maxSentBytes = protocol.MaxTaskBytes * 3 / 2

// shortestPage is the minimum number of bytes of history for a workflow task.
const shortestPage = 16 << 10

// activityBytes returns the size of an activity task as it is sent; workflowBytes does so for a workflow task.
func activityBytes(t *protocol.ActivityTask) int {
	n := engine.TaskBytes + len(t.Arguments.Blob) + t.Headers.Size() + t.Trace.Size() + history.SizeOf(t.Unseen)
	if t.Session != nil {
		n += len(t.Session.Arguments.Blob)
	}
	return n
}

func workflowBytes(t *protocol.WorkflowTask) int {
	n := engine.TaskBytes + len(t.Arguments.Blob) + t.Headers.Size() + t.Trace.Size() + history.SizeOf(t.Events)
	if a := t.Resume.SignalArguments; a != nil {
		n += len(a.Blob)
	}
	if t.TraceLinks != nil {
		n += protocol.MaxTraceLinkBytes
	}
	return n
}

// fittingTasks returns how many of the tasks fit into one response; at least one.
func fittingTasks(tasks []protocol.Task) int {
	size := 0
	for i, t := range tasks {
		switch {
		case t.Activity != nil:
			size += activityBytes(t.Activity)
		case t.Workflow != nil:
			size += workflowBytes(t.Workflow)
		case t.Query != nil:
			size += engine.TaskBytes + history.SizeOf(t.Query.Events)
		case t.Validation != nil:
			size += engine.TaskBytes + history.SizeOf(t.Validation.Events)
		}
		if i > 0 && size > maxSentBytes {
			return i
		}
	}
	return len(tasks)
}

// maxUnseenBytes is the maximum size of the run's events in an activity task.
const maxUnseenBytes = engine.MaxUnseenBytes

// unseenEvents returns the events that an activity's worker, which has the run in its sticky cache, has not seen: the
// worker needs them for an eager workflow task after the result. If several activities are scheduled together, no eager
// task follows, so it returns nothing.
func (b *Broker) unseenEvents(l *store.Leased) []history.Event {
	a := l.Activity
	seen := b.sticky.lastEvent(l.Head.ID, store.Process{
		Worker: engine.WorkerKey{Namespace: l.Head.Namespace, ID: a.Owner}, Incarnation: a.Incarnation,
	})
	n := len(l.Events)
	// Return all unseen events or none: the worker cannot continue with a gap.
	if seen == 0 || seen >= l.Head.LastSeq || n == 0 || l.Events[0].Seq > seen+1 || l.Events[n-1].Seq != l.Head.LastSeq {
		return nil
	}
	events := l.Events[seen+1-l.Events[0].Seq:]
	steps, bytes := 0, 0
	for i := range events {
		switch d := events[i].Data.(type) {
		case *history.ActivityScheduled:
			steps, bytes = steps+1, bytes+len(d.Arguments)+d.Headers.Size()
		case *history.ChildWorkflowScheduled:
			return nil
		case *history.ActivityCompleted:
			bytes += len(d.Result)
		case *history.SignalReceived:
			bytes += len(d.Value) + d.Headers.Size()
		}
	}
	// With many activities, sending the events with each would cost more than the one workflow task that they may save.
	if steps > 1 || bytes > maxUnseenBytes {
		return nil
	}
	return events
}

// arguments returns the encoded arguments of each leased activity. It reads only arguments that the batch did not have
// in memory, all in one statement.
func (b *Broker) arguments(ctx context.Context, leased []store.Leased) ([]string, error) {
	args := make([]string, len(leased))
	var missing []store.EventKey
	for i, l := range leased {
		switch {
		case l.Kind != protocol.KindActivity:
		case l.Cached:
			args[i] = l.Arguments
		default:
			missing = append(missing, store.EventKey{Run: l.Head.ID, Seq: l.Activity.Event})
		}
	}
	if len(missing) == 0 {
		return args, nil
	}
	err := b.store.View(ctx, func(r store.Reader) error {
		found, err := r.Arguments(ctx, missing)
		for i, l := range leased {
			if l.Kind == protocol.KindActivity && !l.Cached {
				args[i] = found[store.EventKey{Run: l.Head.ID, Seq: l.Activity.Event}]
			}
		}
		return err
	})
	return args, err
}

// setUpArguments returns the stored arguments of session definitions, for the sessions of leased activities whose
// set-up no worker has reported in this epoch.
func (b *Broker) setUpArguments(ctx context.Context, leased []store.Leased) (map[engine.SessionKey]string, error) {
	var keys []engine.SessionKey
	for i := range leased {
		if s := leased[i].Session; s != nil && s.NeedsSetUp() && s.ArgumentsHash != "" {
			keys = append(keys, s.Key())
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	found := make(map[engine.SessionKey]string, len(keys))
	err := b.store.View(ctx, func(r store.Reader) error {
		for _, k := range keys {
			if _, ok := found[k]; ok {
				continue
			}
			blob, err := r.SessionArguments(ctx, k)
			if err != nil {
				return err
			}
			found[k] = blob
		}
		return nil
	})
	return found, err
}

// The ID of the activity is also its idempotency key: it is the same for every attempt, and differs from that of every
// other activity.
func activityTask(l store.Leased, args string) *protocol.ActivityTask {
	a := l.Activity
	id := engine.StepID(l.Head.ID, a.Seq)
	t := &protocol.ActivityTask{
		TaskID: id, WorkflowID: l.Head.WorkflowID, RunID: l.Head.ID, Namespace: l.Head.Namespace,
		ExecutionID: id, AttemptID: engine.AttemptID(l.Head.ID, a.Seq, a.Delivery),
		IdempotencyKey: id, Attempt: a.Attempt, ActivityType: a.Type,
		PayloadCodec: payload.Codec,
		Arguments:    payload.Payload{Blob: args}, RetryPolicy: a.Retry, TaskQueue: a.Queue, LeaseOwner: a.Owner,
		LeaseExpiresAt: a.Until,
		Release:        a.Lease.Release, FairnessClass: l.Class, HeartbeatEvery: a.HeartbeatTO, Suspect: a.Suspect != nil,
		LastHeartbeat: a.LastHeartbeat, Headers: a.Headers, Trace: l.Head.Trace,
	}
	// Deadlines are times of the app's clock, like the end of the lease. The worker converts them to its own clock.
	if a.StartToClose > 0 {
		t.Deadlines.StartToClose = history.At(a.LeasedAt.Add(secs(a.StartToClose)))
	}
	if a.SchedToClose > 0 {
		t.Deadlines.ScheduleToClose = history.At(a.ScheduledAt.Add(secs(a.SchedToClose)))
	}
	if a.HeartbeatTO > 0 {
		t.Deadlines.Heartbeat = history.At(a.LeasedAt.Add(secs(a.HeartbeatTO)))
	}
	if l.Session != nil {
		t.Session = affinity(l.Session, a.Queue, l.IsNew)
	}
	return t
}

// unlimitedLifetime is the remaining lifetime that is reported for a session without a TTL, because clients treat a
// session without an end as invalid.
const unlimitedLifetime = 100 * 365 * 24 * time.Hour

// affinity returns a session in the form in which tasks contain it. Clients compare it with earlier tasks, so only the
// lease may change; for a session without a queue it contains the queue of the task.
func affinity(s *engine.Session, queue string, isNew bool) *protocol.SessionAffinity {
	if s.Queue != "" {
		queue = s.Queue
	}
	until := s.TTLUntil
	if until.IsZero() {
		until = history.At(s.CreatedAt.Add(unlimitedLifetime))
	}
	onLost := s.OnLost
	if s.SetUpEpoch == 0 { // no set-up has completed yet, so there was no state to lose
		onLost = ""
	}
	return &protocol.SessionAffinity{
		SessionID: s.ID, Epoch: s.Epoch, IsNew: isNew, Origin: string(s.Origin), Queue: queue,
		Requirements: protocol.OrEmpty(s.Requirements),
		Lease:        int64(s.LeaseLength() / time.Second), FailFast: s.FailFast,
		TTL: s.TTL, MaxActivities: s.MaxActivities, Create: !s.NoCreate,
		Reacquire: !s.NoReacquire,
		Status:    string(s.Status), LeaseOwner: s.Owner, LeaseExpiresAt: s.LeaseUntil, TTLExpiresAt: until,
		LastEnd: s.Before, Definition: s.Definition, OnLost: onLost, PreparedFor: s.PreparedFor,
	}
}

func (b *Broker) workflowTask(
	ctx context.Context, in protocol.PollRequest, l store.Leased, bytes int,
) (*protocol.WorkflowTask, error) {
	h := l.Head
	t := &protocol.WorkflowTask{
		TaskID: engine.TaskID(h.ID, h.Task.Number), WorkflowID: h.WorkflowID, RunID: h.ID, Namespace: h.Namespace,
		Attempt:      h.Task.Delivery,
		WorkflowType: h.Type, PayloadCodec: payload.Codec, RunStatus: "running", RunNumber: h.Number,
		LastSequence: h.Task.Shown,
		TotalEvents:  h.Task.Shown, TaskQueue: h.Queue, LeaseOwner: h.Task.Owner, LeaseExpiresAt: h.Task.Until,
		Release: h.Task.Release, FairnessClass: l.Class, Trace: h.Trace,
	}
	// seen is the last event that the process has in its sticky cache, as far as this app knows. If the process has
	// evicted the run, it requests the first page.
	seen := min(b.sticky.lastEvent(h.ID, store.Process{
		Worker: engine.WorkerKey{Namespace: h.Namespace, ID: h.Task.Owner}, Incarnation: h.Task.Incarnation,
	}), h.Task.Shown)
	size := in.PageSize
	if size <= 0 {
		size = transaction.DefaultPage
	}
	// Without a cached run, the task contains the run's arguments in addition to the first event.
	if seen == 0 {
		bytes = max(shortestPage, bytes-int(h.ArgumentBytes))
	}
	all := l.Events
	// If the events that came with the lease begin early enough, the history need not be read.
	if n := len(l.Events); n > 0 && l.Events[0].Seq <= seen+1 && l.Events[n-1].Seq >= h.Task.Shown &&
		l.Bytes <= transaction.MaxPageSize {
		first := l.Events[0].Seq
		t.Events = l.Events[seen+1-first : h.Task.Shown+1-first]
		if n := pageOf(t.Events, min(size, transaction.MaxPage), bytes); n < len(t.Events) {
			b.prefetch.add(h.ID, t.Events[n:])
			t.Events, t.NextPageToken = t.Events[:n], transaction.PageToken(t.Events[n-1].Seq)
		}
	} else {
		after, before := seen, []history.Event(nil)
		omits := in.PagedSignals && seen == 0 && h.Inbox != nil && h.Inbox.Last() > h.Inbox.First()+maxFirstSignals
		if omits {
			// The workflow code may continue as new after a few signals and never receive the others, so the worker
			// fetches the others on demand.
			page, err := transaction.PageOfSize(ctx, b.store, h.ID, 0, h.Inbox.First()+maxFirstSignals-1, size, bytes)
			if err != nil || len(page.Events) == 0 {
				return nil, err
			}
			before, after = page.Events, h.Inbox.Last()
			t.OmittedSignals = &protocol.EventRange{First: before[len(before)-1].Seq + 1, Last: after}
			bytes = max(shortestPage, bytes-history.SizeOf(before))
		}
		page, err := transaction.PageOfSize(ctx, b.store, h.ID, after, h.Task.Shown, size, bytes)
		if err != nil {
			return nil, err
		}
		page.Events = append(before, page.Events...)
		t.Events, t.NextPageToken, all = page.Events, page.NextPageToken, page.Events
	}
	if seen == 0 && len(all) > 0 && all[0].Seq == 1 { // a worker with the run in its cache has the first event
		if s, ok := all[0].Data.(*history.WorkflowStarted); ok {
			t.Arguments, t.Headers = payload.Payload{Blob: s.Arguments}, s.Headers
		}
	}
	t.TraceLinks = traceLinks(h, all)
	resume(t, h.Task.Cause, all)
	return t, b.resumeArguments(ctx, t, h.Task.Cause)
}

// traceLinks returns the trace links of a workflow task: of the requests that no completed task contained. events may
// lack some of them, whose links are then omitted.
func traceLinks(h engine.Head, events []history.Event) *protocol.TraceLinks {
	for len(events) > 0 && events[0].Seq <= h.Seen {
		events = events[1:]
	}
	for n := len(events); n > 0 && events[n-1].Seq > h.Task.Shown; n-- {
		events = events[:n-1]
	}
	return protocol.LinksOf(engine.TaskID(h.ID, h.Task.Number), h.ID, h.Namespace, events)
}

// maxFirstSignals is the number of inherited signals that a task contains for a worker that fetches the others.
const maxFirstSignals = 32

// pageOf returns how many events form a page: at least one, at most most, and at most the given number of bytes.
func pageOf(events []history.Event, most, bytes int) int {
	for i := range events {
		if bytes -= events[i].Size(); i > 0 && bytes < 0 || i == most {
			return i
		}
	}
	return len(events)
}

// HistoryPage returns a further page of the history of a leased workflow task or query task, up to the last event at
// its dispatch.
func (b *Broker) HistoryPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	run, n, ok := engine.ParseTaskID(in.TaskID)
	if !ok {
		return b.queryTaskPage(ctx, in)
	}
	after, err := transaction.ParsePage(in.PageToken)
	if err != nil {
		return protocol.HistoryPage{}, err
	}
	if in.After > after {
		after = in.After
	}
	scope := b.visibilityOf(ctx, transaction.NamespaceOrDefault(in.Namespace), protocol.KindWorkflow, in.TaskID, in.Owner)
	if err := scope.checkOwner(); err != nil {
		return protocol.HistoryPage{}, err
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return protocol.HistoryPage{}, err
	}
	var through int64
	err = b.store.View(ctx, func(r store.Reader) error {
		s, err := r.Step(ctx, run, 0)
		if errors.Is(err, store.ErrNotFound) || err == nil && s.Namespace != transaction.NamespaceOrDefault(in.Namespace) {
			return transaction.TaskNotFound(in.TaskID)
		}
		if err != nil {
			return err
		}
		if err := scope.checkRun(s); err != nil {
			return err
		}
		// Make the checks of a heartbeat and discard the renewal.
		held := engine.HeartbeatTask{Number: n, Holder: engine.Holder{Owner: in.Owner, Delivery: in.Attempt}}
		if _, err := engine.DecideRun(s, engine.Environment{}, held, now); err != nil {
			return err
		}
		// Events after the dispatch belong to the next task: a completion names the last event that it has seen, and
		// must not depend on later ones.
		through = s.Task.Shown
		return nil
	})
	if err != nil {
		return protocol.HistoryPage{}, scope.hideDetails(err)
	}
	size := in.PageSize
	if size <= 0 {
		size = transaction.DefaultPage
	}
	if in.All {
		size = transaction.MaxPage
	}
	p, err := b.pageOfHistory(ctx, run, after, through, size)
	for err == nil && in.All && p.NextPageToken != nil {
		var more protocol.HistoryPage
		more, err = b.pageOfHistory(ctx, run, p.Events[len(p.Events)-1].Seq, through, size)
		p.Events, p.NextPageToken = append(p.Events, more.Events...), more.NextPageToken
	}
	p.TaskID, p.Attempt, p.More = in.TaskID, in.Attempt, p.NextPageToken != nil
	if n := len(p.Events); p.More {
		p.NextAfter = &p.Events[n-1].Seq
	}
	return p, err
}

func secs(n int64) time.Duration { return time.Duration(n) * time.Second }
