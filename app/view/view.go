// Package view answers what people ask about what is stored: it reads, and never commits. Nothing in it waits for
// anybody or changes what a verb will do, so a page of it may be as slow as it likes without a step of a run being
// slower.
//
// What is here asks nobody but the store. What is known of living workers is the broker's, and so are the views that
// show it.
package view

import (
	"cmp"
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
)

// View reads for people. All methods may be called from any goroutine.
type View struct{ store reads }

// reads is all that a view may do with a store: it has no way to commit.
type reads interface {
	View(ctx context.Context, read func(store.Reader) error) error
	Now(ctx context.Context) (time.Time, error)
}

// New makes a view of a store.
func New(s store.Store) *View { return &View{s} }

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
