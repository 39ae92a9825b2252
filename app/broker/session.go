package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An owner refers to its session by ID and epoch. The ID alone is not sufficient: a worker that was paused and lost the
// session would renew or close the session of its new owner. Each request is one decision on the session's row.

// CreateSession acquires a session for a worker before any activity uses it. External workers use it to acquire a
// session explicitly.
func (b *Broker) CreateSession(ctx context.Context, in protocol.SessionCreate) (protocol.SessionResponse, error) {
	key := engine.WorkerKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.WorkerID}
	w, err := b.workers.Current(ctx, key, in.Incarnation)
	if err != nil {
		return protocol.SessionResponse{}, err
	}
	if err := checkSession(in.SessionOptions, w); err != nil {
		return protocol.SessionResponse{}, err
	}
	sk := engine.SessionKey{Namespace: key.Namespace, ID: in.SessionID}
	needs := store.Keys{Workers: []engine.WorkerKey{key}, Sessions: []engine.SessionKey{sk}, Holdings: true}
	outcome := ""
	s, err := transaction.Commit[engine.Session](ctx, b.store, store.Transaction{Needs: needs, Decide: func(
		rows store.Rows, now time.Time,
	) (store.Writes, error) {
		w := rows.Worker(key) // load the current row: another app may have accepted a newer registration
		if w == nil || !w.DeregisteredAt.IsZero() || in.Incarnation != "" && in.Incarnation != w.Incarnation {
			return store.Writes{}, transaction.StaleWorker(key.ID)
		}
		s := rows.Session(sk)
		if !auth.BoundFrom(ctx).Sees(s) {
			return store.Writes{}, transaction.SessionNotFound()
		}
		// A drained worker may renew a session that it owns, but not acquire another one.
		if b.workers.DrainOf(w) != nil && (s == nil || !s.HeldBy(key.ID, now)) {
			return store.Writes{}, protocol.Refuse(protocol.ReasonWorkerDraining, "worker %s is drained by an operator", key.ID)
		}
		c, err := engine.DecideSession(s, engine.CreateSession{
			Namespace: key.Namespace, Options: in.SessionOptions, EpochWatermark: rows.EpochWatermark, Outcome: &outcome,
			Lessee: engine.Lessee{Worker: w, Sessions: rows.Holding(key, sk, now), Counted: true, Used: rows.Used(w, now)},
		}, now)
		return store.Writes{Sessions: []engine.SessionChange{c}, Answer: c.Session}, err
	}})
	if err != nil {
		return protocol.SessionResponse{}, b.addSessionToError(ctx, sk, err)
	}
	b.workers.RecordHolderHeartbeat(ctx, key, s.Incarnation)
	status := 200
	if outcome == "created" {
		status = 201
	}
	return b.sessionReceipt(ctx, s, outcome, status)
}

// checkSession makes the checks that need only the request and the registration, before any row is locked.
func checkSession(o protocol.SessionOptions, w *engine.Worker) error {
	wrong := protocol.CheckOptions(&o, o.Reacquire, func(member string) string { return member })
	var refusal *protocol.Error
	switch {
	// HTTP clients expect this reason for an invalid ID, and the reason of the member for invalid numbers.
	case protocol.CheckSessionID(o.SessionID, "session_id") != nil,
		errors.As(wrong, &refusal) && refusal.Fields["session_id"] != nil:
		return protocol.Refuse(protocol.ReasonInvalidSession, "session_id must be 1 to 255 bytes and not only white space")
	case refusal != nil && refusal.Fields["queue"] != nil: // longer than the name of any queue
	case o.Queue != "" && o.Queue != w.Queues[0] && !slices.Contains(w.Queues, o.Queue):
		return protocol.Refuse(protocol.ReasonSessionQueue, "worker %s does not serve queue %s", w.ID, o.Queue).
			With("registered_task_queue", w.Queues[0]).With("requested_session_queue", o.Queue)
	}
	return wrong
}

// HeartbeatSession renews a session of the caller. It counts as activity in the session.
func (b *Broker) HeartbeatSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	w := b.workers.Get(engine.WorkerKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.WorkerID})
	return b.sessionVerb(ctx, in, "heartbeat_recorded", engine.RenewSession{
		SessionHolder: holder(in), Lease: int64(in.Lease), Touch: true, NoDrain: w != nil && b.workers.AcceptsTasks(w),
	})
}

// ReleaseSession releases a session without closing it: another worker may acquire it immediately.
func (b *Broker) ReleaseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	verb := engine.ReleaseSession{
		SessionHolder: holder(in), Why: protocol.ErrorText(in.Reason), Failed: protocol.ErrorText(in.Failed),
		KnownEpoch: in.Known, SnapshotFollows: in.SnapshotFollows, Snapshot: in.Snapshot,
		SnapshotFailed: protocol.ErrorText(in.SnapshotFailed),
	}
	if p := in.Snapshot; p != nil {
		if err := checkSnapshot(p); err != nil {
			return protocol.SessionResponse{}, err
		}
	}
	if in.Reason == engine.ReasonSetUpFailed {
		var err error
		key := engine.SessionKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.SessionID}
		if verb.For, err = b.successor(ctx, key, ""); err != nil {
			return protocol.SessionResponse{}, err
		}
	}
	out, err := b.sessionVerb(ctx, in, outcomeReleased, verb)
	if now := b.store.About(); err == nil && !now.IsZero() && engine.EpochAhead(in.Known, now) {
		b.opt.Metrics.countIgnoredEpoch()
		b.log.Warn().Str("namespace", transaction.NamespaceOrDefault(in.Namespace)).Str("session_id", in.SessionID).
			Str("worker_id", in.WorkerID).Int64("known_epoch", in.Known).Time("now", now).
			Msg("ignored an epoch that a worker reported: it is more than a day ahead of the database's clock")
	}
	return out, err
}

// CloseSession ends the session of its owner or releases it, as engine.CloseSession decides; repeating the request is
// not an error. The receipt is that of a close in both cases, with the caller as owner, because the published Rust SDK
// validates it.
func (b *Broker) CloseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	out, err := b.sessionVerb(ctx, in, "closed", engine.CloseSession{
		SessionHolder: holder(in), Why: protocol.ErrorText(in.Reason),
	})
	if v := out.Session; v != nil {
		v.Status, v.LeaseOwner = protocol.SessionClosed, &in.WorkerID
		if v.ClosedAt.IsZero() {
			v.ClosedAt = v.UpdatedAt
		}
	}
	return out, err
}

// outcomeReleased is the outcome of a release after which the worker no longer owns the session.
const outcomeReleased = "released"

// checkSnapshot refuses an invalid snapshot. Its name becomes part of a path at other workers.
func checkSnapshot(p *protocol.SessionSnapshot) error {
	switch sum, err := hex.DecodeString(p.Checksum); {
	case err != nil || len(sum) != sha256.Size:
		return protocol.Invalid("snapshot.sha256", "must be a SHA-256 in hexadecimal digits")
	case p.Data.IsZero() == (p.File == ""):
		return protocol.Invalid("snapshot", "must have either data or file")
	case p.File != "" && !snapshotFile.MatchString(p.File):
		return protocol.Invalid("snapshot.file", "must match %s", snapshotFile)
	case p.Bytes < 0:
		return protocol.Invalid("snapshot.bytes", "must not be negative")
	case p.MaxAge < 0 || p.MaxAge > protocol.MaxSeconds:
		return protocol.Invalid("snapshot.max_age_seconds", "must be between 1 and %d", protocol.MaxSeconds)
	}
	return Blob("snapshot.data", p.Data.Blob)
}

var snapshotFile = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,199}$`)

func holder(in protocol.SessionVerb) engine.SessionHolder {
	return engine.SessionHolder{Worker: in.WorkerID, Epoch: in.Epoch}
}

// sessionVerb checks that the caller may act for the worker, makes one decision about the session, and records a
// heartbeat of the worker if the request was accepted.
func (b *Broker) sessionVerb(
	ctx context.Context, in protocol.SessionVerb, outcome string, verb engine.SessionInput,
) (protocol.SessionResponse, error) {
	if in.Lease < 0 || in.Lease > protocol.MaxSeconds {
		return protocol.SessionResponse{}, protocol.Invalid("lease_seconds", "must be between 1 and %d", protocol.MaxSeconds)
	}
	key := engine.SessionKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.SessionID}
	if err := b.checkSessionWorker(ctx, key.Namespace, in.WorkerID); err != nil {
		return protocol.SessionResponse{}, err
	}
	c, err := transaction.UpdateSession(ctx, b.store, b.dispatch, key, verb)
	if err != nil {
		return protocol.SessionResponse{}, b.addSessionToError(ctx, key, err)
	}
	b.workers.RecordHolderHeartbeat(
		ctx, engine.WorkerKey{Namespace: key.Namespace, ID: in.WorkerID}, c.PreviousIncarnation,
	)
	switch s := &c.Session; {
	case outcome != outcomeReleased || s.Owner != in.WorkerID || !s.Held(b.storeTime().Time):
	case in.SnapshotFollows && s.AwaitsSnapshot():
		outcome = protocol.OutcomeSnapshotRequested
	case in.Reason == protocol.ReasonSnapshot: // a successor restores the snapshot, or the session stays
		outcome = protocol.OutcomeSnapshotStored
	}
	if outcome == outcomeReleased || outcome == "closed" && !c.Session.Terminal {
		b.evict.Released(key)
	}
	if outcome == "closed" && len(c.Timeline) == 0 { // nothing was written: the session was closed or released before
		outcome = "already_closed"
	}
	return b.sessionReceipt(ctx, c.Session, outcome, 200)
}

// releaseSuperseded releases the leases of attempts that run in a session under an older epoch than the current one.
// Their results would be refused, and the workflow would wait until those leases expire.
func (b *Broker) releaseSuperseded(ctx context.Context, s *engine.Session) {
	var tasks []engine.Activity
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		tasks, err = r.SessionTasks(ctx, s.Key(), 10_000)
		return err
	})
	for _, a := range tasks {
		if a.State != engine.LeasedState || a.Epoch >= s.Epoch || err != nil {
			continue
		}
		dead := true
		b.workers.With(engine.WorkerKey{Namespace: s.Namespace, ID: a.Owner}, func(h *membership.TrackedWorker) {
			// The attempt counts as lost only if its worker is lost. If a live worker lost the session to another
			// worker, this is not a worker loss.
			dead = h.Worker.Incarnation != a.Incarnation || time.Since(h.At) >= time.Duration(a.Length)*time.Microsecond
		})
		ref := store.TaskRef{Kind: protocol.KindActivity, Run: a.RunID, Seq: a.Seq, Delivery: a.Delivery}
		why := string(protocol.ReasonStaleSessionEpoch)
		if dead {
			worker := engine.WorkerKey{Namespace: s.Namespace, ID: a.Owner}
			err = b.workers.EndOvertaken(ctx, worker, a.Incarnation, why, ref)
		} else {
			err = transaction.Release(ctx, b.store, ref, why, false)
		}
		if protocol.ReasonOf(err) != "" {
			err = nil // the attempt ended meanwhile
		}
	}
	if err != nil && ctx.Err() == nil {
		store.Warn(&b.log, err).Str("session_id", s.ID).Msg("failed to release attempts of the previous session owner; they expire with their leases")
	}
}

// addSessionToError adds the current session to an error, because callers display it.
func (b *Broker) addSessionToError(ctx context.Context, key engine.SessionKey, err error) error {
	err = b.hideSession(ctx, key, err)
	var refusal *protocol.Error
	if !errors.As(err, &refusal) || refusal.Reason == protocol.ReasonSessionNotFound {
		return err
	}
	if v, found := b.view.Session(ctx, key.Namespace, key.ID); found == nil {
		v.Timeline = nil
		refusal.With("session", v)
	}
	return refusal
}

// unlimitedEnd is the end in receipts for sessions without a TTL.
var unlimitedEnd = history.At(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC))

func (b *Broker) sessionReceipt(
	ctx context.Context, s engine.Session, outcome string, status int,
) (protocol.SessionResponse, error) {
	now, err := b.store.Now(ctx)
	if err != nil {
		return protocol.SessionResponse{}, err
	}
	v := b.view.Written(s, now)
	if v.TTL == 0 { // receipts always contain both members
		v.TTL, v.TTLExpiresAt = protocol.MaxSeconds, unlimitedEnd
	}
	return protocol.SessionResponse{Admitted: true, Outcome: outcome, Status: status, Session: &v}, nil
}
