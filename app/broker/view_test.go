package broker_test

import (
	"context"
	"testing"

	sojourn "github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Each history response contains the position for the next request, also if it contains no new events.
func TestHistoryCanBeFollowedToTheEndOfTheRun(t *testing.T) {
	a := newApp(t)
	a.register("w")
	run := a.start("flow")
	q := protocol.HistoryQuery{Target: protocol.Target{WorkflowID: "flow", RunID: run.RunID}, Wait: true}
	page := must[protocol.HistoryPage](t)(a.History(t.Context(), q))
	if len(page.Events) != 1 || page.NextPageToken == nil {
		t.Fatalf("of an open run: %d events, token %v", len(page.Events), page.NextPageToken)
	}
	q.PageToken = *page.NextPageToken
	next := make(chan protocol.HistoryPage, 1)
	go func() {
		defer close(next)
		if page, err := a.History(t.Context(), q); err != nil {
			t.Error(err)
		} else {
			next <- page
		}
	}()
	a.decide(a.poll("w", protocol.KindWorkflow, 5), done())
	if page = <-next; len(page.Events) != 1 || page.NextPageToken != nil {
		t.Errorf("after the end: %d events, token %v", len(page.Events), page.NextPageToken)
	}
	q.PageToken, q.Wait = "", false
	if page = must[protocol.HistoryPage](t)(a.History(t.Context(), q)); len(page.Events) != 2 ||
		page.NextPageToken != nil {
		t.Errorf("without waiting: %d events, token %v", len(page.Events), page.NextPageToken)
	}
}

// slowStore is a fake store that calls a function between the reads of a workflow ID's row and of its run.
type slowStore struct {
	store.Store
	between *func()
}

func (s slowStore) View(ctx context.Context, fn func(store.Reader) error) error {
	return s.Store.View(ctx, func(r store.Reader) error { return fn(slowReader{r, s.between}) })
}

type slowReader struct {
	store.Reader
	between *func()
}

func (r slowReader) Workflow(ctx context.Context, k engine.WorkflowKey) (engine.Workflow, error) {
	f, err := r.Reader.Workflow(ctx, k)
	if do := *r.between; do != nil {
		*r.between = nil
		do()
	}
	return f, err
}

// If a run continues as new during a request, its workflow has not closed: a caller that waits for the result must not
// get the empty result of that run.
func TestDescribeDuringContinueAsNewShowsTheNewRun(t *testing.T) {
	var between func()
	started := apptest.Start(t, apptest.Options{Change: func(o *sojourn.Options) {
		open := o.Open
		o.Open = func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
			s, err := open(ctx, id, d)
			return slowStore{s, &between}, err
		}
	}})
	a := &app{started.Broker(), started.View(), started.Store(), t}
	a.register("w")
	for i, by := range []protocol.Target{{WorkflowID: "by-id"}, {WorkflowID: "by-both"}} {
		first := a.start(by.WorkflowID)
		if i > 0 {
			by.RunID = first.RunID
		}
		task := a.poll("w", protocol.KindWorkflow, 5)
		between = func() {
			if c := a.decide(task, protocol.Command{Type: protocol.ContinueAsNew}); c.Err != nil {
				t.Error(c.Err)
			}
		}
		v := must[protocol.RunView](t)(a.Describe(t.Context(), by))
		if old := v.RunID == first.RunID; old != (by.RunID != "") || v.Terminal != old || v.Current == old ||
			v.RunCount != 2 {
			t.Errorf(
				"%s: got run %d of %d as %s, current run %v", by.WorkflowID, v.RunNumber, v.RunCount, v.Status, v.Current,
			)
		}
		next := a.poll("w", protocol.KindWorkflow, 5)
		between = func() {
			if c := a.decide(next, protocol.Command{Type: protocol.ContinueAsNew}); c.Err != nil {
				t.Error(c.Err)
			}
		}
		all := must[[]protocol.RunView](t)(a.Runs(t.Context(), protocol.Target{WorkflowID: by.WorkflowID}))
		if len(all) != 3 {
			t.Errorf("%s: %d runs are listed", by.WorkflowID, len(all))
		}
		for k, v := range all {
			if v.RunCount != 3 || v.Current != (k == 2) || v.Terminal == v.Current {
				t.Errorf(
					"%s: listed run %d of %d as %s, the current one %v", by.WorkflowID, v.RunNumber, v.RunCount, v.Status, v.Current,
				)
			}
		}
		a.decide(a.poll("w", protocol.KindWorkflow, 5), done())
	}
}
