package view

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A session's row contains its owner and lease. The running and waiting tasks, and the reasons for waiting, follow from
// tasks and workers; they are computed for each request, since nothing is written when they change.

// Sessions lists sessions, last updated first, with counts over the whole namespace.
func (v *View) Sessions(ctx context.Context, in protocol.SessionList) (protocol.SessionPage, error) {
	ns := transaction.NamespaceOrDefault(in.Namespace)
	q := store.SessionQuery{
		Namespace: ns, Owner: in.Owner, Queue: in.Queue, Workflow: in.Workflow, Text: in.Query,
		Limit: pageSize(in.PageSize, 50, 200) + 1,
	}
	if err := knownStatus(in.Status, sessionStatuses); err != nil {
		return protocol.SessionPage{}, err
	}
	if in.Status != "" {
		q.Statuses = []protocol.SessionStatus{protocol.SessionStatus(in.Status)}
	}
	var err error
	if q.AfterUpdated, q.AfterID, err = parseCursor(in.PageToken); err != nil {
		return protocol.SessionPage{}, err
	}
	now, err := v.store.Now(ctx)
	if err != nil {
		return protocol.SessionPage{}, err
	}
	p := protocol.SessionPage{Namespace: ns, Sessions: []protocol.SessionView{}, Metrics: map[string]int{"total": 0}}
	for _, s := range sessionStatuses {
		p.Metrics[string(s)] = 0
	}
	err = v.store.View(ctx, func(r store.Reader) error {
		rows, err := r.Sessions(ctx, q)
		if err != nil {
			return err
		}
		if len(rows) == q.Limit {
			rows = rows[:q.Limit-1]
			last := rows[len(rows)-1]
			p.NextPageToken = cursor(last.UpdatedAt, last.ID)
		}
		known, err := v.workers.Roster(ctx, r, ns)
		if err != nil {
			return err
		}
		around, err := v.waitContextOf(ctx, r, known, ns, true, now)
		if err != nil {
			return err
		}
		for _, s := range rows {
			shown := v.sessionView(s, known, now)
			if shown.Wait = around.SessionWait(&s); shown.Wait != nil {
				shown.Waiting = shown.Wait.Why(time.UTC)
			}
			p.Sessions = append(p.Sessions, shown)
		}
		return nil
	})
	if err != nil {
		return p, err
	}
	counts, err := v.sessionCounts(ctx, ns)
	for s, n := range counts {
		p.Metrics[string(s)] = n
		p.Metrics["total"] += n
	}
	return p, err
}

// sessionCounts returns exact counts, read once for all concurrent callers: open pages request them every second.
func (v *View) sessionCounts(ctx context.Context, ns string) (map[protocol.SessionStatus]int, error) {
	return v.sessionsCounted.get(ctx, ns, v.opt.Dispatch.Changes, func(
		ctx context.Context,
	) (counts map[protocol.SessionStatus]int, err error) {
		err = v.store.View(ctx, func(r store.Reader) error {
			counts, err = r.SessionCounts(ctx, ns)
			return err
		})
		return counts, err
	})
}

// Session returns one session with its ownership timeline.
func (v *View) Session(ctx context.Context, ns, id string) (protocol.SessionView, error) {
	key := engine.SessionKey{Namespace: transaction.NamespaceOrDefault(ns), ID: id}
	now, err := v.store.Now(ctx)
	if err != nil {
		return protocol.SessionView{}, err
	}
	var out protocol.SessionView
	err = v.store.View(ctx, func(r store.Reader) error {
		s, err := r.Session(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			gone := protocol.Refuse(protocol.ReasonWorkerSessionNotFound, "session %s not found", id)
			// The timeline stays after the row was deleted.
			timeline, earlier, err := readTimeline(ctx, r, key, 0, timelineShown)
			if len(timeline) > 0 {
				gone.With("timeline", withRenewals(timeline, nil, false))
			}
			if earlier != nil {
				gone.With("timeline_page_token", *earlier)
			}
			return cmp.Or(err, error(gone))
		}
		if err != nil {
			return err
		}
		known, err := v.workers.Roster(ctx, r, key.Namespace)
		if err != nil {
			return err
		}
		out = v.sessionView(s, known, now)
		timeline, earlier, err := readTimeline(ctx, r, key, 0, timelineShown)
		out.Timeline, out.TimelineToken = withRenewals(timeline, &s, s.Held(now)), earlier
		if err != nil {
			return err
		}
		around, err := v.waitContextOf(ctx, r, known, key.Namespace, true, now)
		if err != nil {
			return err
		}
		if out.Wait, err = sessionWait(ctx, r, around, &s); out.Wait != nil {
			out.Waiting = out.Wait.Why(time.UTC)
		}
		return err
	})
	return out, err
}

// sessionWait returns the wait reason of a session's tasks: the reason of its first ready task, else of the session.
func sessionWait(
	ctx context.Context, r store.Reader, around *engine.WaitContext, s *engine.Session,
) (*protocol.Wait, error) {
	if s.Ready == 0 {
		return around.SessionWait(s), nil
	}
	around.Sessions[s.ID] = s
	tasks, err := r.SessionTasks(ctx, s.Key(), 100)
	for _, a := range tasks {
		if a.State == engine.Ready {
			return around.ActivityWait(a), err
		}
	}
	return around.SessionWait(s), err
}

// Written returns a session after a verb changed it, with the liveness of its owner as this app knows it.
func (v *View) Written(s engine.Session, now time.Time) protocol.SessionView {
	return v.sessionView(s, v.workers.All(s.Namespace), now)
}

// sessionView combines a session's row with the liveness of its owner.
func (v *View) sessionView(s engine.Session, roster membership.Roster, now time.Time) protocol.SessionView {
	out := protocol.SessionView{
		SessionID: s.ID, Namespace: s.Namespace, Origin: string(s.Origin), Scope: "namespace", WorkflowID: s.WorkflowID,
		Connection: protocol.OrNil(s.Connection),
		Queue:      protocol.OrNil(s.Queue), Requirements: protocol.OrEmpty(s.Requirements),
		Resources: s.Resources, Used: s.Used,
		Status: s.Shown(), Epoch: s.Epoch,
		LeaseOwner:     protocol.OrNil(s.Owner),
		LeaseExpiresAt: s.LeaseUntil, TTLExpiresAt: s.TTLUntil, IdleSeconds: s.Idle / 1_000_000, ClosedAt: s.ClosedAt,
		EndedReason: s.Reason, Moving: s.Moving, ReleasePolicy: s.ReleasePolicy, Claims: s.Acquisitions,
		Lease: int64(s.LeaseLength() / time.Second), FailFast: s.FailFast,
		TTL: s.TTL, MaxActivities: s.MaxActivities, Create: !s.NoCreate,
		Reacquire: !s.NoReacquire, Active: s.Active, Ready: s.Ready, Release: s.Release, LastActivityAt: s.LastActivity,
		LastHeartbeatAt: s.RenewedAt, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
	out.Affinity, out.FallbackAfter = s.Affinity()
	out.Pinned, out.Yielding, out.Definition = s.Pinned, s.Yielding, s.Definition
	out.FallbackAt, out.Pool, out.Uses = s.OpensAt(), s.Pool, s.Loans
	if s.Loan != nil {
		out.LentAt, out.LoanExpiresAt = s.Loan.Since, s.Loan.Until
	}
	if s.Origin == engine.OriginWorkflow {
		out.Scope = "workflow"
	}
	switch s.Reason { // the published API has only these reasons of failure
	case engine.ReasonTTL, engine.ReasonLeaseLost, engine.ReasonOrphaned:
		out.FailureReason = &s.Reason
	default:
		if s.Status == protocol.SessionFailed {
			out.FailureReason = &s.Reason
		}
	}
	if s.For != "" && s.ForUntil.After(now) {
		out.KeptFor = s.For
	}
	if p := s.Preparing(now); p != nil {
		out.Successor = &protocol.SessionSuccessor{
			WorkerID: p.Worker, StartedAt: p.StartedAt, PreparedAt: p.PreparedAt, LeaseExpiresAt: p.Until, Why: p.Why(),
		}
	}
	if p := s.Snapshot; p != nil {
		out.Snapshot = &protocol.SnapshotView{WorkerID: p.Worker, Bytes: p.Bytes, File: p.File, ExpiresAt: p.Until}
	}
	if s.Owner == "" {
		return out
	}
	// A holder without heartbeats holds the session until its lease ends, so it is shown as stale.
	if h, ok := roster[engine.WorkerKey{Namespace: s.Namespace, ID: s.Owner}]; ok {
		w := v.workerView(h.Worker, h, store.Holding{}, now)
		out.Holder = &protocol.SessionHolder{
			WorkerID: w.WorkerID, TaskQueue: w.TaskQueue, Status: w.Status, LastHeartbeatAt: w.LastHeartbeatAt,
			Stale: w.Status == protocol.WorkerStale,
		}
		return out
	}
	out.Holder = &protocol.SessionHolder{WorkerID: s.Owner, Status: protocol.WorkerStale, Stale: true}
	return out
}
