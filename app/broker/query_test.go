package broker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/querytask"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

type queryResult struct {
	answer protocol.QueryResponse
	err    error
}

// ask sends a query in the background and returns a channel with its result.
func (a *app) ask(workflow, name string) <-chan queryResult {
	done := make(chan queryResult, 1)
	go func() {
		got, err := a.Query(a.t.Context(), protocol.QueryRequest{
			Target: protocol.Target{WorkflowID: workflow}, QueryName: name, Input: []byte(`["k"]`),
		})
		done <- queryResult{got, err}
	}()
	return done
}

func (a *app) reply(t *protocol.Task, attempt int64, v any, failure *protocol.Failure) protocol.CompleteResponse {
	a.t.Helper()
	p, err := payload.Encode(v)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.complete(protocol.CompleteItem{
		Kind: protocol.KindQuery, TaskID: t.Query.TaskID, Owner: t.Query.LeaseOwner, Attempt: attempt, Result: p,
		Failure: failure,
	})
}

func TestAQueryIsAnsweredOnceByAWorkerThatTakesQueries(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("plain")
		a.start("one")
		if got := <-a.ask("one", "state"); protocol.ReasonOf(got.err) != protocol.ReasonQueryWorker {
			t.Fatalf("without a worker that supports queries: %+v", got)
		}
		a.register("w", querytask.CapQueries)
		events := must[protocol.HistoryPage](t)(a.History(
			t.Context(), protocol.HistoryQuery{Target: protocol.Target{WorkflowID: "one"}},
		)).TotalEvents

		waiting := a.ask("one", "state")
		if got := a.poll("plain", protocol.KindQuery, 0); got != nil {
			t.Fatalf("a worker without the capability got %+v", got)
		}
		task := a.poll("w", protocol.KindQuery, 20) // the query may arrive before the poll or after it
		var key string
		if task == nil || task.Query.QueryName != "state" || len(task.Query.Events) != 1 ||
			payload.DecodeArgs(task.Query.QueryArguments, &key) != nil ||
			key != "k" || task.Query.WorkflowArguments.Blob == "" || task.Query.LeaseExpiresAt.IsZero() {
			t.Fatalf("query task: %+v", task)
		}
		if c := a.reply(task, 2, 5, nil); protocol.ReasonOf(c.Err) != protocol.ReasonQueryAttempt {
			t.Fatalf("another attempt: %+v", c)
		}
		if c := a.reply(task, 1, 5, nil); c.Err != nil || c.Outcome != "completed" {
			t.Fatalf("answer: %+v", c)
		}
		if got := <-waiting; got.err != nil || string(got.answer.Result) != "5" || got.answer.ResultEnvelope == nil {
			t.Fatalf("the caller got %+v", got)
		}
		if c := a.reply(task, 1, 6, nil); c.Err == nil {
			t.Fatalf("a second response: %+v", c)
		}

		waiting = a.ask("one", "other")
		task = a.poll("w", protocol.KindQuery, 20)
		if c := a.reply(task, 1, nil, &protocol.Failure{
			Message: "no such query", Reason: "rejected_unknown_query",
		}); c.Err != nil || c.Outcome != "failed" {
			t.Fatalf("failure: %+v", c)
		}
		if got := <-waiting; protocol.ReasonOf(got.err) != protocol.ReasonUnknownQuery {
			t.Fatalf("the caller got %+v", got)
		}
		h := must[protocol.HistoryPage](t)(a.History(
			t.Context(), protocol.HistoryQuery{Target: protocol.Target{WorkflowID: "one"}},
		))
		if h.TotalEvents != events {
			t.Fatalf("%d events after the queries, %d before", h.TotalEvents, events)
		}
	})
}

// A query without a workflow or a worker is refused before its arguments are decoded.
func TestArgumentsOfARefusedQueryAreNotDecoded(t *testing.T) {
	a := newApp(t)
	a.register("plain")
	a.start("one")
	for workflow, want := range map[string]protocol.Reason{
		"one": protocol.ReasonQueryWorker, "none": protocol.ReasonInstanceNotFound,
	} {
		_, err := a.Query(t.Context(), protocol.QueryRequest{
			Target: protocol.Target{WorkflowID: workflow}, QueryName: "state", Input: []byte(`[99999999999999999999]`),
		})
		if got := protocol.ReasonOf(err); got != want {
			t.Errorf("a query of workflow %s with arguments that cannot be encoded: %v, want %s", workflow, err, want)
		}
	}
	a.register("w", querytask.CapQueries)
	_, err := a.Query(t.Context(), protocol.QueryRequest{
		Target: protocol.Target{WorkflowID: "one"}, QueryName: "state", Input: []byte(`[{"n":1e400}]`),
	})
	var e *protocol.Error
	if !errors.As(err, &e) || e.Details["payload_reason"] != "non_finite_float" || e.Fields["input.0.n"] == nil {
		t.Errorf("a query that a worker supports: %v", err)
	}
}

// A waiting poll gets a new query task. A query task whose response was lost is dispatched again. Closed runs can be
// queried.
func TestAQueryTaskThatNeverArrivedGoesToAnother(t *testing.T) {
	a := newApp(t)
	a.register("w", querytask.CapQueries)
	a.start("one")
	if c := a.decide(a.poll("w", protocol.KindWorkflow, 5), done()); c.Err != nil {
		t.Fatal(c.Err)
	}
	polled := make(chan protocol.PollResponse, 1)
	go func() {
		wait := int64(20)
		p, err := a.Poll(
			t.Context(), protocol.PollRequest{WorkerID: "w", Kinds: []protocol.TaskKind{protocol.KindQuery}, Timeout: &wait},
		)
		if err != nil {
			t.Error(err)
		}
		polled <- p
	}()
	waiting := a.ask("one", "state")
	p := <-polled
	if len(p.Tasks) != 1 || p.Tasks[0].Query.RunStatus != "completed" {
		t.Fatalf("poll: %+v", p)
	}
	p.Undo()
	task := a.poll("w", protocol.KindQuery, 20)
	if task == nil || task.Query.TaskID != p.Tasks[0].Query.TaskID || task.Query.Attempt != 2 {
		t.Fatalf("again: %+v", task)
	}
	if c := a.reply(&p.Tasks[0], 1, 1, nil); protocol.ReasonOf(c.Err) != protocol.ReasonQueryAttempt {
		t.Fatalf("the first attempt: %+v", c)
	}
	a.reply(task, 2, "done", nil)
	if got := <-waiting; string(got.answer.Result) != `"done"` {
		t.Fatalf("the caller got %+v", got)
	}
}

// A worker that reads pages gets the first page with the query task and can request the others while it has leased the
// task.
func TestLongHistoryBehindAQueryIsPaged(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w", querytask.CapQueries)
		a.start("one")
		for range 1200 {
			if _, err := a.Signal(t.Context(), protocol.SignalRequest{
				Target: protocol.Target{WorkflowID: "one"}, SignalName: "x",
			}); err != nil {
				t.Fatal(err)
			}
		}
		waiting := a.ask("one", "state")
		wait := int64(20)
		polled, err := a.Poll(
			t.Context(),
			protocol.PollRequest{
				WorkerID: "w", Kinds: []protocol.TaskKind{protocol.KindQuery}, Timeout: &wait, PagedQueries: true,
			},
		)
		if err != nil || len(polled.Tasks) != 1 {
			t.Fatalf("poll: %+v, %v", polled, err)
		}
		q := polled.Tasks[0].Query
		if len(q.Events) != 1000 || q.NextPageToken == nil || q.TotalEvents != 1201 || q.WorkflowArguments.Blob == "" {
			t.Fatalf("first page: %d of %d events, next %v", len(q.Events), q.TotalEvents, q.NextPageToken)
		}
		ask := protocol.HistoryRequest{TaskID: q.TaskID, Owner: q.LeaseOwner, Attempt: q.Attempt, PageToken: *q.NextPageToken}
		page, err := a.HistoryPage(t.Context(), ask)
		if err != nil || len(page.Events) != 201 || page.Events[0].Seq != 1001 || page.NextPageToken != nil {
			t.Errorf("second page: %d events, next %v, %v", len(page.Events), page.NextPageToken, err)
		}
		for want, change := range map[protocol.Reason]func(*protocol.HistoryRequest){
			protocol.ReasonLeaseOwnerMismatch: func(r *protocol.HistoryRequest) { r.Owner = "other" },
			protocol.ReasonQueryAttempt:       func(r *protocol.HistoryRequest) { r.Attempt++ },
			protocol.ReasonTaskNotFound:       func(r *protocol.HistoryRequest) { r.TaskID = "none" },
			protocol.ReasonInvalidPageToken:   func(r *protocol.HistoryRequest) { r.PageToken = "?" },
		} {
			bad := ask
			change(&bad)
			if _, err := a.HistoryPage(t.Context(), bad); protocol.ReasonOf(err) != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		a.reply(&polled.Tasks[0], q.Attempt, "done", nil)
		if got := <-waiting; got.err != nil {
			t.Errorf("got %v", got.err)
		}
		if _, err := a.HistoryPage(t.Context(), ask); err == nil {
			t.Error("the history of an ended query can still be read")
		}
	})
}

// The worker registers at one app and deregisters; a query at another app that knows the worker is then refused
// immediately.
func TestAQueryIsRefusedAfterTheLastWorkerLeftThroughAnotherApp(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := twoApps(t, database)
		a.register("flow")
		b.register("w", querytask.CapQueries)
		a.start("one")
		query := func(wait time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := a.Query(ctx, protocol.QueryRequest{Target: protocol.Target{WorkflowID: "one"}, QueryName: "state"})
			return err
		}
		if err := query(50 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("with a worker that does not poll: %v", err)
		}
		must[protocol.DeregisterResponse](t)(b.Deregister(t.Context(), protocol.DeregisterRequest{WorkerID: "w"}))
		comes(t, "the refusal of a query", func() bool {
			return protocol.ReasonOf(query(50*time.Millisecond)) == protocol.ReasonQueryWorker
		})
	})
}

// A query that waits when the last worker deregisters fails immediately, not after its timeout.
func TestWaitingQueryFailsWhenTheLastWorkerLeaves(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := twoApps(t, database)
		a.register("flow")
		b.register("w", querytask.CapQueries)
		a.start("one")
		waiting := a.ask("one", "state")
		comes(t, "the query", func() bool {
			q, err := a.Queue(t.Context(), "", "default")
			return err == nil && q.Stats.Query.Ready == 1
		})
		must[protocol.DeregisterResponse](t)(b.Deregister(t.Context(), protocol.DeregisterRequest{WorkerID: "w"}))
		if got := <-waiting; protocol.ReasonOf(got.err) != protocol.ReasonQueryWorker {
			t.Errorf("got %v, want %s", got.err, protocol.ReasonQueryWorker)
		}
	})
}
