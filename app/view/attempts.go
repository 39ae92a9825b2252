package view

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The attempts in a session have no table: the extra rows per attempt would only serve rare lookups of operators. The
// view is computed from the running tasks and from histories, which is expensive, so one page reads a bounded number of
// events and may be shorter than requested.

// maxAttemptEvents is the maximum number of events that one page of a session's attempts reads; so a page may be
// shorter than requested and still have a next page.
const maxAttemptEvents = 1000

// SessionAttempts lists the attempts in a session, newest first: the running attempts on the first page, then attempts
// from the histories of runs.
func (v *View) SessionAttempts(ctx context.Context, in protocol.SessionAttempts) (protocol.SessionAttemptPage, error) {
	key := engine.SessionKey{Namespace: cmp.Or(in.Namespace, store.DefaultNamespace), ID: in.SessionID}
	p := protocol.SessionAttemptPage{Namespace: key.Namespace, SessionID: key.ID, Attempts: []protocol.SessionAttempt{}}
	before, err := parseRan(in.PageToken)
	if err != nil {
		return p, err
	}
	size := pageSize(in.PageSize, 100, 500)
	// The events of all holdings are read, and events of other holdings are filtered here: an index by holding would
	// need an entry for every activity in a session, only for a page that is rarely used.
	add := func(list []protocol.SessionAttempt) {
		for _, a := range list {
			if in.Epoch == 0 || a.Epoch == in.Epoch {
				p.Attempts = append(p.Attempts, a)
			}
		}
	}
	err = v.store.View(ctx, func(r store.Reader) error {
		if in.PageToken == "" {
			open, err := openAttempts(ctx, r, key)
			if err != nil {
				return err
			}
			add(open)
		}
		for looked := 0; ; {
			events, err := r.SessionHistory(ctx, key, before, size)
			if err != nil {
				return err
			}
			for i := range events {
				before = events[i]
				add(endedAttempts(&events[i]))
				if looked++; len(p.Attempts) >= size || looked >= maxAttemptEvents {
					p.NextPageToken = ranToken(before)
					return nil
				}
			}
			if len(events) < size {
				return nil
			}
		}
	})
	return p, err
}

// openAttempts returns the attempts that run in a session now, and the lost deliveries of activities that are open.
func openAttempts(
	ctx context.Context, r store.Reader, key engine.SessionKey,
) (list []protocol.SessionAttempt, err error) {
	tasks, err := r.SessionTasks(ctx, key, 1000)
	if err != nil {
		return nil, err
	}
	flows := map[string]string{}
	for i := range tasks {
		a := &tasks[i]
		if a.State != engine.LeasedState && len(a.Lost) == 0 {
			continue // the task waits, and no attempt has run in this session
		}
		if _, ok := flows[a.RunID]; !ok {
			run, err := r.Run(ctx, a.RunID)
			if err != nil {
				return nil, err
			}
			flows[a.RunID] = run.WorkflowID
		}
		one := protocol.SessionAttempt{
			WorkflowID: flows[a.RunID], RunID: a.RunID, TaskID: engine.StepID(a.RunID, a.Seq), ActivityType: a.Type,
		}
		if a.State == engine.LeasedState {
			now := one
			now.AttemptID, now.Attempt, now.Worker = engine.AttemptID(a.RunID, a.Seq, a.Delivery), a.Attempt, a.Owner
			now.Epoch, now.Outcome, now.StartedAt = a.Epoch, "running", a.LeasedAt
			now.Heartbeat, now.HeartbeatDetails = a.HeartbeatAt, a.Progress
			list = append(list, now)
		}
		list = append(list, lostDeliveries(one, a.Lost)...)
	}
	return list, nil
}

// endedAttempts returns the deliveries that ended with an event: the attempt of the event, and the lost deliveries
// before it.
func endedAttempts(e *store.RunEvent) []protocol.SessionAttempt {
	one := protocol.SessionAttempt{WorkflowID: e.WorkflowID, RunID: e.Run}
	var at history.Attempt
	switch d := e.Data.(type) {
	case *history.ActivityCompleted:
		at, one.TaskID, one.ActivityType, one.Outcome = d.Attempt, d.ExecutionID, d.ActivityType, "completed"
	case *history.ActivityFailed:
		at, one.TaskID, one.ActivityType, one.Outcome, one.Why = d.Attempt, d.ExecutionID, d.ActivityType, "failed", d.Text()
	case *history.ActivityTimedOut:
		at, one.TaskID, one.ActivityType, one.Outcome, one.Why = d.Attempt, d.ExecutionID, d.ActivityType, "failed", d.Text()
	case *history.ActivityRetryScheduled:
		at, one.TaskID, one.ActivityType, one.Outcome, one.Why = d.Attempt, d.ExecutionID, d.ActivityType, "failed", d.Text()
	case *history.ActivityCancelled:
		at, one.TaskID, one.ActivityType, one.Outcome, one.Why = d.Attempt, d.ExecutionID, d.ActivityType, "cancelled",
			d.Reason
	}
	lost := one
	lost.Outcome, lost.Why = "", ""
	list := lostDeliveries(lost, at.Lost)
	if at.AttemptID == "" { // the activity ended while it was not leased
		return list
	}
	one.AttemptID, one.Attempt, one.Worker, one.Epoch, one.StartedAt, one.EndedAt = at.AttemptID, at.Number, at.Worker,
		at.SessionEpoch, at.StartedAt, e.At
	return append([]protocol.SessionAttempt{one}, list...)
}

// lostDeliveries returns the deliveries of an activity that ended without an outcome, newest first.
func lostDeliveries(of protocol.SessionAttempt, lost []history.Lost) (list []protocol.SessionAttempt) {
	for i := len(lost) - 1; i >= 0; i-- {
		l := &lost[i]
		one := of
		one.AttemptID, one.Worker, one.Epoch = fmt.Sprintf("%s-%d", of.TaskID, l.Delivery), l.Worker, l.Epoch
		one.Outcome, one.Why, one.StartedAt, one.EndedAt = "returned", l.Why, l.StartedAt, l.At
		one.Heartbeat, one.HeartbeatDetails = l.HeartbeatAt, l.HeartbeatDetails
		if l.Why == engine.ReasonLeaseLost || l.Why == engine.ReasonRestarted {
			one.Outcome = "expired"
		}
		list = append(list, one)
	}
	return list
}

// ranToken returns the opaque position after an event. A time would not be unique: two runs may end an activity in the
// same microsecond, in one commit.
func ranToken(e store.RunEvent) *string {
	t := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d %s", e.At.Micros(), e.Seq, e.Run))
	return &t
}

func parseRan(token string) (e store.RunEvent, err error) {
	if token == "" {
		return e, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	var at int64
	if err == nil {
		_, err = fmt.Sscan(string(raw), &at, &e.Seq, &e.Run)
	}
	if err != nil || strings.Count(string(raw), " ") != 2 {
		return e, protocol.Refuse(protocol.ReasonInvalidPageToken, "invalid page token %q", token)
	}
	e.At = history.Micros(at)
	return e, nil
}
