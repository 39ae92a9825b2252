package broker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The settings of a pool are in the row of the queue in which its borrowers wait; package fleet keeps its members.

// SetPool creates a pool or replaces its settings.
func (b *Broker) SetPool(ctx context.Context, in protocol.PoolRequest) (protocol.PoolView, error) {
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	if err := checkPool(&in); err != nil {
		return protocol.PoolView{}, err
	}
	err := b.decidePool(ctx, in, "session_pool.set", engine.SetPool{Pool: engine.Pool{
		Definition: in.Definition, Queue: in.Queue, Size: in.Size, Warm: *in.Warm, MaxUses: in.MaxUses,
	}}, fmt.Sprintf("definition %s, queue %s, size %d, warm %d, max uses %d",
		in.Definition, in.Queue, in.Size, *in.Warm, in.MaxUses))
	if err != nil {
		return protocol.PoolView{}, err
	}
	return b.view.Pool(ctx, in.Namespace, in.Name)
}

// checkPool checks the request and sets the default of Warm.
func checkPool(in *protocol.PoolRequest) error {
	if in.Warm == nil {
		in.Warm = &in.Size
	}
	if err := protocol.CheckPoolName(in.Name, "name"); err != nil {
		return err
	}
	for _, n := range []struct{ field, text string }{{"definition", in.Definition}, {"task_queue", in.Queue}} {
		if strings.TrimSpace(n.text) == "" || len(n.text) > protocol.MaxName {
			return protocol.Invalid(n.field, "must be 1 to %d bytes and not only white space", protocol.MaxName)
		}
		if err := protocol.CheckName(n.field, n.text); err != nil {
			return err
		}
	}
	switch {
	case in.Size < 1 || in.Size > protocol.MaxPoolSize:
		return protocol.Invalid("size", "must be between 1 and %d", protocol.MaxPoolSize)
	case *in.Warm < 0 || *in.Warm > in.Size:
		return protocol.Invalid("warm", "must be between 0 and size")
	case in.MaxUses < 0 || in.MaxUses > maxBudget:
		return protocol.Invalid("max_uses", "must be between 0 and %d", maxBudget)
	}
	return nil
}

// DeletePool deletes a pool: its free members end, and loans continue.
func (b *Broker) DeletePool(ctx context.Context, in protocol.PoolRequest) (protocol.PoolDeleted, error) {
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	err := b.decidePool(ctx, in, "session_pool.delete", engine.DeletePool{}, "")
	return protocol.PoolDeleted{Name: in.Name, Outcome: "deleted"}, err
}

// removePools removes the pools of a namespace, so that no app adds members while the deletion of the namespace removes
// its sessions.
func (b *Broker) removePools(ctx context.Context, namespace string) error {
	var rows []engine.Queue
	if err := b.store.View(ctx, func(r store.Reader) (err error) {
		rows, err = r.QueueRows(ctx, namespace)
		return err
	}); err != nil {
		return err
	}
	for i := range rows {
		if rows[i].Pool == nil {
			continue
		}
		key := rows[i].Key()
		if _, err := b.store.Commit(ctx, store.Transaction{
			Needs: store.Keys{Queues: []engine.QueueKey{key}},
			Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
				q, err := engine.DecideQueue(rows.Queue(key), key, engine.RemovePool{}, now)
				return store.Writes{Queues: []engine.Queue{q}}, err
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

func (b *Broker) decidePool(
	ctx context.Context, in protocol.PoolRequest, action string, change engine.QueueChange, detail string,
) error {
	key := engine.QueueKey{Namespace: in.Namespace, Name: engine.PoolQueue(in.Name)}
	_, err := b.store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Queues: []engine.QueueKey{key}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			q, err := engine.DecideQueue(rows.Queue(key), key, change, now)
			return store.Writes{Queues: []engine.Queue{q}, Audit: []store.Audit{{
				At: history.At(now), Identity: in.Identity, Action: action, Namespace: in.Namespace, Target: in.Name,
				Detail: detail,
			}}}, err
		},
	})
	if err == nil {
		b.fleet.PoolsChanged()
	}
	return err
}

// concernsPools reports whether the commands of an outcome may concern pools of the namespace: a step asks for a
// member, a session is returned, or a run that may have borrowed a member closes. Other runs do not make the app read
// the pools.
func (b *Broker) concernsPools(in *protocol.CompleteItem, run *engine.Head) bool {
	commands := in.Commands
	if in.Eager != nil {
		commands = in.Eager.Commands
	}
	for i := range commands {
		if c := &commands[i]; c.Borrow != nil || c.Type == protocol.EndSession ||
			c.Type.Terminal() && run.HasSessions {
			return b.fleet.HasPools(in.Namespace)
		}
	}
	return false
}
