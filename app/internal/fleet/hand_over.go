package fleet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// While a worker drains, the app chooses a successor for each of its sessions whose definition allows a hand-over. The
// other sessions are released as soon as no task runs in them.

// HandOver moves the sessions off a draining worker. It returns the number of sessions for which the worker waits,
// because a successor prepares them or the worker stores a snapshot, and the sessions of which the app requests a
// snapshot. The number is 0 for a worker that does not drain, and after the deadline of the drain. self reports that
// the worker itself started the drain.
func (f *Fleet) HandOver(
	ctx context.Context, w *engine.Worker, self bool,
) (pending int, asked []protocol.PreparationState) {
	d := f.workers.DrainOf(w)
	if d == nil && !self {
		return 0, nil
	}
	pending, asked, err := f.moveSessions(ctx, w, d)
	if err != nil && ctx.Err() == nil {
		store.Warn(&f.log, err).Str("worker_id", w.ID).Msg("failed to hand the sessions of a draining worker over")
	}
	return pending, asked
}

// moveSessions prepares or releases the sessions of a draining worker. d is nil if the worker drains itself.
func (f *Fleet) moveSessions(
	ctx context.Context, w *engine.Worker, d *engine.Drain,
) (pending int, asked []protocol.PreparationState, err error) {
	held, err := transaction.SessionsOwnedBy(ctx, f.store, w.Key())
	if err != nil || len(held) == 0 {
		return 0, nil, err
	}
	by := ""
	if d != nil {
		by = cmp.Or(d.By, "an operator")
	}
	to, err := f.successors(ctx, w)
	if err != nil {
		return 0, nil, err
	}
	expired := d != nil && d.DeadlinePassed(to.now)
	// In the order of their IDs, so that two apps that do the same choose alike.
	slices.SortFunc(held, func(a, b engine.Session) int { return cmp.Compare(a.ID, b.ID) })
	// The changes are committed concurrently, so that they share batches: tasks of a session wait for its change.
	var wait sync.WaitGroup
	waits, errs := make([]bool, len(held)), make([]error, len(held))
	for i := range held {
		s := &held[i]
		if p := s.Preparing(to.now); p != nil && !expired {
			if to.reachable(p) {
				waits[i] = true
				if p.Balance {
					wait.Go(func() {
						in := engine.DrainPreparation{Preparation: *p, Operator: by}
						if errs[i] = f.update(ctx, s, in); errs[i] == nil {
							transaction.Recheck(f.dispatch, []engine.WorkerKey{w.Key()})
						}
					})
				}
				continue
			}
			end := engine.EndPreparation{Preparation: *p, Why: "the successor is lost or drains"}
			if errs[i] = f.update(ctx, s, end); errs[i] != nil {
				continue
			}
			s.Prepare, s.Moving = nil, "" // also if another app has discarded the preparation
		}
		if s.Moving != "" && !(expired && s.AwaitsSnapshot()) {
			continue
		}
		var successor *engine.Worker
		if !expired {
			successor = to.choose(s)
		}
		drain := engine.DrainSession{Worker: w.ID, Operator: cmp.Or(by, w.ID), Deadline: expired}
		wait.Go(func() {
			if successor != nil {
				waits[i], errs[i] = f.prepare(ctx, s, w, successor, engine.PrepareSession{Operator: by})
			}
			if !waits[i] && errs[i] == nil {
				errs[i] = f.update(ctx, s, drain)
			}
		})
	}
	wait.Wait()
	for i, s := range held {
		if s.AwaitsSnapshot() {
			waits[i] = !expired
			asked = append(asked, protocol.PreparationState{
				SessionID: s.ID, Epoch: s.Epoch, State: protocol.PreparationSnapshot,
			})
		}
		if waits[i] {
			pending++
		}
	}
	return pending, asked, errors.Join(errs...)
}

// update applies an input to a session and stores the result in s, unless the stored session has changed so that the
// input no longer applies.
func (f *Fleet) update(ctx context.Context, s *engine.Session, in engine.SessionInput) error {
	c, err := transaction.UpdateSession(ctx, f.store, f.dispatch, s.Key(), in)
	switch {
	case engine.IsNotDue(err) || protocol.ReasonOf(err) != "":
		return nil
	case err == nil:
		*s = c.Session
	}
	return err
}

// candidates are the workers that may acquire sessions of another one in a hand-over.
type candidates struct {
	fleet *Fleet
	owner *engine.Worker // the owner of the sessions
	now   time.Time
	known membership.Roster
	// starting: this app has just started, so a worker without a heartbeat may be alive
	starting bool
	held     map[string]store.Holding
	owned    map[string][]engine.Session // sessions by owner, as far as balance has read them

	mean int // number of sessions of each candidate after the drain, if they are distributed evenly
}

func (f *Fleet) successors(ctx context.Context, owner *engine.Worker) (*candidates, error) {
	c, err := f.candidates(ctx, owner.Namespace)
	if err != nil {
		return nil, err
	}
	c.owner = owner
	workers, sessions := 0, c.sessions(owner)
	for _, h := range c.known {
		if h.Worker.ID != owner.ID && c.available(&h) && h.Worker.MaxSessions > 0 {
			workers++
			sessions += c.sessions(h.Worker)
		}
	}
	c.mean = (sessions + workers - 1) / max(1, workers)
	return c, nil
}

// candidates reads the workers of a namespace and their numbers of sessions.
func (f *Fleet) candidates(ctx context.Context, ns string) (*candidates, error) {
	c := &candidates{fleet: f, starting: f.workers.Starting(), owned: map[string][]engine.Session{}}
	var err error
	if c.now, err = f.store.Now(ctx); err != nil {
		return nil, err
	}
	return c, f.store.View(ctx, func(r store.Reader) (err error) {
		if c.held, err = r.Holdings(ctx, ns); err != nil {
			return err
		}
		if c.starting {
			c.known, err = f.workers.RosterWithRows(ctx, r, ns)
		} else {
			c.known, err = f.workers.Roster(ctx, r, ns)
		}
		return err
	})
}

// available reports whether a worker may be chosen: it may be alive, does not drain and passes the release gate.
func (c *candidates) available(h *membership.TrackedWorker) bool {
	return h.Gate == "" && !c.fleet.workers.Stopped(h) && c.mayLive(h)
}

// mayLive reports whether a worker is alive, or may be: after the start of this app, the heartbeat of a draining owner
// may arrive before the first heartbeat of the other workers. If the worker is dead, the lease of its preparation
// expires, and the owner runs the tasks of the session until then.
func (c *candidates) mayLive(h *membership.TrackedWorker) bool {
	return c.alive(h) || c.starting && h.At.IsZero()
}

func (c *candidates) alive(h *membership.TrackedWorker) bool { return c.fleet.workers.Alive(*h, c.now) }

// sessions returns the number of sessions that a worker holds or prepares.
func (c *candidates) sessions(w *engine.Worker) int {
	return c.held[w.ID].Sessions + c.held[w.ID].Prepared
}

// reachable reports whether the process that prepares a session may be alive and does not drain.
func (c *candidates) reachable(p *engine.Preparation) bool {
	h, ok := c.known[engine.WorkerKey{Namespace: c.owner.Namespace, ID: p.Worker}]
	return ok && h.Worker.Incarnation == p.Incarnation && !c.fleet.workers.Stopped(&h) && c.mayLive(&h)
}

// room returns how many more sessions a worker may hold or prepare.
func (c *candidates) room(w *engine.Worker) int { return w.MaxSessions - c.sessions(w) }

// used returns the resources that the sessions of a worker use.
func (c *candidates) used(w *engine.Worker) engine.Amounts { return c.held[w.ID].UsedAt(w) }

// lessee returns a worker with the number and the resources of its sessions.
func (c *candidates) lessee(w *engine.Worker) engine.Lessee {
	return engine.Lessee{Worker: w, Sessions: c.sessions(w), Used: c.used(w)}
}

// freeSetUp reports whether a worker prepares fewer sessions than it runs set-ups at once.
func (c *candidates) freeSetUp(w *engine.Worker) bool {
	return w.MaxSetUps == 0 || c.held[w.ID].Prepared < w.MaxSetUps
}

// best returns the best worker that may prepare the session; nil: there is none.
func (c *candidates) best(s *engine.Session) (best *engine.Worker) {
	lives := false // best is alive
	for _, h := range c.known {
		w, alive := h.Worker, c.alive(&h)
		switch {
		case w.ID == c.owner.ID || !c.available(&h):
		case !s.HandsOver(c.owner, w) || c.room(w) <= 0 || !s.FitsAt(w, c.used(w)) || c.withheld(s, w):
		case best == nil || alive && !lives || alive == lives && c.better(s, w, best):
			best, lives = w, alive
		}
	}
	return best
}

// better reports whether w is the better successor. Workers with fewer sessions than the mean come first, and of those
// the one that registered last: during a rolling restart, a worker that registered earlier will drain soon, and its
// sessions would be set up twice. Of the others, those that run fewer set-ups than they run at once come first, then
// those with the most resources free, then those with the most places.
func (c *candidates) better(s *engine.Session, w, than *engine.Worker) bool {
	below, thanBelow := c.sessions(w) < c.mean, c.sessions(than) < c.mean
	if below != thanBelow {
		return below
	}
	newest := w.RegisteredAt.Compare(than.RegisteredAt.Time)
	if !below {
		newest = 0
	}
	if newest == 0 {
		if free := c.freeSetUp(w); free != c.freeSetUp(than) {
			return free
		}
		a, b := c.lessee(w), c.lessee(than)
		if x, y := s.ShareAfter(&a), s.ShareAfter(&b); x != y {
			return x > y
		}
	}
	return cmp.Or(newest, cmp.Compare(c.room(w), c.room(than)), cmp.Compare(than.ID, w.ID)) > 0
}

// withheld reports whether an operator drained the build of the worker, or routed its group away, in a queue of the
// session.
func (c *candidates) withheld(s *engine.Session, w *engine.Worker) bool {
	return slices.ContainsFunc(s.QueuesWith(c.owner.Queues), func(q string) bool {
		return c.fleet.store.Queue(engine.QueueKey{Namespace: w.Namespace, Name: q}).Withholds(w)
	})
}

// choose returns the best successor of a session and counts the session as prepared by it; nil: there is none.
func (c *candidates) choose(s *engine.Session) *engine.Worker {
	w := c.best(s)
	if w != nil {
		c.reserve(s, w)
	}
	return w
}

// reserve counts the session as prepared by a worker.
func (c *candidates) reserve(s *engine.Session, w *engine.Worker) {
	h := c.held[w.ID]
	h.Prepared++
	h.Used = h.Used.Plus(s.AmountsAt(w))
	c.held[w.ID] = h
}

// prepare reserves a place for the session at a successor. It returns false if the session or the successor has changed
// so that it cannot. in has the reason of the preparation.
func (f *Fleet) prepare(
	ctx context.Context, s *engine.Session, owner, w *engine.Worker, in engine.PrepareSession,
) (bool, error) {
	key, sk := w.Key(), s.Key()
	already := false // another app, or another call, has chosen a successor
	_, err := transaction.Commit[engine.SessionChange](ctx, f.store, store.Transaction{
		Needs: store.Keys{Workers: []engine.WorkerKey{key}, Sessions: []engine.SessionKey{sk}, Holdings: true},
		Decide: func(rows store.Rows, now time.Time) (out store.Writes, err error) {
			row := rows.Worker(key)
			if row == nil || !row.DeregisteredAt.IsZero() || row.Incarnation != w.Incarnation {
				return store.Writes{}, transaction.StaleWorker(key.ID)
			}
			if in.Balance {
				if !row.MayBalance(now) {
					return store.Writes{}, errBalanced
				}
				balanced := *row
				balanced.BalancedAt = history.At(now)
				out.Workers = []engine.Worker{balanced}
			}
			session := rows.Session(sk)
			already = session != nil && session.Preparing(now) != nil
			in.Owner = owner
			in.Successor = engine.Lessee{
				Worker: row, Sessions: rows.Holding(key, sk, now), Counted: true, Used: rows.Used(row, now),
			}
			change, err := engine.DecideSession(session, in, now)
			out.Sessions, out.Answer = []engine.SessionChange{change}, change
			return out, err
		},
	})
	if err != nil && (engine.IsNotDue(err) || errors.Is(err, errBalanced) || protocol.ReasonOf(err) != "") {
		return already, nil
	}
	if err != nil {
		return false, err
	}
	transaction.Recheck(f.dispatch, []engine.WorkerKey{owner.Key()}) // it receives tasks of the session again
	return true, nil
}
