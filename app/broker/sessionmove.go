package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An operator's request about a session uses the same decisions as the requests of its owner. An owner that does not
// know of the change is rejected at its next request.

// OperateSession closes a session at an operator's request, moves it to another worker (migrate), or removes a session
// that has ended (forget). All of these are audited.
func (b *Broker) OperateSession(ctx context.Context, in protocol.SessionOperation) (protocol.SessionView, error) {
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.SessionView{}, err
	}
	key := engine.SessionKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.SessionID}
	var operation engine.SessionInput
	detail := in.Reason
	switch in.Verb {
	case "close":
		operation = engine.CloseSession{Why: in.Reason, Operator: in.Identity}
	case "migrate":
		// Select the worker before the transaction, from the current membership. The session is reserved for this
		// worker for a limited time; then any worker may acquire it.
		to, err := b.successor(ctx, key, in.To)
		if err != nil {
			return protocol.SessionView{}, err
		}
		operation = engine.MigrateSession{Operator: in.Identity, Why: in.Reason, For: to, Force: in.Force}
	case "forget":
		operation = engine.ForgetSession{Operator: in.Identity, Why: in.Reason, Force: in.Force}
	default:
		return protocol.SessionView{}, protocol.Invalid("verb", "must be close, migrate or forget")
	}
	if in.Force && in.Verb != "close" { // close ignores force
		detail += " (forced)"
	}
	c, err := transaction.Commit[engine.SessionChange](ctx, b.store, store.Transaction{
		Needs: store.Keys{Sessions: []engine.SessionKey{key}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			// Store reason and identity, so that the owner of the moved session can report them.
			s := rows.Session(key)
			if s == nil {
				return store.Writes{}, protocol.Refuse(protocol.ReasonWorkerSessionNotFound, "session %s not found", in.SessionID)
			}
			c, err := engine.DecideSession(s, operation, now)
			return store.Writes{
				Sessions: []engine.SessionChange{c}, Answer: c,
				Audit: []store.Audit{{
					At: history.At(now), Identity: in.Identity, Action: "session." + in.Verb, Namespace: key.Namespace,
					Target: in.SessionID, Detail: detail,
				}},
			}, err
		},
	})
	if err != nil {
		return protocol.SessionView{}, err
	}
	// The previous owner can now hold another session, and no commit notifies the tasks that wait for it.
	transaction.Recheck(b.dispatch, transaction.FreedOwners([]engine.SessionChange{c}))
	if c.Delete {
		now, err := b.store.Now(ctx)
		return b.view.Written(c.Session, now), err
	}
	return b.view.Session(ctx, in.Namespace, in.SessionID)
}

// successor returns the worker to which a session moves: the named worker, or else the eligible worker with the fewest
// sessions. It returns "" if any worker may acquire the session, including the previous owner.
func (b *Broker) successor(ctx context.Context, key engine.SessionKey, named string) (string, error) {
	workers, err := b.view.Workers(ctx, key.Namespace, "", string(protocol.WorkerActive))
	if err != nil {
		return "", err
	}
	if named != "" {
		if !slices.ContainsFunc(workers, func(w protocol.WorkerView) bool {
			return w.WorkerID == named && w.MaxSessions > 0
		}) {
			return "", protocol.Refuse(
				protocol.ReasonWorkerNotFound, "worker %s is not active or does not accept sessions", named,
			)
		}
		return named, nil
	}
	var s engine.Session
	err = b.store.View(ctx, func(r store.Reader) (err error) {
		s, err = r.Session(ctx, key)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return "", nil // the decision returns the error
	} else if err != nil {
		return "", fmt.Errorf("session %s: %w", key.ID, err)
	}
	var ofOwner []string
	for _, w := range workers {
		if w.WorkerID == s.Owner {
			ofOwner = w.TaskQueues
		}
	}
	queues := s.QueuesWith(ofOwner)
	var best *engine.Lessee
	for i, w := range workers {
		l := lesseeOf(&workers[i])
		fits := w.WorkerID != s.Owner && w.Sessions < w.MaxSessions &&
			len(engine.Missing(s.NeededCapabilities(), w.Capabilities)) == 0 && s.FitsAt(l.Worker, l.Used) &&
			len(engine.Missing(queues, w.TaskQueues)) == 0 && (s.ReleasePolicy != engine.PolicyFinish || w.Release == s.Release)
		if fits && (best == nil || s.RoomierFor(&l, best)) {
			best = &l
		}
	}
	// No other worker can acquire the session now. Release it anyway; it waits for its next acquisition.
	if best == nil {
		return "", nil
	}
	return best.Worker.ID, nil
}
