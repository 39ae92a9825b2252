package membership

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// A registration is the point at which one process of a worker replaces another. Everything that the previous process
// held must end with it, and nothing of the new process may end: the row names the process, and a decision that is
// refused under the row's lock is the fence.

// These are the defaults of a registration.
const (
	defaultSlots        = 100
	defaultSessions     = 10
	defaultSessionLease = 30 * time.Second
	defaultSessionIdle  = 5 * time.Minute
	maxNames            = 10_000
)

// Register stores the registration of a worker. The same incarnation updates its registration; another incarnation
// supersedes it: the tasks of the previous one are dispatched again at once, and its calls are rejected from then on.
func (ws *Workers) Register(
	ctx context.Context, w *engine.Worker, in protocol.RegisterRequest,
) (protocol.RegisterResponse, error) {
	key, principal := w.Key(), auth.From(ctx)
	w.Scoped = true
	if principal != nil {
		w.Group = principal.Group
	}
	superseded, before, changed, fresh := false, "", false, false
	stored, err := transaction.Commit[*engine.Worker](ctx, ws.store, store.Transaction{
		Needs: store.Keys{Workers: []engine.WorkerKey{key}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			next := *w
			next.AliveUntil = history.At(now.Add(ws.opt.Alive + ws.opt.StoreAlive))
			next.AliveByApp = map[string]history.Time{ws.opt.App: next.AliveUntil}
			next.HeartbeatAt, next.UpdatedAt, next.RegisteredAt, next.HeartbeatApp = history.At(now), history.At(now),
				history.At(now), ws.opt.App
			old := rows.Worker(key)
			superseded, changed = false, false
			fresh = old == nil || old.Incarnation != next.Incarnation // a new process has no leases yet
			if old != nil {
				if !auth.BoundFrom(ctx).SpeaksFor(old) {
					return store.Writes{}, transaction.WorkerNotFound(key.ID)
				}
				if slices.Contains(old.Superseded, next.Incarnation) {
					return store.Writes{}, transaction.StaleWorker(key.ID)
				}
				if !old.DeregisteredAt.IsZero() && old.Incarnation == next.Incarnation && namesProcess(old) {
					return store.Writes{}, deregistered(old)
				}
				if err := ws.sameDefinitions(old, &next, now); err != nil {
					return store.Writes{}, err
				}
				next.Superseded, next.BalancedAt = old.Superseded, old.BalancedAt
				if old.Incarnation == next.Incarnation {
					next.RegisteredAt, next.Beats = old.RegisteredAt, next.Beats || old.Beats
					changed = settingsChanged(old, &next)
					if in.Held != nil {
						return store.Writes{
							Workers: []engine.Worker{next}, Reconnected: []engine.WorkerKey{key}, Answer: &next,
						}, nil
					}
				} else {
					superseded, before = true, old.Incarnation
					next.Superseded = append(slices.Clone(old.Superseded), old.Incarnation)
					next.Superseded = next.Superseded[max(0, len(next.Superseded)-16):]
				}
			}
			return store.Writes{Workers: []engine.Worker{next}, Answer: &next}, nil
		},
	})
	if err != nil {
		return protocol.RegisterResponse{}, err
	}
	if superseded {
		ws.dispatch.Deregistered(store.Process{Worker: key, Incarnation: before})
	}
	ws.Put(stored)
	ws.warnOfOtherCode(stored)
	ws.RecordHeartbeat(key)
	ws.With(key, func(h *TrackedWorker) {
		h.Adopted, h.StoredAt, h.Stored = time.Time{}, time.Now(), h.At
		if fresh {
			h.LastLeaseAt = time.Time{}
		}
	})
	if changed {
		ws.dispatch.Drop(key, ErrRevised)
	}
	a := protocol.RegisterResponse{
		WorkerID: stored.ID, Registered: true, Namespace: stored.Namespace, TaskQueue: stored.Queues[0],
		Runtime: stored.Runtime,
		BuildID: protocol.OrNil(stored.BuildID), Capabilities: protocol.OrEmpty(stored.Capabilities),
		Manifest: stored.Manifest,
		Status:   string(stored.Status), Incarnation: stored.Incarnation,
		HeartbeatInterval: int64(ws.opt.Heartbeat.Seconds()),
	}
	if superseded {
		lost := leasedBefore(stored)
		a.Redelivered, _, err = ws.endProcesses(ctx, key, reasonRestarted, lost, func(incarnation string) bool {
			return incarnation != stored.Incarnation
		})
	} else if in.Held != nil && in.Incarnation != "" {
		a.Redelivered, err = ws.returnUnknownLeases(ctx, key, in.Incarnation, *in.Held)
	}
	return a, err
}

// returnUnknownLeases releases the leases of a worker's process that the process does not know of: their tasks were not
// delivered because the app died or the connection broke. None of these tasks was started.
func (ws *Workers) returnUnknownLeases(
	ctx context.Context, key engine.WorkerKey, incarnation string, held []string,
) (freed int, err error) {
	var refs []store.TaskRef
	err = ws.store.View(ctx, func(r store.Reader) error {
		refs, err = r.Owned(ctx, key, incarnation)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, ref := range refs {
		id, attempt := engine.TaskID(ref.Run, ref.Seq), ""
		if ref.Kind != protocol.KindWorkflow {
			attempt = engine.AttemptID(ref.Run, ref.Seq, ref.Delivery)
		}
		if slices.Contains(held, protocol.TaskKey(ref.Kind, id, attempt, ref.Delivery)) {
			continue
		}
		switch err := transaction.Release(ctx, ws.store, ref, "undelivered", true); {
		case err == nil:
			freed++
		case protocol.ReasonOf(err) == "": // otherwise another request has ended it
			return freed, err
		}
	}
	return freed, nil
}

// ErrRevised ends the open polls of a worker whose settings changed: the polls used its previous settings.
var ErrRevised = errors.New("the worker runs with other settings")

// settingsChanged reports whether the settings of a process changed with a new registration.
func settingsChanged(old, next *engine.Worker) bool {
	if !slices.Equal(old.ActivityTypes, next.ActivityTypes) || !old.SameResources(next) {
		return true
	}
	return next.Settings != nil && (old.Settings == nil || *old.Settings != *next.Settings)
}

// reasonRestarted is the reason for the end of a lease whose holder was superseded by another process.
const reasonRestarted = "worker_restarted"

// deregistered returns the error for a deregistered worker. A worker with incarnations must restart; other workers
// register again.
func deregistered(w *engine.Worker) error {
	if namesProcess(w) {
		return protocol.Refuse(protocol.ReasonStaleRegistration, "worker %s was removed", w.ID).
			With("poll_status", string(protocol.ReasonStaleRegistration))
	}
	return notRegistered(w.ID)
}

func notRegistered(worker string) error {
	return protocol.Refuse(protocol.ReasonWorkerNotRegistered, "worker %s is not registered", worker).
		With("worker_id", worker)
}

// Registration validates a request and returns the row for it.
func (ws *Workers) Registration(in protocol.RegisterRequest) (*engine.Worker, error) {
	queues := in.TaskQueues
	if len(queues) == 0 {
		queues = []string{in.TaskQueue}
	}
	w := &engine.Worker{
		Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.WorkerID, Incarnation: in.Incarnation,
		Status:  protocol.WorkerActive,
		Queues:  queues,
		Runtime: in.Runtime, SDKVersion: in.SDKVersion, BuildID: in.BuildID, Release: in.Release,
		WorkflowTypes: in.WorkflowTypes,
		ActivityTypes: in.ActivityTypes, AnyActivity: in.AnyActivity, Capabilities: in.Capabilities,
		WorkflowSlots: defaultSlots, ActivitySlots: defaultSlots, SessionLease: defaultSessionLease.Microseconds(),
		SessionIdle: defaultSessionIdle.Microseconds(), AttemptLease: ws.opt.HTTPLease.Microseconds(),
		Explicit:  in.Incarnation != "",
		Beats:     len(in.Process) > 0 || in.HeartbeatSecs != nil || in.Incarnation != "" && in.Session != nil,
		Contracts: in.Contracts, Fingerprints: in.Fingerprints, Manifest: in.Manifest, Isolation: in.Isolation,
		Slots: in.Slots, Process: in.Process, Settings: in.Settings, Versions: in.Versions,
		Resources: in.Resources, SessionResources: in.SessionResources, MaxSetUps: in.MaxSetUps,
	}
	if in.HeartbeatSecs != nil {
		w.HeartbeatSecs = *in.HeartbeatSecs
	}
	if w.ID == "" {
		w.ID = ulid.Make().String()
	}
	if w.Explicit {
		w.AttemptLease = ws.opt.AttemptLease.Microseconds()
	} else {
		w.Incarnation = ulid.Make().String()
	}
	if in.AttemptLease > 0 {
		w.AttemptLease = in.AttemptLease * 1_000_000
	}
	if slices.Contains(in.Capabilities, engine.CapSessions) {
		w.MaxSessions = defaultSessions
		if in.MaxSessions != nil {
			w.MaxSessions = *in.MaxSessions
		}
	}
	if s := in.Session; s != nil {
		w.SessionLease, w.SessionBuffer, w.SessionIdle = s.LeaseMS*1000, s.BufferMS*1000, s.IdleMS*1000
		w.DefaultMaxActivities, w.ResumesSessions = s.MaxActivities, s.Resumes
	}
	if in.WorkflowSlots != nil {
		w.WorkflowSlots = *in.WorkflowSlots
	}
	if in.ActivitySlots != nil {
		w.ActivitySlots = *in.ActivitySlots
	}
	return w, checkRegistration(in, w)
}

func checkRegistration(in protocol.RegisterRequest, w *engine.Worker) error {
	if err := protocol.CheckLimits(in); err != nil {
		return err
	}
	if slices.Contains(w.Queues, "") {
		return protocol.Invalid("task_queue", "must be 1 to %d bytes", protocol.MaxName)
	}
	if err := checkShapes(in); err != nil {
		return err
	}
	if err := protocol.CheckResources(in.Resources, "resources", false, unnested); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(in.SessionResources)) {
		err := protocol.CheckResources(in.SessionResources[name], name, false, func(member string) string {
			return "session_resources." + member
		})
		if err != nil {
			return err
		}
	}
	switch {
	case len(w.SDKVersion) > 64 && !w.Explicit:
		return protocol.Invalid("sdk_version", "is longer than 64 bytes")
	case w.WorkflowSlots+w.ActivitySlots == 0:
		return protocol.Invalid("max_concurrent_activity_tasks", "must not be 0 if the worker runs no workflow tasks")
	case w.AttemptLease < int64(time.Millisecond/time.Microsecond) || w.AttemptLease > protocol.MaxSeconds*1_000_000:
		return protocol.Invalid("attempt_lease_seconds", "must be between 1 and %d", protocol.MaxSeconds)
	case w.SessionLease <= 0 || w.SessionIdle < 0 || w.DefaultMaxActivities < 0:
		return protocol.Invalid(
			"session_settings", "lease must be greater than 0; idle time and concurrent activities must not be negative",
		)
	}
	return nil
}

func unnested(member string) string { return member }

// leasedBefore selects the deliveries that died with a superseded process: those leased before the new registration,
// whichever app handles them first. Later leases are no evidence of a loss.
func leasedBefore(now *engine.Worker) func(store.TaskRef) bool {
	return func(r store.TaskRef) bool { return !r.LeasedAt.After(now.RegisteredAt.Time) }
}

// noLoss classifies deliveries of a clean exit, which are no losses; died classifies all as losses.
func noLoss(store.TaskRef) bool  { return false }
func allLost(store.TaskRef) bool { return true }

// SDK returns the SDK and version of a worker's registration; empty if the worker is not registered.
func (ws *Workers) SDK(ctx context.Context, ns, worker string) string {
	w, err := ws.Known(ctx, engine.WorkerKey{Namespace: transaction.NamespaceOrDefault(ns), ID: worker})
	if err != nil {
		return ""
	}
	return w.SDKVersion
}

// active returns an active registration: from memory, else from its row.
func (ws *Workers) active(ctx context.Context, key engine.WorkerKey) (*engine.Worker, error) {
	w, err := ws.Known(ctx, key)
	if err == nil && !w.DeregisteredAt.IsZero() {
		return nil, deregistered(w)
	}
	return w, err
}

// Known returns the registration of a worker, also after its deregistration.
func (ws *Workers) Known(ctx context.Context, key engine.WorkerKey) (*engine.Worker, error) {
	if w := ws.Get(key); w != nil {
		return w, nil
	}
	mark := ws.Mark()
	w, err := ws.Stored(ctx, key)
	if err == nil && w.DeregisteredAt.IsZero() {
		ws.PutRead(w, mark)
	}
	return w, err
}

// Stored returns a registration as it is stored.
func (ws *Workers) Stored(ctx context.Context, key engine.WorkerKey) (*engine.Worker, error) {
	var w engine.Worker
	err := ws.store.View(ctx, func(r store.Reader) (err error) {
		w, err = r.Worker(ctx, key)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, notRegistered(key.ID)
	}
	return &w, err
}
