package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A drain is stored, because it also applies to apps and workers that start later. A loop notifies the workers of this
// app repeatedly until they have reached the intended state: a notice may be lost, and a worker may ignore it.

// Intervals of Watch. Sending intents to connected workers costs no statement. Checking what drained workers still hold
// costs one statement per namespace, and is repeated rarely once they hold nothing.
const (
	intentInterval     = time.Second
	leaseCheckInterval = 2 * time.Second
	emptyCheckInterval = time.Minute
)

// exitTimeout is the time that a worker has after it was asked to leave, including its own drain deadline; after that
// the app deregisters the worker.
const exitTimeout = 40 * time.Second

// Intent returns the operator's intent for a worker that sends a heartbeat; names reports whether the heartbeat lists
// tasks.
func (f *Fleet) Intent(w *engine.Worker, names bool) protocol.Intent {
	has := names // if the heartbeat lists only leases that are due, use the recorded state instead
	f.workers.With(w.Key(), func(h *membership.TrackedWorker) { has = has || h.SentIntent == protocol.IntentLeave })
	return f.intentAt(w, f.storeTime(), has)
}

// intentAt returns the operator's intent for a worker at a time.
func (f *Fleet) intentAt(w *engine.Worker, now time.Time, has bool) protocol.Intent {
	d := f.workers.DrainOf(w)
	switch {
	case d == nil:
		return protocol.IntentWork
	case d.Evict || has && d.DeadlinePassed(now):
		return protocol.IntentLeave
	}
	return protocol.IntentPause
}

// storeTime returns the store's time, computed from this app's clock without a request to the store.
func (f *Fleet) storeTime() time.Time {
	if at := f.store.About(); !at.IsZero() {
		return at
	}
	return time.Now()
}

// OperateFleet drains, resumes or evicts workers for an operator. The decision is stored and also applies to apps and
// workers that start later. Repeating it changes only the deadline and the reason.
func (f *Fleet) OperateFleet(ctx context.Context, in protocol.FleetRequest) (protocol.FleetDrainState, error) {
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	none := protocol.FleetDrainState{}
	if err := protocol.CheckLimits(in); err != nil {
		return none, err
	}
	if err := checkTarget(in.FleetTarget); err != nil {
		return none, err
	}
	here := map[string]bool{}
	err := f.store.View(ctx, func(r store.Reader) error {
		rows, err := r.Workers(ctx, store.WorkerQuery{Namespace: in.Namespace, Limit: 10_000})
		for i := range rows {
			here[rows[i].ID] = rows[i].DeregisteredAt.IsZero()
		}
		return err
	})
	if err != nil {
		return none, err
	}
	detail := in.Text()
	if in.Reason != "" {
		detail += ": " + in.Reason
	}
	key := engine.QueueKey{Namespace: in.Namespace}
	q, err := transaction.Commit[engine.Queue](ctx, f.store, store.Transaction{
		Needs: store.Keys{Queues: []engine.QueueKey{key}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			old := rows.Queue(key)
			var decision engine.QueueChange
			switch in.Verb {
			case protocol.FleetResume:
				decision = engine.ResumeFleet{FleetTarget: in.FleetTarget}
			case protocol.FleetDrain, protocol.FleetEvict:
				if in.WorkerID != "" && !here[in.WorkerID] && !drains(old, in.FleetTarget) {
					return store.Writes{}, transaction.WorkerNotFound(in.WorkerID)
				}
				d := engine.Drain{
					FleetTarget: in.FleetTarget, Evict: in.Verb == protocol.FleetEvict, By: in.Identity, Reason: in.Reason,
				}
				if in.Deadline > 0 && !d.Evict {
					d.Deadline = history.At(now.Add(time.Duration(in.Deadline) * time.Second))
				}
				decision = engine.DrainFleet{Drain: d, Here: func(id string) bool { _, is := here[id]; return is }}
			default:
				return store.Writes{}, protocol.Invalid("verb", "must be drain, resume or evict")
			}
			next, err := engine.DecideQueue(old, key, decision, now)
			return store.Writes{Queues: []engine.Queue{next}, Answer: next, Audit: []store.Audit{{
				At: history.At(now), Identity: in.Identity, Action: "fleet." + in.Verb, Namespace: in.Namespace,
				Target: in.Text(), Detail: detail,
			}}}, err
		},
	})
	if err != nil {
		return none, err
	}
	f.CheckDrains()
	d := engine.Drain{FleetTarget: in.FleetTarget}
	if i := slices.IndexFunc(q.Drains, func(d engine.Drain) bool { return d.FleetTarget == in.FleetTarget }); i >= 0 {
		d = q.Drains[i]
	}
	states, err := f.view.Drains(ctx, in.Namespace, []engine.Drain{d})
	if err != nil {
		return none, err
	}
	states[0].Outcome = map[string]string{
		protocol.FleetDrain: "draining", protocol.FleetEvict: "evicting", protocol.FleetResume: "resumed",
	}[in.Verb]
	return states[0], nil
}

func drains(q *engine.Queue, t protocol.FleetTarget) bool {
	return q != nil && slices.ContainsFunc(q.Drains, func(d engine.Drain) bool { return d.FleetTarget == t })
}

func checkTarget(t protocol.FleetTarget) error {
	named := 0
	for _, name := range []string{t.WorkerID, t.Group, t.BuildID, t.Release} {
		if name != "" {
			named++
		}
	}
	if named != 1 {
		return protocol.Invalid("worker_id", "set exactly one of worker_id, group, build_id and release")
	}
	return nil
}

// CheckDrains wakes Watch. It does not block.
func (f *Fleet) CheckDrains() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Watch runs drains until ctx ends: it sends the operators' intents to the workers of this app, moves sessions off
// drained workers and to new ones, and asks workers to leave at their deadline. Another app with heartbeats of the same
// worker does the same; this is idempotent.
func (f *Fleet) Watch(ctx context.Context) {
	tick := time.NewTicker(intentInterval)
	defer tick.Stop()
	pushed := map[string]int64{} // revisions of settings, by namespace
	checks := map[engine.WorkerKey]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.changed:
		}
		known := f.workers.All("")
		f.pushSettings(pushed, known)
		spaces := map[string][]engine.WorkerKey{} // namespaces whose drained workers may still hold something
		for k, h := range known {
			if !f.workers.ReceivesHeartbeats(h) {
				continue
			}
			d := f.workers.DrainOf(h.Worker)
			every := leaseCheckInterval
			if h.HadNoLeases { // check again: a task may have been on its way to the worker
				every = emptyCheckInterval
			}
			sent := h.SentIntent != protocol.IntentWork
			if sent != (d != nil) || sent && time.Since(h.LeasesCheckedAt) >= every {
				spaces[k.Namespace] = append(spaces[k.Namespace], k)
			}
			if d != nil && d.Evict && h.SentIntent == protocol.IntentLeave {
				f.warnOverdueDrain(ctx, k, h)
			}
		}
		for ns, keys := range spaces {
			if err := f.followDrains(ctx, ns, keys, known); err != nil && ctx.Err() == nil {
				store.Warn(&f.log, err).Str("namespace", ns).Msg("failed to update the drain state of workers")
			}
		}
		f.balance(ctx, known, checks)
	}
}

// followDrains brings the workers into the states that the operators requested.
func (f *Fleet) followDrains(
	ctx context.Context, ns string, keys []engine.WorkerKey, known map[engine.WorkerKey]membership.TrackedWorker,
) error {
	var held map[string]store.Holding
	if err := f.store.View(ctx, func(r store.Reader) (err error) {
		held, err = r.Holdings(ctx, ns)
		return err
	}); err != nil {
		return err
	}
	var errs []error
	for _, k := range keys {
		h, has := known[k], held[k.ID].Leases+held[k.ID].Sessions > 0
		intent := f.intentAt(h.Worker, f.storeTime(), has)
		// Before the intent is recorded as sent: afterwards a failed update would not be repeated, and the tasks of the
		// sessions would wait until the sessions expire.
		if intent == protocol.IntentWork && held[k.ID].Sessions > 0 && !h.Draining {
			if err := f.undrainSessions(ctx, k); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		f.sendIntent(k, h, intent, has)
		if d := f.workers.DrainOf(h.Worker); d != nil && held[k.ID].Sessions > 0 {
			_, _, err := f.moveSessions(ctx, h.Worker, d)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sendIntent notifies a worker of the operator's intent if it has changed, and records whether the worker still holds
// anything.
func (f *Fleet) sendIntent(k engine.WorkerKey, h membership.TrackedWorker, i protocol.Intent, has bool) {
	changed := h.SentIntent != i
	f.workers.With(k, func(now *membership.TrackedWorker) {
		if now.Worker.Incarnation != h.Worker.Incarnation {
			changed = false
			return
		}
		now.LeasesCheckedAt, now.HadNoLeases, now.SentIntent = time.Now(), !has, i
		if changed {
			now.SentIntentAt = time.Now()
		}
	})
	if !changed {
		return
	}
	n := protocol.PauseNotice{}
	if d := f.workers.DrainOf(h.Worker); d != nil {
		n.Reason, n.DeadlineAt = d.Reason, d.Deadline
	}
	f.log.Info().Str("worker_id", k.ID).Str("intent", string(i)).Str("reason", n.Reason).Msg("drain state sent to worker")
	if notices := f.notices.Load(); notices != nil {
		(*notices).SendIntent(k.Namespace, k.ID, i, n)
	}
}

// warnOverdueDrain removes the registration of a worker that has not shut down within exitTimeout of the notice. Tasks
// that it may still run are not requeued; see membership.Workers.RemoveWorker.
func (f *Fleet) warnOverdueDrain(ctx context.Context, k engine.WorkerKey, h membership.TrackedWorker) {
	if time.Since(h.SentIntentAt) < exitTimeout {
		return
	}
	f.log.Warn().Str("worker_id", k.ID).Msg("worker did not shut down before its deadline; removing its registration")
	_, err := f.workers.RemoveWorker(ctx, k.Namespace, k.ID)
	if err != nil && protocol.ReasonOf(err) == "" && ctx.Err() == nil {
		store.Warn(&f.log, err).Str("worker_id", k.ID).Msg("failed to remove a worker after its leave deadline")
	}
}

// undrainSessions cancels the release and the hand-over of a worker's sessions that are not yet released.
func (f *Fleet) undrainSessions(ctx context.Context, k engine.WorkerKey) error {
	held, err := transaction.SessionsOwnedBy(ctx, f.store, k)
	if err != nil {
		return err
	}
	var errs []error
	for i := range held {
		if s := &held[i]; s.Leaving || s.Prepare != nil {
			errs = append(errs, f.update(ctx, s, engine.UndrainSession{Worker: k.ID}))
		}
	}
	return errors.Join(errs...)
}
