package view

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Counts for people and for programs differ in cost. People need only "10k+", which an index returns quickly for any
// number of runs; the contract's metrics are exact and must count. Both are read once for all concurrent callers, so
// many dashboards cost as much as one.

// countedUpTo is the largest count that the dashboard shows exactly; countedUpTo+1 means "more".
const countedUpTo = 10_000

// RunCounts counts the runs of a namespace by status for display: up to 10,000 per status, read once for all concurrent
// callers.
func (v *View) RunCounts(ctx context.Context, ns string) (protocol.RunCounts, error) {
	ns = transaction.NamespaceOrDefault(ns)
	return v.runCounts.get(ctx, ns, v.opt.Dispatch.Changes, func(ctx context.Context) (c protocol.RunCounts, err error) {
		c.UpTo = countedUpTo
		err = v.store.View(ctx, func(r store.Reader) error {
			if c.Runs, err = countsUpTo(ctx, r, ns); err == nil {
				c.Stuck, err = r.StuckUpTo(ctx, ns, countedUpTo+1)
			}
			return err
		})
		return c, err
	})
}

func countsUpTo(ctx context.Context, r store.Reader, ns string) (map[string]int, error) {
	counts, err := r.RunCountsUpTo(ctx, ns, countedUpTo+1)
	return texts(counts), err
}

func texts[S ~string](counts map[S]int) map[string]int {
	all := make(map[string]int, len(counts))
	for s, n := range counts {
		all[string(s)] = n
	}
	return all
}

// Overview returns a snapshot of this app and its namespace for display. It is read once for all concurrent callers, at
// most once per second; runs, sessions and waiting tasks are counted as in RunCounts.
func (v *View) Overview(ctx context.Context, ns string) (protocol.Overview, error) {
	ns = transaction.NamespaceOrDefault(ns)
	o, err := v.overviews.get(ctx, ns, v.opt.Dispatch.Changes, func(ctx context.Context) (protocol.Overview, error) {
		return v.overviewAt(ctx, ns, func(ctx context.Context, r store.Reader) (c counts, err error) {
			if c.runs, err = countsUpTo(ctx, r, ns); err != nil {
				return c, err
			}
			if c.sessions, err = r.SessionCountsUpTo(ctx, ns, countedUpTo+1); err != nil {
				return c, err
			}
			c.queues, err = r.QueuesUpTo(ctx, ns, countedUpTo+1)
			return c, err
		})
	})
	o.Uptime, o.UpTo, o.ClockJump = int64(time.Since(v.started).Seconds()), countedUpTo, v.clockJump()
	return o, err
}

// ExactOverview is like Overview, with exact counts. The cost of counting grows with the number of runs, so concurrent
// callers share one count.
func (v *View) ExactOverview(ctx context.Context, ns string) (protocol.Overview, error) {
	ns = transaction.NamespaceOrDefault(ns)
	o, err := v.exactOverviews.get(ctx, ns, v.opt.Dispatch.Changes, func(ctx context.Context) (protocol.Overview, error) {
		queueCounts, err := v.queueCounts(ctx, ns)
		if err != nil {
			return protocol.Overview{}, err
		}
		return v.overviewAt(ctx, ns, func(ctx context.Context, r store.Reader) (counts, error) {
			runs, err := r.RunCounts(ctx, ns)
			if err != nil {
				return counts{}, err
			}
			sessions, err := r.SessionCounts(ctx, ns)
			return counts{texts(runs), sessions, queueCounts.stats}, err
		})
	})
	o.Uptime, o.ClockJump = int64(time.Since(v.started).Seconds()), v.clockJump()
	return o, err
}

// counts holds the numbers of an overview: runs and sessions by status, and tasks.
type counts struct {
	runs     map[string]int
	sessions map[protocol.SessionStatus]int
	queues   []store.QueueStats
}

func (v *View) overviewAt(
	ctx context.Context, ns string, count func(context.Context, store.Reader) (counts, error),
) (protocol.Overview, error) {
	o := protocol.Overview{
		Release: v.opt.Release, Unreadable: v.opt.Release == release.Unreadable, App: v.opt.App, Store: "sqlite",
		Uptime: int64(time.Since(v.started).Seconds()), Counts: map[string]map[string]int{}, Queues: []protocol.QueueView{},
	}
	if v.opt.Shared {
		o.Store = "postgres"
	}
	workers, err := v.Workers(ctx, ns, "", "")
	if err != nil {
		return o, err
	}
	o.Counts["workers"] = map[string]int{}
	for _, w := range workers {
		o.Counts["workers"][string(w.Status)]++
	}
	err = v.store.View(ctx, func(r store.Reader) error {
		c, err := count(ctx, r)
		o.Counts["runs"], o.Counts["sessions"] = c.runs, texts(c.sessions)
		for _, q := range c.queues {
			o.Queues = append(o.Queues, protocol.QueueView{
				Namespace: q.Namespace, Queue: q.Queue, Kind: q.Kind, Ready: q.Ready, Leased: q.Leased, Delayed: q.Delayed,
				OldestReady: q.OldestReady,
			})
		}
		return err
	})
	return o, err
}
