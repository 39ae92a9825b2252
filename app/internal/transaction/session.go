package transaction

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The end of a session frees room for another session at its owner, but no commit reports the tasks that wait for this
// room. So each caller that ends a session triggers a recheck of the backlog for the owner.

// Backlog is the part of the dispatcher that rechecks a worker with room for a session.
type Backlog interface {
	Recheck(engine.WorkerKey)
}

// Recheck lets workers that have room for another session check the backlog again.
func Recheck(d Backlog, keys []engine.WorkerKey) {
	for _, k := range keys {
		d.Recheck(k)
	}
}

// SessionUpdate is the result of one input to a session.
type SessionUpdate struct {
	engine.SessionChange
	PreviousIncarnation string // the process that had the session until then
}

// UpdateSession applies one input to one session. A caller without access to the session's queue gets the error that
// the session does not exist.
func UpdateSession(
	ctx context.Context, s store.Store, d Backlog, key engine.SessionKey, in engine.SessionInput,
) (SessionUpdate, error) {
	given, ok := in.(engine.ReleaseSession)
	due, _ := in.(engine.DueSession)
	c, err := Commit[SessionUpdate](ctx, s, store.Transaction{
		Needs: store.Keys{
			Sessions: []engine.SessionKey{key}, RecentActivity: true,
			ExactActivity: ok && given.Why == engine.ReasonEvictedCap || due.Other != nil,
		},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			s, holder := rows.Session(key), ""
			if !auth.BoundFrom(ctx).Sees(s) {
				return store.Writes{}, SessionNotFound()
			}
			if s != nil {
				holder = s.Incarnation
			}
			c, err := engine.DecideSession(s, in, now)
			return store.Writes{Sessions: []engine.SessionChange{c}, Answer: SessionUpdate{c, holder}}, err
		},
	})
	if err == nil {
		Recheck(d, FreedOwners([]engine.SessionChange{c.SessionChange}))
	}
	return c, err
}

// FreedOwners lists the holders of sessions that a transaction ended.
func FreedOwners(changes []engine.SessionChange) (keys []engine.WorkerKey) {
	for _, c := range changes {
		if c.Freed != "" {
			keys = append(keys, engine.WorkerKey{Namespace: c.Session.Namespace, ID: c.Freed})
		}
		for _, e := range c.Timeline {
			switch e.What {
			case "closed", "released", "expired", "idle_unpinned", "orphaned", "failed":
				if e.Worker != "" {
					keys = append(keys, engine.WorkerKey{Namespace: c.Session.Namespace, ID: e.Worker})
				}
			}
		}
	}
	return keys
}

// SessionsOwnedBy returns the sessions that a worker holds.
func SessionsOwnedBy(ctx context.Context, s Reads, w engine.WorkerKey) (held []engine.Session, err error) {
	err = s.View(ctx, func(r store.Reader) error {
		held, err = r.Sessions(ctx, store.SessionQuery{
			Namespace: w.Namespace, Owner: w.ID, Statuses: []protocol.SessionStatus{protocol.SessionActive}, Limit: 10_000,
		})
		return err
	})
	return held, err
}
