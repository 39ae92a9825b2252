package link_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker gives up an attempt whose lease it could not renew, and reconnects before the lease expires at the app. The
// app does not treat the attempt as one that never arrived: the attempt ends with its lease, is recorded as lost, and
// counts.
func TestAbandonedAttemptCountsAfterAReconnect(t *testing.T) {
	cables(t, func(t *testing.T, c *cable, to func(string) link.Carrier) {
		t.Parallel()
		a := apptest.Start(t, apptest.Options{})
		var registrations atomic.Int32
		l := start(t, link.Options{Carrier: to(a.URL()), Register: func() protocol.RegisterRequest {
			registrations.Add(1)
			return protocol.RegisterRequest{
				ActivityTypes: []string{"work"}, TaskQueues: []string{"default"}, AttemptLease: 2,
			}
		}})
		l.ready()
		run, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{ActivityType: "work"})
		if err != nil {
			t.Fatal(err)
		}
		poll := func() *protocol.ActivityTask {
			t.Helper()
			for end := time.Now().Add(ceiling); time.Now().Before(end); {
				one := int64(1)
				got, err := l.Poll(t.Context(), protocol.PollRequest{Timeout: &one})
				if err == nil && len(got.Tasks) > 0 {
					return got.Tasks[0].Activity
				}
			}
			t.Fatal("the poll returned no task")
			return nil
		}
		first := poll()
		item := protocol.CompleteItem{
			Kind: protocol.KindActivity, TaskID: first.TaskID, AttemptID: first.AttemptID, Owner: "w",
		}
		l.Abandon(item)
		before := registrations.Load()
		c.cut(true)
		eventually(t, "the link notices the cut", func() bool { return !l.Connected() })
		c.cut(false)
		eventually(t, "the worker registers again", func() bool { return registrations.Load() > before })
		second := poll()
		if second.AttemptID == first.AttemptID || second.Attempt != 2 {
			t.Fatalf("got %s, attempt %d, want attempt 2", second.AttemptID, second.Attempt)
		}
		item.AttemptID = second.AttemptID
		if out, err := l.Complete(t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{item}}); err != nil ||
			!out.Items[0].Recorded {
			t.Fatalf("%+v, %v", out, err)
		}
		page, err := a.View().History(t.Context(), protocol.HistoryQuery{
			Target: protocol.Target{WorkflowID: run.WorkflowID, RunID: run.RunID},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			if d, ok := e.Data.(*history.ActivityCompleted); ok {
				if len(d.Attempt.Lost) != 1 || d.Attempt.Lost[0].Delivery != 1 {
					t.Errorf("lost deliveries: %+v, want delivery 1", d.Attempt.Lost)
				}
				return
			}
		}
		t.Errorf("no activity completed in %+v", page.Events)
	})
}
