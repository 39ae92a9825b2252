package broker

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Sessions change during polls, heartbeats, sweeps and API requests. The app that committed a change logs it, so each
// change is in exactly one log.

// watchSessions logs and counts the changes of sessions that this app commits, until ctx ends. The log line for the end
// of an epoch contains the worker, the epoch and the reason.
func (b *Broker) watchSessions(ctx context.Context) {
	b.dispatch.Each(ctx, dispatch.TopicMoves, func(changed store.Changed, overflow bool) {
		for _, m := range changed.Moves {
			if !m.Remote {
				b.opt.Metrics.countSessionMove(m)
				b.logMove(m)
			}
			// The previous owner can now hold another session. Requests of this app have already triggered a recheck;
			// an acquisition by another worker has not.
			if m.Why == engine.ReasonFallback || m.Remote && m.Ends() {
				transaction.Recheck(b.dispatch, []engine.WorkerKey{{Namespace: m.Session.Namespace, ID: m.Worker}})
			}
			if m.Remote && m.What == protocol.SessionPreparing {
				b.recheckOwner(ctx, m.Session)
			}
		}
		if overflow {
			b.log.Warn().Msg("session log queue full; some session events were not logged")
		}
	})
}

// recheckOwner lets the polls of a session's owner at this app check the backlog again: another app has chosen a
// successor, so the draining owner receives tasks of the session.
func (b *Broker) recheckOwner(ctx context.Context, key engine.SessionKey) {
	var s engine.Session
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		s, err = r.Session(ctx, key)
		return ignore(err, store.ErrNotFound)
	})
	switch {
	case err != nil && ctx.Err() == nil:
		store.Warn(&b.log, err).Str("session_id", key.ID).
			Msg("failed to read the owner of a prepared session; its tasks wait for the owner's next poll")
	case s.Owner != "":
		transaction.Recheck(b.dispatch, []engine.WorkerKey{{Namespace: key.Namespace, ID: s.Owner}})
	}
}

// logMove logs the end of an epoch at info level, or as a warning if the owner or the state was lost. It logs all other
// changes at debug level; the timeline of the session contains them as well.
func (b *Broker) logMove(m store.SessionMove) {
	level := zerolog.DebugLevel
	switch {
	case m.What == "orphaned" || m.What == "failed" || m.What == protocol.SessionSnapshotLost:
		level = zerolog.WarnLevel
	case m.Ends():
		level = zerolog.InfoLevel
	}
	e := b.log.WithLevel(level).Str("session_id", m.Session.ID).Str("namespace", m.Session.Namespace).Str("event", m.What)
	if m.Worker != "" {
		e = e.Str("worker_id", m.Worker).Int64("epoch", m.Epoch)
	}
	if m.Task != "" {
		e = e.Str("task_id", m.Task)
	}
	if m.By != "" && m.By != m.Worker {
		e = e.Str("by", m.By)
	}
	if m.Why != "" {
		e = e.Str("reason", m.Why)
	}
	switch {
	case m.What == "claimed" || m.What == "reclaimed":
		e = e.Bool("is_new_claim", m.What == "claimed").Bool("is_reclaim", m.What == "reclaimed").Str("release", m.Release)
	case m.Ends():
		e = e.Float64("idle_duration", m.Idle).Int("ran", m.Ran).Int("renewals", m.Renewals)
	}
	e.Msg("session " + timelineMessages[m.What])
}

// timelineMessages maps kinds of timeline entries to log messages.
var timelineMessages = map[string]string{
	"started": "started", "claimed": "claimed", "reclaimed": "reclaimed", "resumed": "resumed",
	"draining": "draining", "released": "released", "expired": "expired",
	"idle_unpinned": "unpinned because it was idle", "orphaned": "orphaned", "failed": "failed", "closed": "closed",
	"unpinned":   "unpinned from its release",
	"cleaned_up": "cleaned up",
	"set_up":     "set up", "set_up_failed": "set-up failed",
	protocol.SessionPreparing: "is being prepared by a successor", protocol.SessionPrepared: "prepared by a successor",
	protocol.SessionPreparationEnded:  "preparation discarded",
	protocol.SessionSnapshotRequested: "snapshot requested", protocol.SessionSnapshotStored: "snapshot stored",
	protocol.SessionSnapshotLost: "snapshot lost",
}
