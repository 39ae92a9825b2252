package broker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/quota"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Each app counts in memory the usage of the commits that it makes. Once per second, if there were commits, it adds
// these counts to the rows of the namespaces and reads the totals of all apps. A quota may therefore be exceeded by
// what other apps admit within one second. In exchange, requests need no extra statement, and an idle app sends none.

// These are times of the exchange of usage between apps.
const (
	usageInterval = time.Second     // pause between exchanges
	storeTimeout  = 5 * time.Second // timeout of one exchange
)

// retryAfterSeconds is the Retry-After, in seconds, for requests that must wait until other work ends or data is
// deleted.
const retryAfterSeconds = 30

// quotaRefusal returns the refusal of a client's request, or nil if no quota is exceeded.
func quotaRefusal(namespace string, x *engine.QuotaExceeded) error {
	if x == nil {
		return nil
	}
	e := protocol.Refuse(protocol.ReasonQuotaExceeded,
		"quota %s of namespace %s is exceeded: %d of %d; raise it, or try again when there is room",
		x.Quota, namespace, x.Used, x.Limit).
		With("namespace", namespace).With("quota", x.Quota).With("limit", x.Limit).With("current", x.Used)
	after := retryAfterSeconds
	if x.Quota == protocol.QuotaStarts && x.Limit > 0 {
		after = 1
	}
	return e.With(protocol.RetryAfter, after)
}

// delayLargePayload delays a large payload of a client while other namespaces are active, so that one tenant does not
// fill every commit.
func (b *Broker) delayLargePayload(ctx context.Context, namespace string, bytes int) error {
	wait, ok := b.store.Quotas().Pace(namespace, bytes)
	if !ok {
		return protocol.Refuse(protocol.ReasonOverloaded,
			"too many large payloads of namespace %s wait to be stored; try again", namespace)
	}
	if wait == 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-b.drained: // the app shuts down: store accepted requests without delay
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// countQuotaRefusal counts err if it is a refusal by a quota. It is called once per request, because the committer may
// decide a transaction more than once.
func (b *Broker) countQuotaRefusal(namespace, what string, err error) error {
	var e *protocol.Error
	if errors.As(err, &e) && e.Reason == protocol.ReasonQuotaExceeded {
		q, _ := e.Details["quota"].(protocol.Quota)
		b.store.Quotas().CountRefusal(quota.Refusal{Namespace: namespace, Quota: q, What: what})
	}
	return err
}

// exchangeUsage exchanges usage counts with the other apps until ctx ends, and then stores the remaining counts.
func (b *Broker) exchangeUsage(ctx context.Context) {
	ledger := b.store.Quotas()
	b.readUsage(ctx)
	for {
		select {
		case <-ctx.Done():
			_, _ = b.storeUsage(ctx, ledger.TakeUsage()) // if this fails, a later recount corrects the rows
			return
		case <-ledger.Changed():
		}
		select {
		case <-ctx.Done():
			continue
		case <-time.After(usageInterval):
		}
		rows, err := b.storeUsage(ctx, ledger.TakeUsage())
		if err != nil {
			b.log.Debug().Err(err).Msg("failed to store the usage of namespaces; the next exchange retries")
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			b.releaseHeld(ctx, name)
			if ledger.Uncounted(name, time.Now()) {
				b.recounts.add(name)
			}
		}
	}
}

// readUsage reads the usage of all namespaces when the app starts.
func (b *Broker) readUsage(ctx context.Context) {
	var list []store.Namespace
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		list, err = r.Namespaces(ctx)
		return err
	})
	if err != nil && ctx.Err() == nil {
		store.Warn(&b.log, err).Msg("failed to read the quotas of namespaces; the configured quotas apply until a namespace is used")
	}
	for i := range list {
		b.store.Quotas().Settle(list[i].Name, quotaRow(&list[i]))
		if list[i].CountedAt.IsZero() && list[i].Usage != (engine.Usage{}) {
			b.recounts.add(list[i].Name) // an app that ended had not finished recounting it
		}
		if list[i].Usage.HeldRuns > 0 {
			// make the next exchange read it: with this app's default there may be room for held children
			b.store.Quotas().RequestExchange(list[i].Name)
		}
	}
}

// heldBatchSize is the number of held children that are released per round.
const heldBatchSize = 256

// releaseHeld releases held children that the quotas now admit, oldest first. It is called once a second while children
// are held.
func (b *Broker) releaseHeld(ctx context.Context, name string) {
	ledger := b.store.Quotas()
	for {
		s := ledger.Standing(name, engine.Usage{})
		if s.Usage.HeldRuns <= 0 {
			return
		}
		ledger.RequestExchange(name)
		room := min(s.ChildRoom(), heldBatchSize)
		if room == 0 {
			return
		}
		var ids []string
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			ids, err = r.HeldRuns(ctx, name, int(room))
			return err
		})
		released := 0
		if err == nil {
			released, err = b.releaseChildren(ctx, name, ids)
		}
		if err != nil && ctx.Err() == nil {
			store.Warn(&b.log, err).Str("namespace", name).Msg("failed to release child workflows that a quota holds back")
		}
		if err != nil || released < heldBatchSize {
			return
		}
	}
}

// releaseChildren releases children until a quota is full. Each decision checks the quotas again.
func (b *Broker) releaseChildren(ctx context.Context, namespace string, ids []string) (n int, err error) {
	released := make([]bool, len(ids))
	releasing, ctx := errgroup.WithContext(ctx)
	for i, id := range ids {
		releasing.Go(func() error {
			step := transaction.UpdateRun("", id, store.Keys{Runs: []string{id}}, engine.ReleaseHeld{})
			decide := step.Decide
			step.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
				if rows.Quotas(namespace).NewChild(0) != nil {
					return store.Writes{}, errNoRoom
				}
				return decide(rows, now)
			}
			_, err := b.store.Commit(ctx, step)
			released[i] = err == nil
			if errors.Is(err, errNoRoom) || engine.IsNotDue(err) || protocol.ReasonOf(err) != "" {
				return nil // another app released it, or it has closed
			}
			return err
		})
	}
	err = releasing.Wait()
	for _, did := range released {
		if did {
			n++
		}
	}
	return n, err
}

// errNoRoom means that the quota is full again, so the child stays held.
var errNoRoom = errors.New("no room in the quotas")

func quotaRow(n *store.Namespace) quota.Row {
	return quota.Row{Usage: n.Usage, CountedAt: n.CountedAt.Time, Own: n.Own}
}

// storeUsage adds usage that was taken from the ledger to the rows of the namespaces, in one transaction, passes the
// rows to the ledger and returns them. The end of ctx does not interrupt it: the transaction may be stored even if its
// caller stops waiting, and the last exchange would then add the same usage again.
func (b *Broker) storeUsage(
	ctx context.Context, taken map[string]engine.Usage,
) (map[string]*store.Namespace, error) {
	if len(taken) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	ledger := b.store.Quotas()
	rows, err := b.addUsage(ctx, taken)
	if err != nil {
		ledger.Return(taken)
		if ctx.Err() != nil {
			// the transaction may be stored later; for store.ErrOutcome the store itself marks the usage as uncertain
			ledger.MarkUncertain()
		}
		return nil, err
	}
	for name := range taken {
		if n := rows[name]; n != nil {
			ledger.Settle(name, quotaRow(n))
		} else {
			ledger.Remove(name)
		}
	}
	return rows, nil
}

// addUsage adds usage to the rows of namespaces and returns the rows that exist. It does not write rows whose usage
// stays the same.
func (b *Broker) addUsage(
	ctx context.Context, add map[string]engine.Usage,
) (map[string]*store.Namespace, error) {
	return transaction.Commit[map[string]*store.Namespace](ctx, b.store, store.Transaction{
		Needs: store.Keys{Namespaces: slices.Sorted(maps.Keys(add))}, Background: true,
		Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
			var w store.Writes
			out := map[string]*store.Namespace{}
			for _, name := range slices.Sorted(maps.Keys(add)) {
				row := rows.Namespace(name)
				if row == nil || row.Leaving {
					continue
				}
				n := *row
				n.Usage = n.Usage.Plus(add[name])
				if add[name] != (engine.Usage{}) {
					w.Namespaces = append(w.Namespaces, n)
				}
				out[name] = &n
			}
			w.Answer = out
			return w, nil
		},
	})
}

// quotaStates returns the quotas of a namespace and their usage: its row plus the commits of this app that are not yet
// added to the row.
func (b *Broker) quotaStates(n *store.Namespace) []protocol.QuotaState {
	ledger := b.store.Quotas()
	s := engine.QuotaStanding{
		Limits: ledger.Default().With(n.Own), Usage: n.Usage.Plus(ledger.Position(n.Name).Pending), Rate: ledger.Rate(n.Name),
	}
	states := make([]protocol.QuotaState, 0, len(protocol.Quotas))
	for _, q := range protocol.Quotas {
		state := protocol.QuotaState{Quota: q, From: "setting"}
		state.Used, state.Limit = s.Of(q)
		if *n.Own.Field(q) != nil {
			state.From = "namespace"
		}
		if q == protocol.QuotaOpenRuns {
			state.Held = max(0, s.Usage.HeldRuns)
		}
		states = append(states, state)
	}
	return states
}
