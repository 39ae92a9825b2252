package sessionlaws

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// blocked is how many tasks of sessions wait for a worker that says nothing.
const blocked = 1000

// Tasks of held sessions wait in ranges of their own: what others look for is found without a look at any of them, whatever their number.
func TestBlockedTasksAreNotRead(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { undisturbed(t, onSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { undisturbed(t, onPostgres(t, 1)) })
}

func undisturbed(t *testing.T, w *world) {
	alone, beside := crowd(t, w, "alone", 0), crowd(t, w, "beside", blocked)
	for i, was := range alone {
		now := beside[i]
		t.Logf("%s: %d tasks, %d candidates, %d statements; beside %d blocked tasks %d candidates, %d statements", was.what, len(was.got),
			was.spent.Candidates, was.spent.Statements, blocked, now.spent.Candidates, now.spent.Statements)
		if !slices.Equal(was.got, now.got) {
			t.Errorf("%s: it gets %v, beside %d blocked tasks %v", was.what, was.got, blocked, now.got)
		}
		if now.spent.Candidates != was.spent.Candidates || now.spent.Candidates != int64(len(now.got)) {
			t.Errorf("%s: it reads %d ready tasks for %d, beside %d blocked tasks %d", was.what, was.spent.Candidates, len(was.got), blocked,
				now.spent.Candidates)
		}
		if now.spent.Statements > was.spent.Statements+2 { // on PostgreSQL the lanes are read again now and then
			t.Errorf("%s: it takes %d statements, beside %d blocked tasks %d", was.what, was.spent.Statements, blocked, now.spent.Statements)
		}
	}
}

// look is one poll: whose tasks it got, and what it cost.
type look struct {
	what  string
	got   []string
	spent store.Stats
}

// crowd has a silent worker hold ten sessions with n tasks ready in them, and looks at what another worker finds beside them.
func crowd(t *testing.T, w *world, ns string, n int) (looks []look) {
	const sessions = 10
	b, ctx := w.apps[0].Broker(), t.Context()
	w.namespace(ns)
	must[protocol.RegisterAnswer](t)(b.Register(ctx, worker(ns, "silent", "s1", sessions, time.Hour)))
	must[protocol.RegisterAnswer](t)(b.Register(ctx, worker(ns, "other", "o1", sessions, time.Hour)))
	poll := func(id string, most int) []string {
		t.Helper()
		none := int64(0)
		p := must[protocol.PollAnswer](t)(b.Poll(ctx, protocol.PollRequest{
			Namespace: ns, WorkerID: id, Incarnation: id[:1] + "1", Kinds: []protocol.TaskKind{protocol.KindActivity}, Max: most, Timeout: &none,
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
	for i := 0; i < n; i += 250 {
		var more []protocol.Command
		for k := range 250 {
			more = append(more, inSession(fmt.Sprintf("held%d", k%sessions)))
		}
		w.decide(ns, fmt.Sprintf("blocked%d", i), more...)
	}
	looking := func(what string, most int) {
		before := w.apps[0].Store().Stats()
		got := poll("other", most)
		after := w.apps[0].Store().Stats()
		after.Candidates, after.Statements = after.Candidates-before.Candidates, after.Statements-before.Statements
		looks = append(looks, look{what, got, after})
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
	return looks
}
