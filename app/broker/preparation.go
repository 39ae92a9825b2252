package broker

import (
	"context"
	"slices"
	"sync"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A successor learns with the responses to its heartbeats which sessions it prepares, and reports their state with its
// heartbeats. Each heartbeat names all preparations of the worker, so a lost response or a missed notice only delays.

// errDrains is the reason for which a draining successor ends its preparations.
const errDrains = "the successor drains"

// renewPreparations renews the preparations of a heartbeat and returns their states, followed by the new ones.
func (b *Broker) renewPreparations(
	ctx context.Context, w *engine.Worker, in *protocol.WorkerHeartbeat,
) []protocol.PreparationState {
	states := make([]protocol.PreparationState, len(in.Preparations))
	known := make([]bool, len(in.Preparations))
	drains := in.Draining || b.workers.DrainOf(w) != nil
	var wait sync.WaitGroup
	for i, p := range in.Preparations {
		if drains && p.Failed == "" {
			p.Failed = errDrains
		}
		wait.Go(func() { states[i], known[i] = b.renewPreparation(ctx, w, p) })
	}
	wait.Wait()
	out := make([]protocol.PreparationState, 0, len(states))
	for i, s := range states {
		if known[i] {
			out = append(out, s)
		}
	}
	if drains {
		return out
	}
	news, err := b.newPreparations(ctx, w, in.Preparations)
	if err != nil && ctx.Err() == nil {
		store.Warn(&b.log, err).Str("worker_id", w.ID).Msg("failed to read the sessions that a worker prepares")
	}
	return append(out, news...)
}

// renewPreparation renews one preparation. known is false if the store is unavailable: the worker keeps the state and
// repeats the report.
func (b *Broker) renewPreparation(
	ctx context.Context, w *engine.Worker, p protocol.SessionPreparation,
) (state protocol.PreparationState, known bool) {
	state = protocol.PreparationState{SessionID: p.SessionID, Epoch: p.Epoch, State: protocol.PreparationPreparing}
	key := engine.SessionKey{Namespace: w.Namespace, ID: p.SessionID}
	restored := ""
	if p.Restored {
		restored = p.Snapshot
	}
	c, err := transaction.UpdateSession(ctx, b.store, b.dispatch, key, engine.RenewPreparation{
		Worker: w, Epoch: p.Epoch, Prepared: p.Prepared, Failed: protocol.ErrorText(p.Failed), Seconds: p.Seconds,
		Restored: restored,
	})
	s, now := c.Session, b.storeTime().Time
	if err == nil && s.Pool != "" && (p.Prepared || p.Failed != "") {
		b.fleet.PoolsChanged()
	}
	switch {
	case err == nil && s.Preparing(now) != nil:
		if p.Failed == "" && s.PassesSnapshot(now) && s.Snapshot.Checksum != p.Snapshot {
			if state.Snapshot, err = b.snapshotOf(ctx, &s); err != nil {
				return state, false
			}
		}
		return state, true
	case err != nil && protocol.ReasonOf(err) == "":
		return state, false
	case err != nil:
		// The session was handed over, or the preparation was discarded.
		err = b.store.View(ctx, func(r store.Reader) (err error) {
			s, err = r.Session(ctx, key)
			return ignore(err, store.ErrNotFound)
		})
		if err != nil {
			return state, false
		}
	}
	if state.State = protocol.PreparationDiscarded; s.With(w, now) && s.PreparedFor == p.Epoch {
		state.State, state.Session = protocol.PreparationAcquired, affinity(&s, w.Queues[0], false)
	}
	return state, true
}

// newPreparations returns the preparations of this process that its heartbeat does not name, with the arguments of the
// definitions.
func (b *Broker) newPreparations(
	ctx context.Context, w *engine.Worker, known []protocol.SessionPreparation,
) (list []protocol.PreparationState, err error) {
	now := b.storeTime().Time
	err = b.store.View(ctx, func(r store.Reader) error {
		rows, err := r.Sessions(ctx, store.SessionQuery{Namespace: w.Namespace, PreparedBy: w.ID, Limit: 10_000})
		if err != nil {
			return err
		}
		for i := range rows {
			s := &rows[i]
			p := s.Preparing(now)
			named := slices.ContainsFunc(known, func(k protocol.SessionPreparation) bool { return k.SessionID == s.ID })
			if p == nil || p.Incarnation != w.Incarnation || named {
				continue
			}
			to := affinity(s, w.Queues[0], false)
			to.Epoch, to.LeaseOwner = 0, ""
			if s.ArgumentsHash != "" {
				blob, err := r.SessionArguments(ctx, s.Key())
				if err != nil {
					return err
				}
				to.Arguments = payload.Payload{Blob: blob}
			}
			list = append(list, protocol.PreparationState{
				SessionID: s.ID, Epoch: p.Epoch, State: protocol.PreparationPreparing, Session: to,
			})
		}
		return nil
	})
	return list, err
}

// snapshotOf returns the snapshot of a session for the worker that restores it.
func (b *Broker) snapshotOf(ctx context.Context, s *engine.Session) (*protocol.SessionSnapshot, error) {
	p := s.Snapshot
	out := &protocol.SessionSnapshot{File: p.File, Bytes: p.Bytes, Checksum: p.Checksum}
	if p.File != "" {
		return out, nil
	}
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		out.Data.Blob, err = r.SessionSnapshot(ctx, s.Key())
		return err
	})
	return out, err
}
