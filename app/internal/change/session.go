package change

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A session that ends leaves its holder room for another, which no row says: the tasks that wait for room were there
// before. So whoever ends one has the holder look at the backlog again.

// Backlog is what hands out tasks, as far as a worker with room is looked at again.
type Backlog interface {
	Recheck(engine.WorkerKey)
}

// Recheck lets workers that have room for another session look at the backlog again.
func Recheck(d Backlog, keys []engine.WorkerKey) {
	for _, k := range keys {
		d.Recheck(k)
	}
}

// SessionStep is what one input did to a session.
type SessionStep struct {
	engine.SessionChange
	Holder string // the process that had the session until then
}

// StepSession runs one input on one session. A caller whose token is not good for the session's queue is told that
// there is none.
func StepSession(
	ctx context.Context, s store.Store, d Backlog, key engine.SessionKey, in engine.SessionInput,
) (SessionStep, error) {
	given, ok := in.(engine.ReleaseSession)
	due, _ := in.(engine.DueSession)
	c, err := Commit[SessionStep](ctx, s, store.Change{
		Needs: store.Keys{
			Sessions: []engine.SessionKey{key}, Lately: true,
			Exactly: ok && given.Why == engine.ReasonEvictedCap || due.Other != nil,
		},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			s, holder := rows.Session(key), ""
			if !auth.BoundFrom(ctx).Sees(s) {
				return store.Writes{}, NoSession()
			}
			if s != nil {
				holder = s.Incarnation
			}
			c, err := engine.DecideSession(s, in, now)
			return store.Writes{Sessions: []engine.SessionChange{c}, Answer: SessionStep{c, holder}}, err
		},
	})
	if err == nil {
		Recheck(d, FreedBy([]engine.SessionChange{c.SessionChange}))
	}
	return c, err
}

// FreedBy lists the holders of sessions that a change ended.
func FreedBy(changes []engine.SessionChange) (keys []engine.WorkerKey) {
	for _, c := range changes {
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

// SessionsOf lists the sessions a worker holds.
func SessionsOf(ctx context.Context, s Reads, w engine.WorkerKey) (held []engine.Session, err error) {
	err = s.View(ctx, func(r store.Reader) error {
		held, err = r.Sessions(ctx, store.SessionQuery{
			Namespace: w.Namespace, Owner: w.ID, Statuses: []protocol.SessionStatus{protocol.SessionActive}, Limit: 10_000,
		})
		return err
	})
	return held, err
}
