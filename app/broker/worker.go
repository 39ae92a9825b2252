package broker

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// CapSessions is the capability that a worker must declare to get sessions.
const CapSessions = engine.CapSessions

// Requests of workers pass through the broker, because a response combines several parts: the namespace, the operator's
// intent and the leases. Package membership decides which workers are alive.

// Register registers a worker. The same incarnation updates its registration; another incarnation supersedes it: the
// tasks of the previous one are dispatched again immediately, and its requests are rejected from then on.
func (b *Broker) Register(ctx context.Context, in protocol.RegisterRequest) (protocol.RegisterResponse, error) {
	w, err := b.workers.Registration(in)
	if err != nil {
		return protocol.RegisterResponse{}, err
	}
	if err := b.HasNamespace(ctx, w.Namespace); err != nil {
		return protocol.RegisterResponse{}, err
	}
	if err := b.checkNewNames(ctx, w); err != nil {
		return protocol.RegisterResponse{}, err
	}
	a, err := b.workers.Register(ctx, w, in)
	if a.Registered && len(b.undrainedQueues(w, w.Queues)) == 0 {
		a.Status = string(protocol.WorkerDraining)
	}
	if a.Registered && in.Gated && in.Release != "" {
		// A worker that detects the release mismatch itself never polls, so its registration is the only report of the
		// mismatch.
		b.checkRelease(w.Key(), in.Release)
	}
	return a, err
}

// checkNewNames refuses names of a registration that break the rules for new names, unless another registration or an
// open run of the namespace already uses the name: the workers of such runs must be able to register again.
func (b *Broker) checkNewNames(ctx context.Context, w *engine.Worker) error {
	for _, m := range workerNames {
		for i, name := range m.of(w) {
			member := m.member
			if m.list {
				member += "." + strconv.Itoa(i)
			}
			refusal := protocol.CheckName(member, name)
			if refusal == nil {
				continue
			}
			used, err := b.usesName(ctx, w.Namespace, name, m)
			if err != nil {
				return err
			}
			if !used {
				return refusal
			}
		}
	}
	return nil
}

// workerName is a member of a registration that contains a name, or a list of names.
type workerName struct {
	member string
	list   bool
	of     func(*engine.Worker) []string
	field  store.RunField // field of runs in which the same name occurs; empty: none
}

var workerNames = []workerName{
	{"worker_id", false, func(w *engine.Worker) []string { return []string{w.ID} }, ""},
	{"build_id", false, func(w *engine.Worker) []string { return []string{w.BuildID} }, store.FieldBuild},
	{"task_queues", true, func(w *engine.Worker) []string { return w.Queues }, store.FieldQueue},
	{"supported_workflow_types", true, func(w *engine.Worker) []string { return w.WorkflowTypes }, store.FieldType},
	{"supported_activity_types", true, func(w *engine.Worker) []string { return w.ActivityTypes }, ""},
}

// usesName reports whether a stored registration or an open run of a namespace uses a name.
func (b *Broker) usesName(ctx context.Context, ns, name string, m workerName) (used bool, err error) {
	err = b.store.View(ctx, func(r store.Reader) error {
		workers, err := r.Workers(ctx, store.WorkerQuery{Namespace: ns, Limit: maxNamed})
		if err != nil {
			return err
		}
		used = slices.ContainsFunc(workers, func(w engine.Worker) bool { return slices.Contains(m.of(&w), name) })
		if used || m.field == "" {
			return nil
		}
		runs, err := r.Runs(ctx, store.RunQuery{
			Namespace: ns, Statuses: []protocol.RunStatus{protocol.RunRunning}, Limit: 1,
			Where: []store.Condition{{Field: m.field, Test: store.In, Values: []any{name}}},
		})
		used = len(runs.Heads) > 0
		return err
	})
	return used, err
}

// maxNamed is the maximum number of registrations that are searched for a name.
const maxNamed = 10_000

// Deregister deletes a worker's registration at the request of the worker.
func (b *Broker) Deregister(ctx context.Context, in protocol.DeregisterRequest) (protocol.DeregisterResponse, error) {
	return b.workers.Deregister(ctx, in)
}

// WorkerHeartbeat records a worker's heartbeat, renews each attempt and session in it, and returns what the worker must
// do. Sessions are renewed together with those of other workers; see renewSessions. It returns after all renewals are
// stored.
func (b *Broker) WorkerHeartbeat(
	ctx context.Context, in protocol.WorkerHeartbeat,
) (protocol.WorkerHeartbeatResponse, error) {
	w, err := b.workers.Heartbeat(ctx, in)
	if err != nil {
		return protocol.WorkerHeartbeatResponse{}, err
	}
	key := w.Key()
	a := protocol.WorkerHeartbeatResponse{
		WorkerID: w.ID, Acknowledged: true, HeartbeatInterval: int64(b.opt.Heartbeat.Seconds()),
		StaleAfter: int64(b.opt.Alive.Seconds()),
		Drain:      b.isDraining(), AppRelease: b.opt.Release, Intent: b.fleet.Intent(w, len(in.Leases)+len(in.Sessions) > 0),
		Leases: make([]protocol.HeartbeatResponse, len(in.Leases)),
	}
	_, a.Settings = b.fleet.FleetWide(key.Namespace)
	var wait sync.WaitGroup
	for i, l := range in.Leases {
		l.Owner = w.ID
		// The attempts are renewed concurrently, so that the committer stores them in one batch. An attempt that has
		// ended does not affect the others.
		wait.Go(func() { a.Leases[i] = b.renewLease(ctx, l) })
	}
	wait.Go(func() {
		ended, err := b.recordStickyCache(ctx, w, in.CachedRuns)
		if err != nil { // in this case the worker keeps its cached runs
			store.Warn(&b.log, err).Str("worker_id", w.ID).Msg("failed to look up which runs in sticky caches have ended")
		}
		a.EndedRuns = append(b.ended.pending(key), ended...)
	})
	if w.MayPrepare() || w.MayStoreSnapshots() || len(in.Preparations) > 0 {
		wait.Go(func() {
			a.Preparations = b.renewPreparations(ctx, w, &in)
			pending, asked := b.fleet.HandOver(ctx, w, in.Draining)
			a.HandOvers, a.Preparations = pending, append(a.Preparations, asked...)
		})
	}
	a.Sessions = b.renewSessions(ctx, w, in.Sessions, b.maxRenewalDelay(w, &in))
	wait.Wait()
	if renewed := renewedCount(a.Sessions); renewed > 0 {
		b.opt.Metrics.countRenewals(renewed)
		b.log.Debug().Str("worker_id", w.ID).Int("sessions", renewed).Int("asked", len(in.Sessions)).Msg("sessions renewed")
	}
	a.StoreTime = b.storeTime()
	return a, nil
}

// renewedCount returns the number of sessions whose leases were renewed, for metrics and the log. The response has a
// separate state for each session.
func renewedCount(states []protocol.SessionState) (n int) {
	for _, s := range states {
		if s.Held && !s.LeaseExpiresAt.IsZero() {
			n++
		}
	}
	return n
}

// checkRelease compares a worker's release with this app's, records the verdict, and counts each mismatch.
func (b *Broker) checkRelease(key engine.WorkerKey, theirs string) release.Verdict {
	v := release.Gate(b.opt.Release, theirs, b.opt.StrictRelease)
	b.workers.Gate(key, v)
	if !v.Allowed {
		b.opt.Metrics.countRefusal(v.Reason)
	}
	return v
}
