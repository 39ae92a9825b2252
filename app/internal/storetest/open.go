// Package storetest is the test suite of every store, with a model for random operations.
package storetest

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
)

// Open opens a store over a database of the test, or over the same one again: calls with the same name share it. It is
// closed with the test. Shift moves the store's clock.
type Open func(t testing.TB, name string, o Options) store.Store

// Options are a test's options for opening a store.
type Options struct {
	App      string
	Dispatch store.Dispatcher
	Shift    func() time.Duration
	FewRuns  int // as in sqldb.Options
}

// Suite contains the function that opens a store, and its expected properties.
type Suite struct {
	Open Open
	// Shared: two stores can be open on one database.
	Shared bool
	// Statements is the maximum number of statements of a batch of 64 completions, without BEGIN and COMMIT.
	Statements int64
}
