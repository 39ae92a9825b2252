package presence

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Leaving has three steps, in this order. The mark fences the process, so that nothing new reaches it; what it had
// continues; the row goes last, since a lease must never name a worker without a row. What fails in between is said
// again: a mark that is there already is no error.

// Deregister takes a worker's registration away, at its own word: its leases end and its sessions are released, so that
// others continue at once. The row is marked first, which fences it, and goes last: a lease never names a worker
// without a row.
func (ws *Workers) Deregister(ctx context.Context, in protocol.DeregisterRequest) (protocol.DeregisterAnswer, error) {
	w, err := ws.fence(ctx, in)
	if err != nil {
		return protocol.DeregisterAnswer{}, err
	}
	flows, err := ws.letGo(ctx, w, engine.ReturnedDraining, returned)
	return protocol.DeregisterAnswer{WorkerID: w.ID, Outcome: "deregistered", Recovered: flows}, err
}

// RemoveWorker takes a worker's registration away, at an operator's word. It gets nothing more from now on. What it
// runs goes to nobody else while it may still run there: it may report it, and it comes back when it does, or when its
// lease has ended. One that tells its processes apart and lives is refused until another process of its id registers.
func (ws *Workers) RemoveWorker(ctx context.Context, ns, id string) (protocol.DeregisterAnswer, error) {
	key := engine.WorkerKey{Namespace: change.Namespace(ns), ID: id}
	w, err := ws.Known(ctx, key)
	if err != nil {
		return protocol.DeregisterAnswer{}, change.NoWorker(id)
	}
	now, err := ws.store.Now(ctx)
	if err != nil {
		return protocol.DeregisterAnswer{}, err
	}
	h := Heard{Worker: w}
	ws.With(key, func(known *Heard) { h = *known })
	lives := ws.Alive(h, now) || !ws.opt.Shared && h.At.IsZero() && time.Since(ws.started) <= ws.opt.Alive
	if w, err = ws.fence(ctx, protocol.DeregisterRequest{Namespace: ns, WorkerID: id}); err != nil {
		return protocol.DeregisterAnswer{}, err
	}
	out := protocol.DeregisterAnswer{WorkerID: id, Outcome: "deregistered"}
	var refs []store.TaskRef
	err = ws.store.View(ctx, func(r store.Reader) error {
		refs, err = r.Owned(ctx, key, w.Incarnation)
		return err
	})
	if err != nil || (lives || w.Explicit) && len(refs) > 0 || lives && namesProcess(w) {
		return out, err
	}
	out.Recovered, err = ws.letGo(ctx, w, engine.ReasonOrphaned, died) // what a living one had is not free yet
	return out, err
}

// namesProcess says whether a worker's processes can be told apart by their incarnations.
func namesProcess(w *engine.Worker) bool {
	return w.Explicit && w.Incarnation != protocol.SocketProcess
}

// fence marks a registration as taken away: from its commit on the process gets nothing more, here and, as soon as they
// hear of it, at other apps.
func (ws *Workers) fence(ctx context.Context, in protocol.DeregisterRequest) (*engine.Worker, error) {
	key := engine.WorkerKey{Namespace: change.Namespace(in.Namespace), ID: in.WorkerID}
	if err := ws.Reaches(ctx, key.Namespace, in.WorkerID); err != nil {
		return nil, err
	}
	w, err := change.Commit[engine.Worker](ctx, ws.store, store.Change{
		Needs: store.Keys{Workers: []engine.WorkerKey{key}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			old := rows.Worker(key)
			switch {
			case old == nil:
				return store.Writes{}, change.NoWorker(key.ID)
			case in.Incarnation != "" && in.Incarnation != old.Incarnation:
				return store.Writes{}, change.StaleWorker(key.ID)
			case !old.Left.IsZero():
				return store.Writes{Answer: *old}, nil
			}
			next := *old
			next.Left, next.UpdatedAt, next.Status = history.At(now), history.At(now), protocol.WorkerDraining
			return store.Writes{Workers: []engine.Worker{next}, Answer: next}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	ws.dispatch.Gone(store.Process{Worker: key, Incarnation: w.Incarnation})
	return &w, nil
}

// leaving bounds what is done for a process that has left, which nobody waits for any more.
const leaving = 30 * time.Second

// letGo gives on what a process that left had, and removes its row, unless another has registered meanwhile. It says
// how many workflow tasks there were. It continues without its caller: a worker says goodbye and is gone, and what it
// had would lie until its leases have ended if that ended the work.
func (ws *Workers) letGo(
	ctx context.Context, w *engine.Worker, why string, lost func(store.TaskRef) bool,
) (flows int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaving)
	defer cancel()
	key := w.Key()
	_, flows, err = ws.loseProcesses(ctx, key, why, lost, func(incarnation string) bool {
		return incarnation == w.Incarnation
	})
	if err != nil {
		return 0, err
	}
	if err := ws.releaseSessions(ctx, key, "shutdown"); err != nil {
		return 0, err
	}
	_, err = ws.drop(ctx, []engine.WorkerKey{key}, func(rows store.Rows) []engine.WorkerKey {
		if now := rows.Worker(key); now == nil || now.Incarnation != w.Incarnation || now.Left.IsZero() {
			return nil
		}
		return []engine.WorkerKey{key}
	})
	return flows, err
}

// drop removes the rows of workers of one namespace that over says to be over. A drain that names one of them is to
// outlive its restart, so it is noted there when it left.
func (ws *Workers) drop(
	ctx context.Context, keys []engine.WorkerKey, over func(store.Rows) []engine.WorkerKey,
) ([]engine.WorkerKey, error) {
	all := engine.QueueKey{Namespace: keys[0].Namespace}
	needs := store.Keys{Workers: keys}
	if ws.opt.Settings(all).DrainsOneOf(keys) {
		needs.Queues = []engine.QueueKey{all}
	}
	return change.Commit[[]engine.WorkerKey](ctx, ws.store, store.Change{
		Needs: needs,
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			w := store.Writes{DropWorkers: over(rows)}
			w.Answer = w.DropWorkers
			if q := rows.Queue(all); len(needs.Queues) > 0 && q.DrainsOneOf(w.DropWorkers) {
				w.Queues = []engine.Queue{q.Without(w.DropWorkers, now)}
			}
			return w, nil
		},
	})
}

// releaseSessions gives up everything a worker holds.
func (ws *Workers) releaseSessions(ctx context.Context, w engine.WorkerKey, why string) error {
	return ws.stepSessions(ctx, w, func(s *engine.Session) engine.SessionInput {
		return engine.ReleaseSession{SessionHolder: engine.SessionHolder{Worker: w.ID, Epoch: s.Epoch}, Why: why}
	}, func(err error) bool { return protocol.ReasonOf(err) != "" })
}

// stepSessions takes one step on each session that a worker holds. Where over says so of an error, somebody else was
// there first.
func (ws *Workers) stepSessions(
	ctx context.Context, w engine.WorkerKey, step func(*engine.Session) engine.SessionInput, over func(error) bool,
) error {
	held, err := change.SessionsOf(ctx, ws.store, w)
	if err != nil {
		return err
	}
	for i := range held {
		_, err := change.StepSession(ctx, ws.store, ws.dispatch, held[i].Key(), step(&held[i]))
		if err != nil && !over(err) {
			return err
		}
	}
	return nil
}
