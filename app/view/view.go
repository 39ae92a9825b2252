// Package view answers what people ask about what is stored: it reads, and never commits. Nothing in it waits for
// anybody or changes what a verb will do, so a page of it may be as slow as it likes without a step of a run being
// slower.
//
// What is known of living workers is the broker's: a view asks for it as one value, what the tasks of a namespace wait
// among, and the engine says the rest.
package view

import (
	"cmp"
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// View reads for people. All methods may be called from any goroutine.
type View struct {
	store   reads
	known   Known
	changes Changes
	shared  bool
}

// reads is all that a view may do with a store: it has no way to commit.
type reads interface {
	View(ctx context.Context, read func(store.Reader) error) error
	Now(ctx context.Context) (time.Time, error)
}

// Known is what an app knows beside what is stored.
type Known interface {
	// Surroundings is what the tasks of a namespace wait among; with sessions, what workers hold is counted as well.
	Surroundings(
		ctx context.Context, r store.Reader, namespace string, sessions bool, now time.Time,
	) (*engine.Surroundings, error)
	// AttributeTypes are the registered search attributes of a namespace.
	AttributeTypes(ctx context.Context, namespace string) (map[string]string, error)
	// Served are the queues that registered workers serve, each once or more.
	Served() []engine.QueueKey
	// Drained is closed when the app drains: then nobody is kept waiting.
	Drained() <-chan struct{}
}

// Changes tells of commits.
type Changes interface {
	WatchRun(run string) (changed <-chan struct{}, stop func())
}

// New makes a view of a store, which other apps write to as well when it is shared.
func New(s store.Store, k Known, c Changes, shared bool) *View {
	return &View{store: s, known: k, changes: c, shared: shared}
}

// Audits lists operators' actions, newest first.
func (v *View) Audits(ctx context.Context, ns string, limit int) (list []store.Audit, err error) {
	err = v.store.View(ctx, func(r store.Reader) error {
		list, err = r.Audits(ctx, cmp.Or(ns, store.DefaultNamespace), PageSize(limit, 100, 1000))
		return err
	})
	return list, err
}

// PageSize is how many items a page has: def when nothing is asked for, and never more than most.
func PageSize(n, def, most int) int {
	if n <= 0 {
		return def
	}
	return min(n, most)
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
