package broker_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Whoever waits for news of a run must learn from each answer where to wait next, also from the one that has caught up.
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
	if page = must[protocol.HistoryPage](t)(a.History(t.Context(), q)); len(page.Events) != 2 || page.NextPageToken != nil {
		t.Errorf("without waiting: %d events, token %v", len(page.Events), page.NextPageToken)
	}
}
