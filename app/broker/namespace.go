package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Every request names a namespace, so checking that it exists must cost no statement: results are cached for a while. A
// deletion first marks the namespace's row and then deletes the contents in batches. The mark makes the app reject new
// requests, so that nothing is added to deleted parts.

// namespaceCacheTime is how long a namespace is cached while other apps may delete it.
const namespaceCacheTime = time.Minute

// maxCachedNamespaces limits the cache of namespaces. A full cache is cleared, which costs one read per namespace.
const maxCachedNamespaces = 10_000

// deleteBatchSize is the maximum number of rows that a bulk operation deletes in one transaction.
const deleteBatchSize = 100

// namespaces caches which namespaces exist, so that a request costs no statement. The default namespace always exists.
type namespaces struct {
	mu    sync.Mutex // guards all fields
	until map[string]time.Time

	// registered search attributes of some namespaces; only if no other app can change them
	types map[string]map[string]string
	// number of changes of registrations: a read that began before a change is not cached after it
	changes int
}

// cached reports whether the cache contains the namespace. Entries do not expire in an app that is alone on its
// database, because no other app can delete the namespace.
func (n *namespaces) cached(name string, shared bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	until, ok := n.until[name]
	return ok && (!shared || time.Now().Before(until))
}

func (n *namespaces) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.until == nil || len(n.until) >= maxCachedNamespaces {
		n.until = map[string]time.Time{}
	}
	n.until[name] = time.Now().Add(namespaceCacheTime)
}

// Drop the types of its attributes, too: a new namespace of that name may have others.
func (n *namespaces) drop(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.until, name)
	delete(n.types, name)
	n.changes++
}

// HasNamespace refuses a namespace that does not exist. An app that is alone on its database asks the store once per
// namespace; one of several apps asks once a minute.
func (b *Broker) HasNamespace(ctx context.Context, name string) error {
	name = transaction.NamespaceOrDefault(name)
	if name == store.DefaultNamespace || b.namespaces.cached(name, b.opt.Shared) {
		return nil
	}
	_, err := b.Namespace(ctx, name)
	return err
}

// namespaceNotFound returns the error for an unknown namespace. It names the route that creates a namespace, since
// using one does not create it.
func namespaceNotFound(name string) error {
	return protocol.Refuse(protocol.ReasonNamespaceNotFound, "namespace %s not found", name).
		With("namespace", name).With("remediation", "create it with POST /api/namespaces")
}

// Namespace returns one namespace.
func (b *Broker) Namespace(ctx context.Context, name string) (protocol.NamespaceView, error) {
	var n store.Namespace
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		n, err = r.Namespace(ctx, name)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || n.Leaving {
		return protocol.NamespaceView{}, namespaceNotFound(name)
	}
	if err != nil {
		return protocol.NamespaceView{}, err
	}
	b.namespaces.add(name)
	return b.viewNamespace(n), nil
}

func (b *Broker) viewNamespace(n store.Namespace) protocol.NamespaceView {
	v := protocol.NamespaceView{
		Name: n.Name, Description: n.Description, RetentionDays: n.Retention(), Status: "active", CreatedAt: n.CreatedAt,
		UpdatedAt: n.UpdatedAt, Quotas: b.quotaStates(&n), CodecEndpoint: n.CodecEndpoint,
	}
	if v.UpdatedAt.IsZero() {
		v.UpdatedAt = v.CreatedAt
	}
	return v
}

// Namespaces returns the namespaces that the caller may see, by name.
func (b *Broker) Namespaces(ctx context.Context, visible func(string) bool) ([]protocol.NamespaceView, error) {
	views := []protocol.NamespaceView{}
	err := b.store.View(ctx, func(r store.Reader) error {
		list, err := r.Namespaces(ctx)
		for _, n := range list {
			if visible(n.Name) && !n.Leaving {
				views = append(views, b.viewNamespace(n))
			}
		}
		return err
	})
	return views, err
}

// CreateNamespace creates a namespace; an existing name is rejected.
func (b *Broker) CreateNamespace(ctx context.Context, in protocol.NamespaceRequest) (protocol.NamespaceView, error) {
	if err := protocol.CheckNamespace("name", in.Name); err != nil {
		return protocol.NamespaceView{}, err
	}
	return b.writeNamespace(ctx, in, func(had *store.Namespace, now history.Time) (store.Namespace, error) {
		if had != nil {
			return store.Namespace{}, protocol.Refuse(protocol.ReasonNamespaceExists, "namespace %s already exists", in.Name).
				With("name", in.Name)
		}
		return store.Namespace{Name: in.Name, CreatedAt: now, CountedAt: now}, nil
	})
}

// UpdateNamespace changes the settings that are in the request.
func (b *Broker) UpdateNamespace(ctx context.Context, in protocol.NamespaceRequest) (protocol.NamespaceView, error) {
	return b.writeNamespace(ctx, in, func(had *store.Namespace, _ history.Time) (store.Namespace, error) {
		if had == nil || had.Leaving {
			return store.Namespace{}, namespaceNotFound(in.Name)
		}
		return *had, nil
	})
}

// writeNamespace changes the row of a namespace under its lock, so that concurrent requests do not undo each other.
func (b *Broker) writeNamespace(
	ctx context.Context, in protocol.NamespaceRequest,
	from func(had *store.Namespace, now history.Time) (store.Namespace, error),
) (protocol.NamespaceView, error) {
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.NamespaceView{}, err
	}
	if in.CodecEndpoint != nil {
		if err := protocol.CheckCodecEndpoint("codec_endpoint", *in.CodecEndpoint); err != nil {
			return protocol.NamespaceView{}, err
		}
	}
	n, err := transaction.Commit[store.Namespace](ctx, b.store, store.Transaction{
		Needs: store.Keys{Namespaces: []string{in.Name}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			n, err := from(rows.Namespace(in.Name), history.At(now))
			if err != nil {
				return store.Writes{}, err
			}
			if in.Description != nil {
				n.Description = *in.Description
			}
			if in.RetentionDays != nil {
				n.RetentionDays = *in.RetentionDays
			}
			if in.Quotas != nil {
				n.Own.Set(*in.Quotas)
			}
			if in.CodecEndpoint != nil {
				n.CodecEndpoint = *in.CodecEndpoint
			}
			n.UpdatedAt = history.At(now)
			return store.Writes{Namespaces: []store.Namespace{n}, Answer: n}, nil
		},
	})
	if err != nil {
		return protocol.NamespaceView{}, err
	}
	b.namespaces.invalidate(in.Name)
	b.namespaces.add(in.Name)
	b.store.Quotas().SetOverrides(in.Name, n.Own)
	return b.viewNamespace(n), nil
}

// DeleteNamespace deletes a namespace and everything in it. From its first change on, requests for the namespace are
// refused, and its workers receive the notice that their tasks have ended. After a failure, the same request continues
// where the deletion stopped.
func (b *Broker) DeleteNamespace(ctx context.Context, name string) (protocol.NamespaceRemoval, error) {
	out := protocol.NamespaceRemoval{Name: name, Status: "deleted", Deleted: map[string]int{}}
	if name == store.DefaultNamespace {
		return out, protocol.Refuse(protocol.ReasonNamespaceBuiltIn, "namespace %s is built in and cannot be deleted", name).
			With("name", name)
	}
	if err := b.commitDeletionStep(ctx, name, func(n store.Namespace) store.Writes {
		n.Leaving = true
		return store.Writes{Namespaces: []store.Namespace{n}}
	}); err != nil {
		return out, err
	}
	// From now on this app refuses requests for the namespace; other apps find the mark when they next read its row.
	b.namespaces.drop(name)
	if err := b.dropAllBatchJobs(ctx, name); err != nil {
		return out, err
	}
	if err := b.removePools(ctx, name); err != nil {
		return out, err
	}
	for {
		var c store.Contents
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			// Delete in batches, so that commits of other requests wait for at most one batch. An interrupted deletion
			// continues with the remaining rows.
			c, err = r.Contents(ctx, name, deleteBatchSize)
			return err
		})
		if err != nil {
			return out, err
		}
		if c.Empty() {
			break
		}
		for _, k := range c.Workers {
			b.workers.Remove(k)
		}
		if err := b.deleteContents(ctx, c); err != nil {
			return out, err
		}
		out.Deleted["runs"] += len(c.Runs)
		out.Deleted["worker_sessions"] += len(c.Sessions)
		out.Deleted["workers"] += len(c.Workers)
		out.Deleted["schedules"] += len(c.Schedules)
	}
	err := b.commitDeletionStep(ctx, name, func(store.Namespace) store.Writes {
		return store.Writes{DropNamespaces: []string{name}}
	})
	if err == nil {
		b.store.Quotas().Remove(name)
	}
	return out, err
}

// commitDeletionStep commits one step of the deletion of a namespace.
func (b *Broker) commitDeletionStep(ctx context.Context, name string, step func(store.Namespace) store.Writes) error {
	_, err := b.store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Namespaces: []string{name}},
		Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
			n := rows.Namespace(name)
			if n == nil {
				return store.Writes{}, namespaceNotFound(name)
			}
			return step(*n), nil
		},
	})
	return err
}

// deleteContents removes rows in any state, in one transaction.
func (b *Broker) deleteContents(ctx context.Context, c store.Contents) error {
	_, err := b.store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Runs: c.Runs, Chain: true, Sessions: c.Sessions, Workers: c.Workers, Schedules: c.Schedules},
		Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
			w := store.Writes{DropRuns: c.Runs}
			for _, k := range c.Schedules {
				if s := rows.Schedule(k); s != nil {
					w.Schedules = append(w.Schedules, engine.ScheduleDecision{After: s.Version, Next: s, Delete: true})
				}
			}
			for _, k := range c.Workers {
				if rows.Worker(k) != nil {
					w.DropWorkers = append(w.DropWorkers, k)
				}
			}
			for _, k := range c.Sessions {
				if s := rows.Session(k); s != nil {
					w.Sessions = append(w.Sessions, engine.SessionChange{Session: *s, Delete: true})
				}
			}
			return w, nil
		},
	})
	return err
}

// errAbandoned means that a closed run has abandoned activities, which must end before the run is removed.
var errAbandoned = errors.New("the run has abandoned activities")

// endAbandoned ends the abandoned activities of a closed run before the run is removed, so that their sessions no
// longer count them.
func (b *Broker) endAbandoned(ctx context.Context, run string) error {
	_, err := b.store.Commit(ctx, transaction.UpdateRun("", run, store.Keys{Runs: []string{run}, AllTasks: true},
		engine.EndAbandoned{Why: "run removed"}))
	if engine.IsNotDue(err) { // the activities have already ended
		return nil
	}
	return err
}

// removeRuns removes the closed runs for which may returns true (nil: all) and returns the IDs of the removed runs.
// Each run has its own background transaction, so that other transactions wait for at most one of them.
func (b *Broker) removeRuns(ctx context.Context, ids []string, may func(*engine.Run) bool) ([]string, error) {
	gone := make([]bool, len(ids))
	removing, ctx := errgroup.WithContext(ctx)
	for i, id := range ids {
		removing.Go(func() (err error) {
			remove := store.Transaction{
				Needs: store.Keys{Runs: []string{id}, Chain: true},
				Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
					// The run may have been deleted since it was listed. Open runs must not be deleted.
					r := rows.Run(id)
					if r == nil || r.Status.Open() || may != nil && !may(r) {
						return store.Writes{Answer: false}, nil
					}
					if r.Activities.Len() > 0 {
						return store.Writes{}, errAbandoned
					}
					return store.Writes{DropRuns: []string{id}, Answer: true}, nil
				},
				Background: true,
			}
			if gone[i], err = transaction.Commit[bool](ctx, b.store, remove); errors.Is(err, errAbandoned) {
				if err = b.endAbandoned(ctx, id); err == nil {
					gone[i], err = transaction.Commit[bool](ctx, b.store, remove)
				}
			}
			return err
		})
	}
	err := removing.Wait()
	var went []string
	for i, id := range ids {
		if gone[i] {
			went = append(went, id)
		}
	}
	return went, err
}
