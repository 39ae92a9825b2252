package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker renews its sessions three times per lease length, also while they are idle. If each heartbeat were stored
// separately, an idle fleet would cost several statements per worker and second. Therefore heartbeats wait for
// heartbeats of other workers, and one transaction renews the sessions of all of them, with one statement for thousands
// of rows. Each session is decided separately: a rejected renewal does not affect other sessions.

const (
	// maxPatience is the longest time that renewals wait for other renewals. They also wait for at most a tenth of a
	// worker's shortest lease.
	maxPatience = 3 * time.Second
	// minPatience is the shortest such time: if leases are so short that renewals could wait only for less, each
	// heartbeat is stored immediately.
	minPatience = time.Second
	// maxRenewed is the maximum number of sessions that one transaction renews; later renewals wait until it has ended.
	maxRenewed = 4096
)

// renewals collects heartbeats whose sessions wait to be renewed together.
type renewals struct {
	mu      sync.Mutex    // guards all fields below, and the contents of a batch until it is closed
	waiting *renewalBatch // the batch that waits; nil: none
}

// renewalBatch collects renewals for one transaction.
type renewalBatch struct {
	parts     []*workerRenewals
	size      int
	due       time.Time
	now       chan struct{} // closed when the renewals must be committed immediately
	commitNow func()        // closes now; further calls have no effect
	done      chan struct{} // closed when the parts have their outcomes, or err is set
	err       error
}

// workerRenewals holds the renewals of one heartbeat.
type workerRenewals struct {
	caller   *auth.Principal
	worker   *engine.Worker
	sessions []protocol.SessionRenewal
	outcomes []renewal
}

// renewal is the result for one session: its state after the renewal, or why it was not renewed.
type renewal struct {
	session engine.Session
	err     error
}

// errRowLocked means that another app has locked the row of the session; a separate transaction renews this session.
var errRowLocked = errors.New("another app has locked the row of the session")

// maxRenewalDelay returns how long a worker's renewals may wait for those of other workers. A worker that runs tasks or
// drains does not wait; while the app drains, no worker waits.
func (b *Broker) maxRenewalDelay(w *engine.Worker, in *protocol.WorkerHeartbeat) time.Duration {
	if !in.Patient || len(in.Leases) > 0 || in.Draining || b.isDraining() {
		return 0
	}
	least := w.SessionLease
	if w.AttemptLease > 0 {
		least = min(least, w.AttemptLease)
	}
	if slices.ContainsFunc(in.Sessions, func(r protocol.SessionRenewal) bool { return r.FailFast }) {
		return minPatience
	}
	patience := time.Duration(least) * time.Microsecond / 10
	if patience < minPatience {
		return 0
	}
	return min(maxPatience, patience)
}

// renewSessions renews the sessions of a worker, together with renewals of other workers that arrive within patience.
func (b *Broker) renewSessions(
	ctx context.Context, w *engine.Worker, asked []protocol.SessionRenewal, patience time.Duration,
) []protocol.SessionState {
	sound := make([]protocol.SessionRenewal, 0, len(asked))
	places := make([]int, 0, len(asked)) // positions of the valid renewals in the heartbeat
	states := make([]protocol.SessionState, len(asked))
	var resumes []protocol.SessionRenewal
	var resumePlaces []int
	var apart sync.WaitGroup
	defer apart.Wait()
	for i, r := range asked {
		switch {
		case r.Malformed != nil:
			states[i] = protocol.SessionState{SessionID: r.SessionID, Epoch: r.Epoch, Reason: r.Malformed.Error()}
		case r.Resume:
			resumes, resumePlaces = append(resumes, r), append(resumePlaces, i)
		case r.GivenUp: // concurrently, so that the committer stores them in one batch
			apart.Go(func() { states[i] = b.releaseGivenUp(ctx, w.Key(), r) })
		default:
			sound, places = append(sound, r), append(places, i)
		}
	}
	if len(resumes) > 0 {
		apart.Go(func() {
			for k, out := range b.resumeSessions(ctx, w, resumes) {
				states[resumePlaces[k]] = b.renewedState(ctx, w, resumes[k], out)
			}
		})
	}
	for from := 0; from < len(sound); from += maxRenewed {
		some := sound[from:min(from+maxRenewed, len(sound))]
		part := &workerRenewals{caller: auth.BoundFrom(ctx), worker: w, sessions: some}
		g := b.joinRenewalBatch(part, patience)
		select {
		case <-g.done:
		case <-ctx.Done():
			g = &renewalBatch{err: context.Cause(ctx)}
		}
		for i, r := range some {
			out := renewal{err: g.err}
			if g.err == nil {
				out = part.outcomes[i]
			}
			states[places[from+i]] = b.renewedState(ctx, w, r, out)
		}
	}
	return states
}

// renewedState returns the state of a session after its renewal. The shared transaction skips a session whose row
// another app has locked, so that the other sessions do not wait for the lock; renewedState renews that session in a
// separate transaction.
func (b *Broker) renewedState(
	ctx context.Context, w *engine.Worker, r protocol.SessionRenewal, out renewal,
) protocol.SessionState {
	key := engine.SessionKey{Namespace: w.Namespace, ID: r.SessionID}
	if errors.Is(out.err, errRowLocked) {
		c, err := transaction.UpdateSession(ctx, b.store, b.dispatch, key, renewInput(w, r, b.workers.AcceptsTasks(w)))
		out = renewal{c.Session, err}
	}
	if err := b.hideSession(ctx, key, out.err); err != nil {
		return protocol.SessionState{
			SessionID: r.SessionID, Epoch: r.Epoch, Held: protocol.ReasonOf(err) == "", Reason: err.Error(),
		}
	}
	return protocol.SessionState{
		SessionID: r.SessionID, Epoch: out.session.Epoch, Held: true, LeaseExpiresAt: out.session.LeaseUntil,
		Snapshot: out.session.AwaitsSnapshot(),
	}
}

func renewInput(w *engine.Worker, r protocol.SessionRenewal, noDrain bool) engine.RenewSession {
	return engine.RenewSession{SessionHolder: engine.SessionHolder{Worker: w.ID, Epoch: r.Epoch}, NoDrain: noDrain}
}

// joinRenewalBatch adds a part to the waiting batch and ensures that the batch is committed within patience. The first
// part creates the batch; the shortest patience determines when it is committed.
func (b *Broker) joinRenewalBatch(part *workerRenewals, patience time.Duration) *renewalBatch {
	r := &b.renewals
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.waiting; g != nil && g.size+len(part.sessions) > maxRenewed {
		g.commitNow()
		r.waiting = nil
	}
	g := r.waiting
	if g == nil {
		g = &renewalBatch{now: make(chan struct{}), done: make(chan struct{})}
		g.commitNow = sync.OnceFunc(func() { close(g.now) })
		r.waiting = g
		b.runInBackground(func(ctx context.Context) { b.commitRenewals(ctx, g) })
	}
	g.parts = append(g.parts, part)
	g.size += len(part.sessions)
	switch due := time.Now().Add(patience); {
	// A renewal that cannot wait commits the whole batch immediately.
	case patience <= 0:
		g.commitNow()
	case g.due.IsZero() || due.Before(g.due):
		g.due = due
		time.AfterFunc(patience, g.commitNow)
	}
	return g
}

// commitRenewals commits a batch when it is due.
func (b *Broker) commitRenewals(ctx context.Context, g *renewalBatch) {
	defer close(g.done)
	select {
	case <-g.now:
	case <-ctx.Done():
	}
	b.renewals.mu.Lock()
	if b.renewals.waiting == g {
		b.renewals.waiting = nil
	}
	b.renewals.mu.Unlock()
	needs := store.Keys{RecentActivity: true, SkipLocked: true}
	for _, p := range g.parts {
		for _, r := range p.sessions {
			needs.Sessions = append(needs.Sessions, engine.SessionKey{Namespace: p.worker.Namespace, ID: r.SessionID})
		}
	}
	all, err := transaction.Commit[[][]renewal](ctx, b.store, store.Transaction{
		Needs: needs,
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			next := map[engine.SessionKey]*engine.Session{} // a heartbeat may name a session twice
			var w store.Writes
			all := make([][]renewal, len(g.parts))
			for i, p := range g.parts {
				noDrain := b.workers.AcceptsTasks(p.worker)
				for _, r := range p.sessions {
					c, err := p.decide(rows, next, r, noDrain, now)
					if err == nil {
						next[c.Session.Key()] = &c.Session
						w.Sessions = append(w.Sessions, c)
					}
					all[i] = append(all[i], renewal{c.Session, err})
				}
			}
			w.Answer = all
			return w, nil
		},
	})
	// The transaction failed, so the app knows for no session whether its lease was renewed: each caller gets the
	// error.
	if g.err = err; err != nil {
		return
	}
	for i, p := range g.parts {
		p.outcomes = all[i]
	}
}

func (p *workerRenewals) decide(
	rows store.Rows, next map[engine.SessionKey]*engine.Session, r protocol.SessionRenewal, noDrain bool, now time.Time,
) (engine.SessionChange, error) {
	s, err := p.session(rows, next, r)
	if err != nil {
		return engine.SessionChange{}, err
	}
	return engine.DecideSession(s, renewInput(p.worker, r, noDrain), now)
}

// session returns a session that a heartbeat names: its version in next if an earlier renewal of the transaction
// decided one, otherwise its row. The error is errRowLocked if another app has locked the row, and
// transaction.SessionNotFound if the session does not exist or the caller may not see it.
func (p *workerRenewals) session(
	rows store.Rows, next map[engine.SessionKey]*engine.Session, r protocol.SessionRenewal,
) (*engine.Session, error) {
	key := engine.SessionKey{Namespace: p.worker.Namespace, ID: r.SessionID}
	if rows.SkippedLocked(key) {
		return nil, errRowLocked
	}
	s := next[key]
	if s == nil {
		s = rows.Session(key)
	}
	if !p.caller.Sees(s) {
		return nil, transaction.SessionNotFound()
	}
	return s, nil
}

// resumeSessions grants new leases under the same epochs to a process that suspended the state of its sessions. Like an
// acquisition, it counts the sessions of the worker under the lock of the worker's row. All sessions of a heartbeat are
// in one transaction, because after an overload workers resume thousands of sessions. If the resume of a session is
// refused, the worker drops its state.
func (b *Broker) resumeSessions(ctx context.Context, w *engine.Worker, asked []protocol.SessionRenewal) []renewal {
	if w.Release != "" { // an HTTP worker names no release and is not subject to the release gate
		if v := b.checkRelease(w.Key(), w.Release); !v.Allowed {
			err := protocol.Refuse(protocol.ReasonVersionMismatch, "worker %s: %s", w.ID, v.Message)
			return slices.Repeat([]renewal{{err: err}}, len(asked))
		}
	}
	all := make([]renewal, 0, len(asked))
	for some := range slices.Chunk(asked, maxRenewed) {
		out, err := b.commitResumes(ctx, w, some, true)
		if err != nil {
			out = slices.Repeat([]renewal{{err: err}}, len(some))
		}
		for i, r := range some {
			if !errors.Is(out[i].err, errRowLocked) {
				continue
			}
			if one, err := b.commitResumes(ctx, w, []protocol.SessionRenewal{r}, false); err != nil {
				out[i].err = err
			} else {
				out[i] = one[0]
			}
		}
		all = append(all, out...)
	}
	return all
}

// commitResumes resumes sessions in one transaction. With apart, sessions whose rows another app has locked get
// errRowLocked; otherwise the transaction waits for the locks.
func (b *Broker) commitResumes(
	ctx context.Context, w *engine.Worker, asked []protocol.SessionRenewal, apart bool,
) ([]renewal, error) {
	key := w.Key()
	needs := store.Keys{Workers: []engine.WorkerKey{key}, Holdings: true, RecentActivity: true, SkipLocked: apart}
	for _, r := range asked {
		needs.Sessions = append(needs.Sessions, engine.SessionKey{Namespace: w.Namespace, ID: r.SessionID})
	}
	part := workerRenewals{caller: auth.BoundFrom(ctx), worker: w}
	return transaction.Commit[[]renewal](ctx, b.store, store.Transaction{
		Needs: needs,
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			stored := rows.Worker(key)
			if stored == nil || !stored.DeregisteredAt.IsZero() || stored.Incarnation != w.Incarnation {
				return store.Writes{}, transaction.StaleWorker(key.ID)
			}
			resume := engine.ResumeSession{
				Draining: b.workers.DrainOf(stored) != nil,
				Lessee: engine.Lessee{
					Worker: stored, Sessions: rows.Holding(key, engine.SessionKey{}, now), Counted: true,
					Used: rows.Used(stored, now),
				},
			}
			next := map[engine.SessionKey]*engine.Session{} // a heartbeat may name a session twice
			out := make([]renewal, len(asked))
			var writes store.Writes
			for i, r := range asked {
				s, err := part.session(rows, next, r)
				if err != nil {
					out[i].err = err
					continue
				}
				resume.Epoch = r.Epoch
				c, err := engine.DecideSession(s, resume, now)
				if out[i] = (renewal{c.Session, err}); err != nil {
					continue
				}
				if !s.With(stored, now) {
					resume.Lessee.Sessions++
					one := c.Session.UsedBy(stored, now)
					if len(s.UsedBy(stored, now)) == 0 && len(one) > 0 {
						var more engine.Amounts
						more.Add(one, 1)
						resume.Lessee.Used = resume.Lessee.Used.Plus(more)
					}
				}
				next[c.Session.Key()] = &c.Session
				writes.Sessions = append(writes.Sessions, c)
			}
			writes.Answer = out
			return writes, nil
		},
	})
}

// releaseGivenUp releases a session whose state the worker has dropped. If the release was not stored, the response has
// Held, and the worker repeats the report.
func (b *Broker) releaseGivenUp(
	ctx context.Context, w engine.WorkerKey, r protocol.SessionRenewal,
) protocol.SessionState {
	state := protocol.SessionState{SessionID: r.SessionID, Epoch: r.Epoch, Reason: protocol.ReasonGivenUp}
	key := engine.SessionKey{Namespace: w.Namespace, ID: r.SessionID}
	_, err := transaction.UpdateSession(ctx, b.store, b.dispatch, key, engine.ReleaseSession{
		SessionHolder: engine.SessionHolder{Worker: w.ID, Epoch: r.Epoch}, Why: protocol.ReasonGivenUp,
	})
	if err = b.hideSession(ctx, key, err); err != nil && protocol.ReasonOf(err) == "" {
		state.Held, state.Reason = true, err.Error()
	}
	return state
}
