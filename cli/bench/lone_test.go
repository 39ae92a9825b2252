package bench

import (
	"testing"

	"github.com/rs/zerolog"
)

// What a workflow of five activities, one after another and alone on its server, costs the store may only fall.
// It is 7, 29 and 33, one commit for the start, one for the first task and one for each result with its turn; a busy
// machine adds a task that finds no poll, now and then, and the worker's heartbeats come on top.
func TestALoneWorkflowCostsTheStoreNoMoreThanItDid(t *testing.T) {
	const ops = 40
	n, err := openNode(t.Context(), nodeOptions{store: "sqlite", worker: "in-process", log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := together(1)(t.Context(), n, 5); err != nil { // what is written once
		t.Fatal(err)
	}
	before := n.app.Store().Stats()
	if _, err := together(1)(t.Context(), n, ops); err != nil {
		t.Fatal(err)
	}
	now := n.app.Store().Stats()
	for _, c := range []struct {
		what   string
		got    int64
		atMost float64
	}{
		{"commits", now.Commits - before.Commits, 8},
		{"statements", now.Statements - before.Statements, 33},
		{"rows", now.Rows - before.Rows, 37},
		{"candidates of claims", now.Candidates - before.Candidates, 1},
	} {
		each := float64(c.got) / ops
		t.Logf("%.2f %s", each, c.what)
		if each > c.atMost {
			t.Errorf("%.2f %s a workflow, want at most %v", each, c.what, c.atMost)
		}
	}
}
