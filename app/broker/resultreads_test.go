package broker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// countedReads is a store that counts the reads of a view.
type countedReads struct {
	store.Store
	n atomic.Int64
}

func (c *countedReads) View(ctx context.Context, read func(store.Reader) error) error {
	c.n.Add(1)
	return c.Store.View(ctx, read)
}

// resultWait is a request that waits for a result.
type resultWait struct {
	t     testing.TB
	reads *countedReads
	begun chan struct{}
	drain chan struct{}
	run   chan protocol.RunView
	once  atomic.Bool
}

func (w *resultWait) AttributeTypes(context.Context, string) (map[string]string, error) {
	return nil, nil
}

// Drained is called by a request that is about to wait.
func (w *resultWait) Drained() <-chan struct{} {
	if !w.once.Swap(true) {
		close(w.begun)
	}
	return w.drain
}

// await starts a request for a result at an app, in a view whose reads are counted, and returns once the request waits.
func (a *app) await(database string, t protocol.Target) *resultWait {
	a.t.Helper()
	w, v := a.resultWait(database)
	w.wait(func() (protocol.RunView, error) { return v.Result(a.t.Context(), t, 2*time.Minute, false) })
	return w
}

// resultWait returns a view whose reads are counted.
func (a *app) resultWait(database string) (*resultWait, *view.View) {
	w := &resultWait{
		t: a.t, reads: &countedReads{Store: a.store}, begun: make(chan struct{}), drain: make(chan struct{}),
		run: make(chan protocol.RunView, 1),
	}
	return w, view.New(w.reads, view.Options{
		Dispatch: a.Dispatch(), AppState: w, Shared: !strings.HasPrefix(database, "sqlite:"),
	})
}

// wait calls result in the background and returns once the request waits.
func (w *resultWait) wait(result func() (protocol.RunView, error)) {
	w.t.Helper()
	go func() {
		run, err := result()
		if err != nil {
			w.t.Error(err)
		}
		w.run <- run
	}()
	select {
	case <-w.begun:
	case <-time.After(time.Minute):
		w.t.Fatal("the request for the result does not wait")
	}
}

// startAndAwait subscribes to the end of a run, starts the run, and returns once a request for its result waits.
func (a *app) startAndAwait(database, id string, existing bool) *resultWait {
	a.t.Helper()
	w, v := a.resultWait(database)
	watch := v.WatchStart("", id)
	in := protocol.StartRequest{WorkflowID: id, WorkflowType: "wf", DuplicatePolicy: "use-existing"}
	out := must[protocol.StartResponse](a.t)(a.Start(a.t.Context(), in))
	if out.New == existing {
		a.t.Fatalf("started: %+v", out)
	}
	w.wait(func() (protocol.RunView, error) {
		defer watch.Stop()
		return watch.Result(a.t.Context(), out.RunID, false, 2*time.Minute)
	})
	return w
}

// ended returns the run that the request returned. It fails if the request needed more than most reads.
func (w *resultWait) ended(t *testing.T, what string, most int64) protocol.RunView {
	t.Helper()
	v := <-w.run
	if n := w.reads.n.Load(); n > most {
		t.Errorf("%s: the wait needed %d reads, want at most %d", what, n, most)
	}
	if v.Status != "completed" || string(v.Output) != `"done"` || v.Input != nil || v.Pending != nil {
		t.Errorf("%s: the result is %+v", what, v)
	}
	return v
}

// finish continues a run as new several times and completes the last run after a number of activities.
func (a *app) finish(runs, steps int) {
	a.t.Helper()
	for range runs - 1 {
		a.ok(a.decide(a.poll("w", protocol.KindWorkflow, 20), protocol.Command{Type: protocol.ContinueAsNew}))
	}
	for i := range steps {
		a.ok(a.decide(a.poll("w", protocol.KindWorkflow, 20), protocol.Command{
			Type: protocol.ScheduleActivity, ActivityType: "step",
		}))
		a.ok(a.result(a.poll("w", protocol.KindActivity, 20), i))
	}
	a.ok(a.decide(a.poll("w", protocol.KindWorkflow, 20), done()))
}

// If the app that serves a request for a result has committed the run, a request that begins before the end of the run
// reads nothing, whatever the numbers of steps and of continued runs.
func TestAWaitForAResultNeedsNoRead(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		for _, c := range []struct{ runs, steps int }{{1, 0}, {1, 1}, {1, 100}, {4, 1}} {
			what := fmt.Sprintf("%d runs, %d steps", c.runs, c.steps)
			run := a.start(what)
			byRun := a.await(database, protocol.Target{WorkflowID: what, RunID: run.RunID})
			runOnly := a.await(database, protocol.Target{RunID: run.RunID})
			byID := a.await(database, protocol.Target{WorkflowID: what})
			a.finish(c.runs, c.steps)
			if v := byRun.ended(t, what, 0); v.RunNumber != int64(c.runs) || !v.Current || v.RunCount != v.RunNumber {
				t.Errorf("%s: the result is of %+v", what, v)
			}
			runOnly.ended(t, what, 0)
			begin := int64(1) // on PostgreSQL another app may have started a later run, so the beginning needs one read
			if strings.HasPrefix(database, "sqlite:") {
				begin = 0
			}
			byID.ended(t, what, begin)
		}
	})
}

// A wait that begins together with the start of its run reads nothing, also if the run closed before the wait or
// existed before the start.
func TestAWaitThatBeginsWithTheStartNeedsNoRead(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		for _, c := range []struct{ runs, steps int }{{1, 0}, {1, 5}, {3, 1}} {
			what := fmt.Sprintf("%d runs, %d steps", c.runs, c.steps)
			first, second := a.startAndAwait(database, what, false), a.startAndAwait(database, what, true)
			a.finish(c.runs, c.steps)
			for _, w := range []*resultWait{first, second} {
				if v := w.ended(t, what, 0); v.RunNumber != int64(c.runs) || !v.Current || v.RunCount != v.RunNumber {
					t.Errorf("%s: the result is of %+v", what, v)
				}
			}
		}
		w, v := a.resultWait(database)
		watch := v.WatchStart("", "early")
		defer watch.Stop()
		run := a.start("early")
		a.finish(1, 0)
		shown, err := watch.Result(t.Context(), run.RunID, false, time.Minute)
		if err != nil {
			t.Error(err)
		}
		w.run <- shown
		w.ended(t, "a run that closed before the wait", 0)
	})
}

// At an app that did not commit the run, a request for a result reads the run when it begins, and the last run of the
// chain when that run has closed.
func TestAWaitForAResultAtAnotherAppReadsTheLastRunOnce(t *testing.T) {
	database := apptest.Postgres(t)
	a, other := twoApps(t, database)
	a.register("w")
	for _, c := range []struct{ runs, steps int }{{1, 1}, {1, 100}, {4, 1}} {
		what := fmt.Sprintf("%d runs, %d steps", c.runs, c.steps)
		run := a.start(what)
		waits := []*resultWait{
			other.await(database, protocol.Target{WorkflowID: what, RunID: run.RunID}),
			other.await(database, protocol.Target{WorkflowID: what}),
			other.await(database, protocol.Target{RunID: run.RunID}),
		}
		a.finish(c.runs, c.steps)
		for _, w := range waits {
			w.ended(t, what, 2)
		}
	}
}

// A result arrives although the app lost the connection on which it receives notifications of other apps.
func TestAResultArrivesAfterTheListenerReconnected(t *testing.T) {
	database := apptest.Postgres(t)
	a, other := twoApps(t, database)
	a.register("w")
	run := a.start("one")
	w := other.await(database, protocol.Target{WorkflowID: "one", RunID: run.RunID})
	c, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	if _, err = c.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'sojourn bus'`); err != nil {
		t.Fatal(err)
	}
	a.finish(3, 1)
	// one read when it begins, one of each run of the chain, and one for each of the two lost connections
	w.ended(t, "after a reconnection", 1+3+2)
}

// An app that drains returns the open run.
func TestADrainingAppReturnsTheOpenRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		run := a.start("one")
		w := a.await(database, protocol.Target{WorkflowID: "one"})
		close(w.drain)
		if v := <-w.run; v.Terminal || v.RunID != run.RunID || v.Status != "pending" {
			t.Errorf("the open run: %+v", v)
		}
	})
}
