package sqldb

import (
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
)

// addFormerOwner records that a session's owner changes to owner, or to none if it is empty. Attempts of the former
// owner in the session are found by the former owner's ID.
func (s *session) addFormerOwner(owner string) {
	if s.Session != nil && s.Owner != "" && s.Owner != owner && !slices.Contains(s.formerOwners, s.Owner) {
		s.formerOwners = append(slices.Clip(s.formerOwners), s.Owner)
	}
	if i := slices.Index(s.formerOwners, owner); i >= 0 {
		s.formerOwners = slices.Delete(slices.Clone(s.formerOwners), i, i+1)
	}
}

// forgetFormerOwners removes the former owners, because they have no running attempts in the session: all running
// attempts belong to the current epoch.
func (s *session) forgetFormerOwners() {
	if len(s.StaleAttempts) == 0 && (s.Owner != "" || s.Active == 0) {
		s.formerOwners = nil
	}
}

// countTasks returns the call that counts the tasks of the sessions which the batch has just loaded.
func (b *batch) countTasks(keys *db.Rowset) []*db.Call {
	if keys.Empty() {
		return nil
	}
	most := 0
	if b.s.cfg.Dialect.Shared {
		most = record.MostReady
	}
	return []*db.Call{{Stmt: b.s.st.sessionCounts, Args: b.s.cfg.Dialect.Keys(keys), Row: func(v []any) error {
		s := b.sessions[engine.SessionKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}]
		switch {
		case s == nil || s.Session == nil:
		case v[3] == nil:
			s.Ready, s.MoreReady = int(db.Int(v[2])), int(db.Int(v[2])) == most
		default:
			record.Leased(s.Session, db.Int(v[3]))
		}
		return nil
	}}}
}

// recordRoutes records the routes of the ready tasks of the loaded sessions: they follow from the routing words, unless
// an activity limit is reached. Tasks of sessions that were loaded with their workflows are counted first.
func (b *batch) recordRoutes() error {
	missing := db.NewRowset(record.Sessions.Key())
	for k, s := range b.sessions {
		if s.row != nil && !s.counted {
			s.counted = true
			missing.S(k.Namespace).S(k.ID)
		}
	}
	if err := b.send(b.countTasks(missing)...); err != nil {
		return err
	}
	for _, s := range b.sessions {
		if s.row != nil && s.route == "" {
			s.route = s.StoredRoutingWord(s.routingWord)
		}
	}
	return nil
}

// loadActivity reads when an activity last ended in sessions whose rows do not show whether they are idle; for keys
// marked true it does so in any case.
func (b *batch) loadActivity(keys map[engine.SessionKey]bool) error {
	var calls []*db.Call
	for k, exactly := range keys {
		s := b.sessions[k]
		if s == nil || s.Session == nil || !exactly && !s.Unsure(b.now) {
			continue
		}
		row := *s.Session
		s.Session, s.follow = &row, true
		activity := func(epoch int64, worker string, at history.Time) { recordActivity(&row, epoch, worker, at) }
		since := row.LastActivity.Micros() - record.LeadTime.Microseconds() // earlier attempts cannot change the result
		calls = append(calls, &db.Call{Stmt: b.s.st.lastEnded, Args: []any{
			record.SessionKey(k), since,
		}, Row: func(v []any) error {
			return record.EachEnded(v, activity)
		}}, &db.Call{Stmt: b.s.st.leasedIn, Args: []any{k.Namespace, row.Owner, k.ID}, Row: func(v []any) error {
			a, err := record.ReadActivity(db.Str(v[0]), k.Namespace, db.Int(v[1]), db.Str(v[2]))
			if err == nil {
				activity(a.Epoch, a.Owner, record.Sign(&a))
			}
			return err
		}})
	}
	return b.send(calls...)
}

// recordActivity sets the time of the last activity of the session's owner, if it was under the current lease.
func recordActivity(s *engine.Session, epoch int64, worker string, at history.Time) {
	if epoch == s.Epoch && worker == s.Owner && at.After(s.RecentActivity.Time) && at.Before(s.LeaseUntil.Time) {
		s.RecentActivity = at
	}
}

// leasedBy is the statement that reads the tasks of one worker in one session.
const leasedBy = "SELECT run_id, seq, body FROM tasks WHERE namespace = $1 AND owner = $2 AND session_id = $3 LIMIT 64"

// countRan adds two numbers to the timeline entries of epochs that ended in this batch: the attempts that ended during
// the epoch, including this batch, and the lost attempts whose activities are still open. The number of an epoch is the
// time of its acquisition, unless the clock was set back.
func (b *batch) countRan() error {
	var calls []*db.Call
	for i := b.timelineWritten; i < len(b.moves); i++ {
		m := &b.moves[i]
		if !m.Ends() {
			continue
		}
		key := record.SessionKey(m.Session)
		m.Ran += b.endsOf(key)
		calls = append(calls, &db.Call{Stmt: b.s.st.ranIn, Args: []any{
			key, m.Epoch - record.LeadTime.Microseconds(), m.Epoch,
		}, Row: func(v []any) error {
			m.Ran += int(db.Int(v[0]))
			return nil
		}})
		one := db.NewRowset(record.Sessions.Key()).S(m.Session.Namespace).S(m.Session.ID)
		calls = append(calls, &db.Call{Stmt: b.s.st.openIn, Args: b.s.cfg.Dialect.Keys(one), Row: func(v []any) error {
			a, err := record.ReadActivity(db.Str(v[0]), m.Session.Namespace, db.Int(v[1]), db.Str(v[2]))
			for _, l := range a.Lost {
				if l.Epoch == m.Epoch {
					m.Ran++
				}
			}
			return err
		}})
	}
	return b.send(calls...)
}

// endsOf counts the attempts that ended in a session, by its key in events, in events that are not written yet.
func (b *batch) endsOf(session string) (n int) {
	for _, evs := range b.events {
		for _, s := range evs.sessions {
			if s == session {
				n++
			}
		}
	}
	return n
}
