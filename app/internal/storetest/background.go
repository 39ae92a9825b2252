package storetest

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
)

// testBackground checks that a batch contains at most one background change for each other change, and that background
// changes have separate batches only if no other change waits.
func testBackground(t *testing.T, s Suite) {
	w := s.New(t)
	const ahead, behind = 10, 100
	type batch struct{ ahead, behind int }
	batches := map[time.Time]*batch{} // batches by their time; only the committer writes
	change := func(background bool) store.Transaction {
		return store.Transaction{Background: background, Decide: func(_ store.Rows, now time.Time) (store.Writes, error) {
			if batches[now] == nil {
				batches[now] = &batch{}
			}
			if background {
				batches[now].behind++
			} else {
				batches[now].ahead++
			}
			return store.Writes{Audit: []store.Audit{{Action: "test", Namespace: Namespace}}}, nil
		}}
	}
	var changes []store.Transaction
	for range behind {
		changes = append(changes, change(true))
	}
	for range ahead {
		changes = append(changes, change(false))
	}
	for _, err := range w.together(changes...) {
		if err != nil {
			t.Error(err)
		}
	}
	met, all := 0, 0
	for _, b := range batches {
		all += b.behind
		if b.ahead > 0 {
			met++
		}
		if b.ahead > 0 && b.behind > b.ahead || b.behind > 32 {
			t.Errorf("a batch has %d changes that somebody waits for, and %d that nobody does", b.ahead, b.behind)
		}
	}
	if met != 1 || all != behind {
		t.Errorf("%d of %d changes in the background; what was waited for took %d batches, want 1", all, behind, met)
	}
}
