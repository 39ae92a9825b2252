package view

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Pools lists the pools of a namespace, without their members and waiters.
func (v *View) Pools(ctx context.Context, namespace string) (protocol.PoolList, error) {
	out := protocol.PoolList{Namespace: namespace, Pools: []protocol.PoolView{}}
	err := v.eachPool(ctx, namespace, func(p protocol.PoolView) {
		p.Members, p.Waiters = []protocol.PoolMember{}, []protocol.PoolWaiter{}
		out.Pools = append(out.Pools, p)
	})
	slices.SortFunc(out.Pools, func(a, b protocol.PoolView) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

// Pool returns a pool with its members and waiters.
func (v *View) Pool(ctx context.Context, namespace, name string) (out protocol.PoolView, err error) {
	err = v.eachPool(ctx, namespace, func(p protocol.PoolView) {
		if p.Name == name {
			out = p
		}
	})
	if err == nil && out.Name == "" {
		err = protocol.Refuse(protocol.ReasonPoolNotFound, "pool %s not found", name)
	}
	return out, err
}

func (v *View) eachPool(ctx context.Context, namespace string, each func(protocol.PoolView)) error {
	now, err := v.store.Now(ctx)
	if err != nil {
		return err
	}
	return v.store.View(ctx, func(r store.Reader) error {
		rows, err := r.QueueRows(ctx, namespace)
		if err != nil {
			return err
		}
		for i := range rows {
			q := &rows[i]
			if q.Pool == nil || q.Pool.Deleted {
				continue
			}
			members, err := r.SessionsByID(ctx, namespace, q.Pool.Members)
			if err != nil {
				return err
			}
			waiters, err := r.PoolWaiters(ctx, q.Key(), protocol.MaxPoolSize)
			if err != nil {
				return err
			}
			each(poolView(q, members, waiters, now))
		}
		return nil
	})
}

func poolView(
	q *engine.Queue, members []engine.Session, waiters []store.PoolWaiter, now time.Time,
) protocol.PoolView {
	p := q.Pool
	out := protocol.PoolView{
		Name: q.PoolOf(), Namespace: q.Namespace, Definition: p.Definition, Queue: p.Queue, Size: p.Size, Warm: p.Warm,
		MaxUses: p.MaxUses, CreatedAt: p.CreatedAt, Waiting: len(waiters), Members: []protocol.PoolMember{},
		Waiters: []protocol.PoolWaiter{},
	}
	for i := range members {
		s := &members[i]
		if s.Terminal {
			continue
		}
		m := protocol.PoolMember{SessionID: s.ID, WorkerID: s.Owner, Uses: s.Loans, State: "unowned"}
		switch {
		case s.Loan != nil:
			m.State, m.WorkflowID, m.LentAt, m.LoanExpiresAt = "lent", s.WorkflowID, s.Loan.Since, s.Loan.Until
			out.Lent++
		case s.Lendable(now):
			m.State = "free"
			out.Free++
		case s.Preparing(now) != nil && !s.Held(now):
			m.State, m.WorkerID = "setting_up", s.Prepare.Worker
			out.SettingUp++
		default:
			out.Unowned++
		}
		out.Members = append(out.Members, m)
	}
	for i, w := range waiters[:min(len(waiters), protocol.MaxPoolWaiters)] {
		out.Waiters = append(out.Waiters, protocol.PoolWaiter{
			Position: i + 1, WorkflowID: w.WorkflowID, RunID: w.Run, Sequence: w.Seq, Priority: w.Priority,
			FairnessKey: w.FairnessKey, Since: w.Since,
		})
	}
	return out
}
