package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/presence"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/release"
)

// Workers lists registrations by id, each with how it stands now.
func (b *Broker) Workers(ctx context.Context, ns, queue, status string) ([]protocol.WorkerView, error) {
	ns = change.Namespace(ns)
	now, err := b.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	views := []protocol.WorkerView{}
	err = b.store.View(ctx, func(r store.Reader) error {
		rows, err := r.Workers(ctx, store.WorkerQuery{Namespace: ns, Queue: queue, Limit: 10_000})
		if err != nil {
			return err
		}
		held, err := r.Holdings(ctx, ns)
		if err != nil {
			return err
		}
		known, err := b.fleet(ctx, r, ns)
		if err != nil {
			return err
		}
		for i := range rows {
			h, ok := known[rows[i].Key()]
			if !ok {
				h = presence.Heard{Worker: &rows[i]}
			}
			if !rows[i].Left.IsZero() && held[rows[i].ID].Leases == 0 {
				continue
			}
			v := b.workerView(&rows[i], h, held[rows[i].ID], now)
			if !rows[i].Left.IsZero() { // it ends what it holds
				v.Status = protocol.WorkerDraining
			}
			views = append(views, v)
		}
		return nil
	})
	differences(views)
	return slices.DeleteFunc(views, func(v protocol.WorkerView) bool {
		return status != "" && string(v.Status) != status
	}), err
}

// Worker shows one registration.
func (b *Broker) Worker(ctx context.Context, ns, id string) (protocol.WorkerView, error) {
	all, err := b.Workers(ctx, ns, "", "")
	for _, v := range all {
		if v.WorkerID == id {
			return v, nil
		}
	}
	if err == nil {
		err = protocol.Refuse(protocol.ReasonWorkerNotFound, "there is no worker %s", id)
	}
	return protocol.WorkerView{}, err
}

func (b *Broker) workerView(w *engine.Worker, h presence.Heard, held store.Holding, now time.Time) protocol.WorkerView {
	v := protocol.WorkerView{
		WorkerID: w.ID, Namespace: w.Namespace, TaskQueue: w.Queues[0], TaskQueues: w.Queues, Runtime: w.Runtime,
		SDKVersion: w.SDKVersion,
		BuildID:    orNil(w.BuildID), Release: w.Release, Incarnation: w.Incarnation, Status: b.shown(h, now), Gate: h.Gate,
		Capabilities: orEmpty(w.Capabilities), WorkflowTypes: orEmpty(w.WorkflowTypes),
		ActivityTypes: orEmpty(w.ActivityTypes),
		WorkflowSlots: w.WorkflowSlots, ActivitySlots: w.ActivitySlots, MaxSessions: w.MaxSessions,
		Session: &protocol.SessionSettings{
			LeaseMS: w.SessionLease / 1000, BufferMS: w.SessionBuffer / 1000, IdleMS: w.SessionIdle / 1000,
			MaxActivities: w.Together,
		},
		HeartbeatInterval: int64(b.opt.Heartbeat.Seconds()), LastHeartbeatAt: w.HeartbeatAt, RegisteredAt: w.RegisteredAt,
		UpdatedAt: w.UpdatedAt,
		Machine:   h.Machine, Isolation: w.Isolation, Slots: w.Slots, Process: w.Process, Leases: held.Leases,
		WorkflowTasks: held.WorkflowTasks,
		Activities:    held.Leases - held.WorkflowTasks, Sessions: held.Sessions, Group: w.Group,
		Settings: w.Settings, Versions: w.Versions,
	}
	if d := b.drainOf(w); d != nil {
		v.Drain = &protocol.WorkerDrain{
			FleetTarget: d.FleetTarget, Since: d.At, DeadlineAt: d.Deadline, Evict: d.Evict, By: d.By, Reason: d.Reason,
		}
	}
	if !h.At.IsZero() {
		v.LastHeartbeatAt = history.At(now.Add(-time.Since(h.At)))
	}
	if len(h.Slots) > 0 {
		v.Slots = h.Slots
	}
	if len(h.Process) > 0 {
		v.Process = h.Process
	}
	return v
}

// Sessions lists sessions, last updated first, with counts over the whole namespace.
func (b *Broker) Sessions(ctx context.Context, in protocol.SessionList) (protocol.SessionPage, error) {
	ns := change.Namespace(in.Namespace)
	q := store.SessionQuery{
		Namespace: ns, Owner: in.Owner, Queue: in.Queue, Workflow: in.Workflow, Text: in.Query,
		Limit: view.PageSize(in.PageSize, 50, 200) + 1,
	}
	if in.Status != "" {
		if !slices.Contains(view.SessionStatuses, protocol.SessionStatus(in.Status)) {
			return protocol.SessionPage{}, protocol.Invalid(
				"status", "must be one of %v, not %q", view.SessionStatuses, in.Status,
			)
		}
		q.Statuses = []protocol.SessionStatus{protocol.SessionStatus(in.Status)}
	}
	var err error
	if q.AfterUpdated, q.AfterID, err = view.ParseCursor(in.PageToken); err != nil {
		return protocol.SessionPage{}, err
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return protocol.SessionPage{}, err
	}
	p := protocol.SessionPage{Namespace: ns, Sessions: []protocol.SessionView{}, Metrics: map[string]int{"total": 0}}
	for _, s := range view.SessionStatuses {
		p.Metrics[string(s)] = 0
	}
	err = b.store.View(ctx, func(r store.Reader) error {
		rows, err := r.Sessions(ctx, q)
		if err != nil {
			return err
		}
		if len(rows) == q.Limit {
			rows = rows[:q.Limit-1]
			last := rows[len(rows)-1]
			p.NextPageToken = view.Cursor(last.UpdatedAt, last.ID)
		}
		known, err := b.fleet(ctx, r, ns)
		if err != nil {
			return err
		}
		around, err := b.among(ctx, r, known, ns, true, now)
		if err != nil {
			return err
		}
		for _, s := range rows {
			v := b.sessionView(s, known, now)
			if v.Wait = around.SessionWait(&s); v.Wait != nil {
				v.Waiting = v.Wait.Why(time.UTC)
			}
			p.Sessions = append(p.Sessions, v)
		}
		counts, err := r.SessionCounts(ctx, ns)
		for s, n := range counts {
			p.Metrics[string(s)] = n
			p.Metrics["total"] += n
		}
		return err
	})
	return p, err
}

// Session shows one session with its ownership timeline.
func (b *Broker) Session(ctx context.Context, ns, id string) (protocol.SessionView, error) {
	key := engine.SessionKey{Namespace: change.Namespace(ns), ID: id}
	now, err := b.store.Now(ctx)
	if err != nil {
		return protocol.SessionView{}, err
	}
	var v protocol.SessionView
	err = b.store.View(ctx, func(r store.Reader) error {
		s, err := r.Session(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			gone := protocol.Refuse(protocol.ReasonWorkerSessionNotFound, "there is no session %s", id)
			timeline, earlier, err := view.Timeline(ctx, r, key, 0, view.TimelineShown) // kept when the row was cleaned up
			if len(timeline) > 0 {
				gone.With("timeline", view.Renewals(timeline, nil, false))
			}
			if earlier != nil {
				gone.With("timeline_page_token", *earlier)
			}
			return cmp.Or(err, error(gone))
		}
		if err != nil {
			return err
		}
		known, err := b.fleet(ctx, r, key.Namespace)
		if err != nil {
			return err
		}
		v = b.sessionView(s, known, now)
		timeline, earlier, err := view.Timeline(ctx, r, key, 0, view.TimelineShown)
		v.Timeline, v.TimelineToken = view.Renewals(timeline, &s, s.Held(now)), earlier
		if err != nil {
			return err
		}
		around, err := b.among(ctx, r, known, key.Namespace, true, now)
		if err != nil {
			return err
		}
		if v.Wait, err = sessionWait(ctx, r, around, &s); v.Wait != nil {
			v.Waiting = v.Wait.Why(time.UTC)
		}
		return err
	})
	return v, err
}

// sessionWait is why the tasks of a session wait: as its first ready task says, else as the session does.
func sessionWait(
	ctx context.Context, r store.Reader, around *engine.Surroundings, s *engine.Session,
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

func (b *Broker) sessionView(s engine.Session, known fleet, now time.Time) protocol.SessionView {
	v := protocol.SessionView{
		SessionID: s.ID, Namespace: s.Namespace, Door: string(s.Door), Scope: "namespace", WorkflowID: s.WorkflowID,
		Connection: orNil(s.Connection),
		Queue:      orNil(s.Queue), Requirements: orEmpty(s.Requirements), Status: s.Shown(), Epoch: s.Epoch,
		LeaseOwner:     orNil(s.Owner),
		LeaseExpiresAt: s.LeaseUntil, TTLExpiresAt: s.TTLUntil, IdleSeconds: s.Idle / 1_000_000, ClosedAt: s.ClosedAt,
		EndedReason: s.Reason, Moving: s.Moving, ReleasePolicy: s.ReleasePolicy, Claims: s.Claims, Lease: s.Lease / 1_000_000,
		TTL: s.TTL, MaxActivities: s.MaxActivities, Create: !s.NoCreate,
		Reacquire: !s.NoReacquire, Active: s.Active, Ready: s.Ready, Release: s.Release, LastActivityAt: s.LastActivity,
		LastHeartbeatAt: s.RenewedAt, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
	v.Affinity, v.FallbackAfter = s.Affinity()
	v.FallbackAt = s.OpensAt()
	if s.Door == engine.DoorWorkflow {
		v.Scope = "workflow"
	}
	switch s.Reason { // clients know these reasons of failure only
	case engine.ReasonTTL, engine.ReasonLeaseLost, engine.ReasonOrphaned:
		v.FailureReason = &s.Reason
	default:
		if s.Status == protocol.SessionFailed {
			v.FailureReason = &s.Reason
		}
	}
	if s.For != "" && s.ForUntil.After(now) {
		v.KeptFor = s.For
	}
	if s.Owner == "" {
		return v
	}
	if h, ok := known[engine.WorkerKey{Namespace: s.Namespace, ID: s.Owner}]; ok {
		w := b.workerView(h.Worker, h, store.Holding{}, now)
		v.Holder = &protocol.SessionHolder{
			WorkerID: w.WorkerID, TaskQueue: w.TaskQueue, Status: w.Status, LastHeartbeatAt: w.LastHeartbeatAt,
			Stale: w.Status == protocol.WorkerStale,
		}
		return v
	}
	v.Holder = &protocol.SessionHolder{WorkerID: s.Owner, Status: protocol.WorkerStale, Stale: true}
	return v
}

// Audit records an operator's action that no other write carries.
func (b *Broker) Audit(ctx context.Context, a store.Audit) error {
	_, err := b.store.Commit(ctx, store.Change{Decide: func(_ store.Rows, now time.Time) (store.Writes, error) {
		a.At = history.At(now)
		return store.Writes{Audit: []store.Audit{a}}, nil
	}})
	return err
}

// countedUpTo is how far people are told numbers of runs exactly; one more says that there are more.
const countedUpTo = 10_000

// RunCounts counts the runs of a namespace by status for people who look: up to 10,000, read once for all of them.
func (b *Broker) RunCounts(ctx context.Context, ns string) (protocol.RunCounts, error) {
	ns = change.Namespace(ns)
	runs, err := b.runCounts.get(ctx, ns, b.dispatch.Changes, func(ctx context.Context) (runs map[string]int, err error) {
		err = b.store.View(ctx, func(r store.Reader) error {
			runs, err = countsUpTo(ctx, r, ns)
			return err
		})
		return runs, err
	})
	return protocol.RunCounts{Runs: runs, UpTo: countedUpTo}, err
}

func countsUpTo(ctx context.Context, r store.Reader, ns string) (map[string]int, error) {
	counts, err := r.RunCountsUpTo(ctx, ns, countedUpTo+1)
	return texts(counts), err
}

func texts[S ~string](counts map[S]int) map[string]int {
	all := make(map[string]int, len(counts))
	for s, n := range counts {
		all[string(s)] = n
	}
	return all
}

// Overview is a snapshot of this app and what it sees, for people: read once for all who look, at most once a second,
// with runs counted as RunCounts does.
func (b *Broker) Overview(ctx context.Context, ns string) (protocol.Overview, error) {
	ns = change.Namespace(ns)
	o, err := b.overviews.get(ctx, ns, b.dispatch.Changes, func(ctx context.Context) (protocol.Overview, error) {
		return b.overview(ctx, ns, countsUpTo)
	})
	o.Uptime, o.UpTo = int64(time.Since(b.started).Seconds()), countedUpTo
	return o, err
}

// Tally is Overview with exact counts as of now.
func (b *Broker) Tally(ctx context.Context, ns string) (protocol.Overview, error) {
	return b.overview(ctx, change.Namespace(ns), func(
		ctx context.Context, r store.Reader, ns string,
	) (map[string]int, error) {
		counts, err := r.RunCounts(ctx, ns)
		return texts(counts), err
	})
}

func (b *Broker) overview(
	ctx context.Context, ns string, runs func(context.Context, store.Reader, string) (map[string]int, error),
) (protocol.Overview, error) {
	o := protocol.Overview{
		Release: b.opt.Release, Unreadable: b.opt.Release == release.Unreadable, App: b.opt.App, Store: "sqlite",
		Uptime: int64(time.Since(b.started).Seconds()), Counts: map[string]map[string]int{}, Queues: []protocol.QueueView{},
	}
	if b.opt.Shared {
		o.Store = "postgres"
	}
	workers, err := b.Workers(ctx, ns, "", "")
	if err != nil {
		return o, err
	}
	o.Counts["workers"] = map[string]int{}
	for _, w := range workers {
		o.Counts["workers"][string(w.Status)]++
	}
	err = b.store.View(ctx, func(r store.Reader) error {
		sessions, err := r.SessionCounts(ctx, ns)
		if err != nil {
			return err
		}
		o.Counts["sessions"] = texts(sessions)
		if o.Counts["runs"], err = runs(ctx, r, ns); err != nil {
			return err
		}
		queues, err := r.Queues(ctx, ns)
		for _, q := range queues {
			o.Queues = append(o.Queues, protocol.QueueView{
				Namespace: q.Namespace, Queue: q.Queue, Kind: q.Kind, Ready: q.Ready, Leased: q.Leased, Delayed: q.Delayed,
				OldestReady: q.OldestReady,
			})
		}
		return err
	})
	return o, err
}

// shown is a worker's status for people: one whose build is drained in all of its queues gets nothing new, as if it
// drained by itself.
func (b *Broker) shown(h presence.Heard, now time.Time) protocol.WorkerStatus {
	s := b.status(h, now)
	if s != protocol.WorkerActive {
		return s
	}
	for _, q := range h.Worker.Queues {
		if !b.store.Queue(engine.QueueKey{Namespace: h.Worker.Namespace, Name: q}).Drained(h.Worker.BuildID) {
			return s
		}
	}
	return protocol.WorkerDraining
}
