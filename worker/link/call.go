package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
)

// call calls one method on a connection and puts refusals into the words of the protocol.
func (l *Link) call(ctx context.Context, conn Conn, method string, in, out any) error {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.opt.CallTimeout)
		defer cancel()
	}
	err := conn.Call(ctx, method, in, out)
	if err == nil {
		return nil
	}
	var e *rpc.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", method, err)
	}
	switch e.Code {
	case rpc.CodeDeadlineExceeded, rpc.CodeCancelled, rpc.CodeInternal, rpc.CodeMalformedAnswer,
		string(protocol.ReasonStoreUnavailable), string(protocol.ReasonBackendUnavailable): // perhaps it was done after all
		return fmt.Errorf("%s: %w", method, err)
	}
	refusal := &protocol.Error{Reason: protocol.Reason(e.Code), Message: e.Message, Details: e.Details}
	if refusal.Reason == protocol.ReasonStaleRegistration {
		if l.hasLeft() && method != protocol.MethodDeregister {
			// a heartbeat that was on its way as the worker left: it is what it wanted
			return fmt.Errorf("%s: %w", method, ErrLeft)
		}
		fatal := fmt.Errorf("worker %s: %w (%s)", l.opt.WorkerID, ErrSuperseded, e.Message)
		l.fail(fatal)
		return fatal
	}
	return refusal
}

// Lost says whether a call's error leaves open whether the app acted on it: the connection ended, or the time ran out.
func Lost(err error) bool {
	return err != nil && protocol.ReasonOf(err) == "" && !errors.Is(err, ErrSuperseded) && !errors.Is(err, ErrLeft)
}

// ask calls a method on the current connection, waiting for one, and registers again when the app has forgotten the
// worker.
func (l *Link) ask(ctx context.Context, method string, in, out any) error {
	lv, err := l.wait(ctx)
	if err != nil {
		return err
	}
	if err = l.call(ctx, lv.conn, method, in, out); protocol.ReasonOf(err) != protocol.ReasonWorkerNotRegistered {
		return err
	}
	lv.again.Lock()
	if err = ErrLeft; !l.hasLeft() {
		err = l.register(ctx, lv, nil)
	}
	lv.again.Unlock()
	if err != nil {
		return err
	}
	return l.call(ctx, lv.conn, method, in, out)
}

// slack is how much longer than its hold a poll may take.
const slack = 5 * time.Second

// Poll asks for tasks, waiting for a connection first. While the releases differ it is answered here, without asking,
// with PollMismatch and how long to pause; that is an answer like any other, not an error. An answer that could not be
// taken was given back by the app.
func (l *Link) Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollAnswer, error) {
	lv, err := l.wait(ctx)
	if err != nil {
		return protocol.PollAnswer{}, err
	}
	if v := l.judge(lv.settings.Release, lv.settings.Strict); !v.Allowed {
		return protocol.PollAnswer{
			Status: protocol.PollMismatch, Reason: v.Message, RetryAfter: l.opt.MismatchPause.Milliseconds(),
			AppRelease: lv.settings.Release,
		}, nil
	}
	hold := time.Duration(lv.settings.PollSeconds) * time.Second
	if hold <= 0 {
		hold = 50 * time.Second
	}
	if in.Timeout != nil {
		hold = min(hold, time.Duration(*in.Timeout)*time.Second)
	}
	if l.rest(ctx, hold) {
		return protocol.PollAnswer{Status: protocol.PollDraining, Reason: string(protocol.ReasonWorkerDraining)}, ctx.Err()
	}
	req := l.channelPoll(in)
	ms := hold.Milliseconds()
	req.TimeoutMS = &ms
	ctx, cancel := context.WithTimeout(ctx, hold+slack)
	defer cancel()
	var out protocol.ChannelPollAnswer
	if err := l.ask(ctx, protocol.MethodPoll, req, &out); err != nil {
		return protocol.PollAnswer{}, err
	}
	return l.taken(out), nil
}

func (l *Link) channelPoll(in protocol.PollRequest) protocol.ChannelPoll {
	return protocol.ChannelPoll{
		Queues: in.Queues, Kinds: in.Kinds, Free: in.Free, Max: max(1, in.Max), PollID: in.PollID, Release: l.opt.Release,
		BuildID:  in.BuildID,
		PageSize: in.PageSize, PagedQueries: true, Turns: in.Turns,
	}
}

// taken is a poll's answer in the app's own words.
func (l *Link) taken(a protocol.ChannelPollAnswer) protocol.PollAnswer {
	out := protocol.PollAnswer{
		Status: a.Status, Reason: a.Reason, RetryAfter: a.RetryAfter, AppRelease: a.AppRelease, StoreTime: a.StoreTime,
	}
	if a.Status == protocol.PollMismatch && a.AppRelease != "" {
		l.judge(a.AppRelease, false)
	}
	for _, j := range a.Jobs {
		out.Tasks = append(out.Tasks, j.Task)
		l.held.addTask(j.Task)
	}
	return out
}

// Complete reports outcomes and, with Next, polls in the same call. The answer's items are in the order of the
// outcomes.
func (l *Link) Complete(ctx context.Context, in protocol.CompleteRequest) (protocol.CompleteBatchAnswer, error) {
	req := protocol.ChannelComplete{Items: make([]protocol.JobOutcome, len(in.Items))}
	for i, item := range in.Items {
		req.Items[i] = outcome(item)
	}
	if in.Next != nil {
		next := l.channelPoll(*in.Next)
		req.Next = &next
	}
	var out protocol.ChannelCompleteAnswer
	if err := l.ask(ctx, protocol.MethodCompleteJob, req, &out); err != nil {
		return protocol.CompleteBatchAnswer{}, err
	}
	a := protocol.CompleteBatchAnswer{Items: make([]protocol.CompleteAnswer, len(out.Items))}
	for i, r := range out.Items {
		a.Items[i] = protocol.CompleteAnswer{
			TaskID: r.ID, Outcome: r.Outcome, Recorded: r.Recorded, CreatedTaskIDs: r.Created, Then: r.Then, Error: r.Error,
		}
		if r.Then != nil && r.Then.Next != nil {
			l.held.addTask(protocol.Task{Activity: r.Then.Next})
		}
		if r.Reason != "" {
			a.Items[i].Reason = &r.Reason
		}
		if i < len(in.Items) {
			l.held.done(in.Items[i])
		}
	}
	if out.Next != nil {
		next := l.taken(*out.Next)
		a.Next = &next
	}
	return a, nil
}

// Forget says that a task this process was given has ended without a word to the app.
func (l *Link) Forget(item protocol.CompleteItem) { l.held.done(item) }

// History fetches a page of the history behind a workflow task; an empty token is the first page.
func (l *Link) History(ctx context.Context, t *protocol.WorkflowTask, pageToken string) (protocol.HistoryPage, error) {
	var out protocol.HistoryPage
	err := l.ask(ctx, protocol.MethodFetchHistory, protocol.JobHistory{
		JobRef: ref(protocol.KindWorkflow, t.TaskID, "", t.Attempt, t.LeaseOwner), PageToken: pageToken,
	}, &out)
	return out, err
}

// QuestionHistory fetches a page of the history behind a query or a validation, which item is to answer.
func (l *Link) QuestionHistory(
	ctx context.Context, item protocol.CompleteItem, pageToken string,
) (protocol.HistoryPage, error) {
	var out protocol.HistoryPage
	err := l.ask(ctx, protocol.MethodFetchHistory, protocol.JobHistory{
		JobRef: ref(item.Kind, item.TaskID, "", item.Attempt, item.Owner), PageToken: pageToken,
	}, &out)
	return out, err
}

// Progress is a sign of life of an attempt's own code, with what it wants to show.
func (l *Link) Progress(ctx context.Context, in protocol.HeartbeatRequest) (protocol.JobLock, error) {
	var out protocol.JobLock
	err := l.ask(ctx, protocol.MethodReportProgress, protocol.JobProgress{
		JobRef: ref(
			in.Kind, in.TaskID, in.AttemptID, in.Attempt, in.Owner,
		),
		Progress: in.Progress, Rebuild: in.Rebuild,
	}, &out)
	return out, err
}

// Logs hands over what the code of attempts logged. The answer's items are in the order of those given.
func (l *Link) Logs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsAnswer, error) {
	req := protocol.JobLogs{Items: make([]protocol.JobLines, len(in.Items))}
	for i, a := range in.Items {
		req.Items[i] = protocol.JobLines{
			JobRef: ref(protocol.KindActivity, a.TaskID, a.AttemptID, 0, a.Owner), LogChunk: a.LogChunk,
		}
	}
	var said protocol.JobLogsAnswer
	if err := l.ask(ctx, protocol.MethodUploadLogs, req, &said); err != nil {
		return protocol.LogsAnswer{}, err
	}
	out := protocol.LogsAnswer{Items: make([]protocol.LogReceipt, len(said.Items))}
	for i, r := range said.Items {
		out.Items[i] = protocol.LogReceipt{TaskID: r.ID, Recorded: r.Recorded, Reason: r.Reason, Message: r.Message}
	}
	return out, nil
}

// CreateSession claims a session by verb.
func (l *Link) CreateSession(ctx context.Context, in protocol.SessionCreate) (protocol.SessionAnswer, error) {
	return l.session(ctx, protocol.MethodCreateSession, in)
}

// HeartbeatSession renews a held session, and counts as activity.
func (l *Link) HeartbeatSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionAnswer, error) {
	return l.session(ctx, protocol.MethodHeartbeatSession, in)
}

// ReleaseSession gives a session up without ending it.
func (l *Link) ReleaseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionAnswer, error) {
	return l.session(ctx, protocol.MethodReleaseSession, in)
}

// CloseSession ends a session for good.
func (l *Link) CloseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionAnswer, error) {
	return l.session(ctx, protocol.MethodCloseSession, in)
}

func (l *Link) session(ctx context.Context, method string, in any) (protocol.SessionAnswer, error) {
	var out protocol.SessionAnswer
	err := l.ask(ctx, method, in, &out)
	return out, err
}

// Deregister takes the registration away: what is still leased goes back, what is still held is released. All calls
// after it fail with ErrLeft.
func (l *Link) Deregister(ctx context.Context) error {
	lv, err := l.wait(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.left = true
	l.mu.Unlock()
	var out protocol.DeregisterAnswer
	return l.call(ctx, lv.conn, protocol.MethodDeregister, protocol.DeregisterRequest{
		WorkerID: l.opt.WorkerID, Incarnation: l.opt.Incarnation,
	}, &out)
}
