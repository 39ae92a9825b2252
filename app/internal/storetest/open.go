// Package storetest is the test suite of every store, with a model for random operations.
package storetest

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
)

// Open opens a store over a database of the test's own, or over the same one again: calls with one name share it. It is
// closed with the test. Shift moves the store's clock.
type Open func(t testing.TB, name string, o Options) store.Store

// Options are what a test says of the store it opens.
type Options struct {
	App      string
	Dispatch store.Dispatcher
	Shift    func() time.Duration
	FewRuns  int // as in sqldb.Options
}

// Suite says how to open a store, and what to expect of it.
type Suite struct {
	Open Open
	// Shared says that two stores can be open on one database.
	Shared bool
	// Statements is the most a batch of 64 completions may send next to BEGIN and COMMIT.
	Statements int64
}
