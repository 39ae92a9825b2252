package invariants

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// blocked is the number of session tasks that wait for a silent worker; few is the number in the reference case.
const (
	blocked = 1000
	few     = 10
)

// Tasks of held sessions have index ranges for their sessions: polls of other workers read none of them.
func TestBlockedTasksAreNotRead(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { undisturbed(t, onSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { undisturbed(t, onPostgres(t, 1)) })
}

func undisturbed(t *testing.T, w *harness) {
	alone, starved := crowd(t, w, "alone", few), crowd(t, w, "blocked", blocked)
	for i, was := range alone {
		now := starved[i]
		t.Logf("%s: %d tasks, %d candidates, %d statements; next to %d blocked tasks %d candidates, %d statements", was.what,
			len(was.got),
			was.spent.Candidates, was.spent.Statements, blocked, now.spent.Candidates, now.spent.Statements)
		if !slices.Equal(was.got, now.got) {
			t.Errorf("%s: it gets %v, next to %d blocked tasks %v", was.what, was.got, blocked, now.got)
		}
		if now.spent.Candidates != was.spent.Candidates || now.spent.Candidates != int64(len(now.got)) {
			t.Errorf("%s: it reads %d ready tasks for %d, next to %d blocked tasks %d", was.what, was.spent.Candidates, len(
				was.got,
			), blocked,
				now.spent.Candidates)
		}
		// Work in the background adds statements: on PostgreSQL the routing keys are read at intervals.
		if now.spent.Statements > was.spent.Statements+10 {
			t.Errorf(
				"%s: it takes %d statements, next to %d blocked tasks %d", was.what, was.spent.Statements, blocked,
				now.spent.Statements,
			)
		}
	}
}

// A held poll is not woken for blocked tasks, and it receives a task that it may run.
func TestBlockedTasksDoNotRouseAWaitingWorker(t *testing.T) {
	w := onSQLite(t)
	crowd(t, w, "ns", few)
	b := w.apps[0].Broker()
	got := make(chan *protocol.ActivityTask, 1)
	go func() {
		task, err := poll(t.Context(), b, "ns", "other", "o1", 30)
		if err != nil {
			t.Error(err)
		}
		got <- task
	}()
	for end := time.Now().Add(2 * time.Minute); w.apps[0].Dispatch().Counts().Waiting == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the worker does not wait")
		}
	}
	before := w.apps[0].Store().Stats().Candidates
	var more []protocol.Command
	for i := range 500 {
		more = append(more, inSession(fmt.Sprintf("held%d", i%10)))
	}
	w.decide("ns", "blocked", more...)
	w.decide("ns", "plain-again", activity())
	select {
	case task := <-got:
		if task == nil || task.Session != nil {
			t.Fatalf("the waiting worker gets %+v", task)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the waiting worker gets nothing within 2 min")
	}
	if read := w.apps[0].Store().Stats().Candidates - before; read > 3 {
		// two workflow tasks, and the activity outside of sessions if it was claimed
		t.Errorf("%d ready tasks were read for one", read)
	}
}

// pollResult is one poll: the sessions of its tasks, and its cost.
type pollResult struct {
	what  string
	got   []string
	spent store.Stats
}

// crowd registers a silent worker that holds ten sessions with n ready tasks, and counts what polls of another worker
// read.
func crowd(t *testing.T, w *harness, ns string, n int) (looks []pollResult) {
	const sessions = 10
	b, ctx := w.apps[0].Broker(), t.Context()
	w.namespace(ns)
	must[protocol.RegisterResponse](t)(b.Register(ctx, worker(ns, "silent", "s1", sessions, time.Hour)))
	must[protocol.RegisterResponse](t)(b.Register(ctx, worker(ns, "other", "o1", 2, time.Hour)))
	poll := func(id string, most int) []string {
		t.Helper()
		none := int64(0)
		p := must[protocol.PollResponse](t)(b.Poll(ctx, protocol.PollRequest{
			Namespace: ns, WorkerID: id, Incarnation: id[:1] + "1", Kinds: []protocol.TaskKind{protocol.KindActivity}, Max: most,
			Timeout: &none,
		}))
		got := []string{}
		for _, task := range p.Tasks {
			what := "plain"
			if s := task.Activity.Session; s != nil {
				what = s.SessionID
			}
			got = append(got, what)
		}
		return got
	}
	var first []protocol.Command
	for i := range sessions {
		first = append(first, inSession(fmt.Sprintf("held%d", i)))
	}
	w.decide(ns, "first", first...)
	if got := poll("silent", sessions); len(got) != sessions {
		t.Fatalf("the silent worker claims %v", got)
	}
	fill := func(name string) {
		for i := 0; i < n; i += 250 {
			var more []protocol.Command
			for k := range min(250, n) {
				more = append(more, inSession(fmt.Sprintf("%s%d", name, k%sessions)))
			}
			w.decide(ns, fmt.Sprintf("%s-%d", name, i), more...)
		}
	}
	fill("held")
	looking := func(what string, most int) {
		before := w.apps[0].Store().Stats()
		got := poll("other", most)
		after := w.apps[0].Store().Stats()
		after.Candidates, after.Statements = after.Candidates-before.Candidates, after.Statements-before.Statements
		looks = append(looks, pollResult{what, got, after})
	}
	looking("nothing there", 10)
	w.decide(ns, "plain", activity(), activity(), activity(), activity(), activity())
	looking("plain work", 10)
	w.decide(ns, "own", inSession("own1"), inSession("own2"))
	looking("sessions of its own", 10)
	w.decide(ns, "more", inSession("own2"), inSession("own1"), activity())
	looking("more in them and plain work", 10)
	w.decide(ns, "single", inSession("own1"))
	looking("one task", 1)
	fill("new") // tasks of new sessions, which the other worker may not acquire: it holds its maximum
	looking("nothing there, at its cap", 10)
	w.decide(ns, "last", inSession("own2"), inSession("own1"), activity())
	looking("sessions of its own and plain work, at its cap", 10)
	return looks
}
