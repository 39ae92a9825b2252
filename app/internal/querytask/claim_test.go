package querytask

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// notices counts the notifications of query tasks to pollers.
type notices struct{ notified int }

func (b *notices) Backlog(string, string, protocol.TaskKind, ...store.RoutingKey) { b.notified++ }
func (b *notices) WatchResponse(string) (<-chan struct{}, func())                 { return nil, func() {} }

// inMemory returns query tasks in memory and the counter of notifications to pollers.
func inMemory() (*Pending, *notices, chan struct{}) {
	b, draining := &notices{}, make(chan struct{})
	m := newMemoryQueue(func(l queueKey) { b.Backlog(l.namespace, l.queue, l.kind) })
	return &Pending{queue: m, dispatch: b, draining: draining, log: zerolog.Nop()}, b, draining
}

func query(id string) store.Question {
	return store.Question{ID: id, Namespace: "default", Queue: "main", Kind: protocol.KindQuery, Type: "wf"}
}

// poller returns a poller for up to most query tasks of workflow type wf; caps are its capabilities.
func poller(id string, most int, caps ...string) store.Poller {
	return store.Poller{Max: most, Lessee: engine.Lessee{Worker: &engine.Worker{
		Namespace: "default", ID: id, Incarnation: id + "1", Queues: []string{"main"}, WorkflowTypes: []string{"wf"},
		Capabilities: caps,
	}}}
}

func claim(t *testing.T, p *Pending, pollers ...store.Poller) (given []string) {
	t.Helper()
	leased, err := p.LeaseTasks(t.Context(), store.LeaseRequest{
		Namespace: "default", Queue: "main", Kind: protocol.KindQuery, Pollers: pollers,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leased {
		given = append(given, fmt.Sprint(l.Question.ID, l.Question.Attempt, " to ", l.Question.Owner))
	}
	return given
}

type answer struct {
	reply store.Reply
	err   error
}

// ask asks in the background, for a minute.
func ask(t *testing.T, p *Pending, id string) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		r, err := p.Run(t.Context(), query(id), time.Minute)
		c <- answer{r, err}
	}()
	synctest.Wait()
	return c
}

// Query tasks go to pollers that may run them, in order of arrival and up to the free slots. Query tasks beyond the
// free slots cause another notification; query tasks that no poller may run stay queued without one.
func TestQueryGoesToAnEligibleWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := inMemory()
		for _, id := range []string{"a", "b", "c"} {
			ask(t, p, id)
		}
		notified := b.notified
		if given := claim(t, p, poller("deaf", 9)); given != nil || b.notified != notified {
			t.Errorf("a worker without query handlers received %q, and pollers were notified %d times", given, b.notified-notified)
		}
		given := claim(t, p, poller("deaf", 9), poller("x", 1, CapQueries), poller("y", 1, CapQueries))
		if got, want := fmt.Sprint(given), "[a1 to x b1 to y]"; got != want {
			t.Errorf("given are %s, want %s", got, want)
		}
		if b.notified != notified+1 {
			t.Errorf("pollers were notified of the remaining tasks %d times, want once", b.notified-notified)
		}
	})
}

// Only the reply of the worker that leased a query task reaches its caller; other replies are rejected, each with its
// reason.
func TestOnlyTheOwnerOfAQueryMayReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := inMemory()
		asked := ask(t, p, "q")
		refused := func(why string, in protocol.CompleteItem, want protocol.Reason) {
			t.Helper()
			q, err := p.Get(t.Context(), "q")
			if err != nil {
				t.Fatal(err)
			}
			if got := protocol.ReasonOf(CheckLease(&q, in)); got != want {
				t.Errorf("%s: %q, want %q", why, got, want)
			}
		}
		refused("before anybody has it", protocol.CompleteItem{Owner: "x", Attempt: 1}, protocol.ReasonQueryNotLeased)
		claim(t, p, poller("x", 1, CapQueries))
		refused("of another worker", protocol.CompleteItem{Owner: "y", Attempt: 1}, protocol.ReasonLeaseOwnerMismatch)
		refused("of an older process", protocol.CompleteItem{Owner: "x", Incarnation: "x0", Attempt: 1},
			protocol.ReasonLeaseOwnerMismatch)
		if err := p.Requeue(t.Context(), "q", 1); err != nil {
			t.Fatal(err)
		}
		refused("given back", protocol.CompleteItem{Owner: "x", Attempt: 1}, protocol.ReasonQueryNotLeased)
		if got := fmt.Sprint(claim(t, p, poller("x", 1, CapQueries))); got != "[q2 to x]" {
			t.Errorf("leased again: %s", got)
		}
		refused("of the first attempt", protocol.CompleteItem{Owner: "x", Attempt: 1}, protocol.ReasonQueryAttempt)
		refused("of the live one", protocol.CompleteItem{Owner: "x", Incarnation: "x1", Attempt: 2}, "")
		held, err := p.Get(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		if outcome, err := p.Complete(t.Context(), held, store.Reply{Result: "42"}); outcome != "completed" || err != nil {
			t.Errorf("the reply: %q, %v", outcome, err)
		}
		if _, err := p.Complete(t.Context(), held, store.Reply{Result: "43"}); protocol.ReasonOf(err) !=
			protocol.ReasonQueryTaskNotFound {
			t.Errorf("another reply: %v", err)
		}
		if got := <-asked; got.err != nil || got.reply.Result != "42" {
			t.Errorf("the caller is told %+v", got)
		}
		if _, err := p.Get(t.Context(), "q"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("once its caller has its answer: %v", err)
		}
	})
}

// After its timeout the caller learns whether a worker had leased the query task; a later reply changes nothing.
func TestQueriesWithoutAReplyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, draining := inMemory()
		held, alone := ask(t, p, "held"), ask(t, p, "alone")
		claim(t, p, poller("x", 1, CapQueries))
		late, err := p.Get(t.Context(), "held")
		if err != nil || late.Owner != "x" {
			t.Fatalf("%+v, %v", late, err)
		}
		if got := <-held; !errors.Is(got.err, ErrUnanswered) {
			t.Errorf("with a worker: %v", got.err)
		}
		if got := <-alone; !errors.Is(got.err, ErrUnclaimed) {
			t.Errorf("with none: %v", got.err)
		}
		_, err = p.Complete(t.Context(), late, store.Reply{})
		if protocol.ReasonOf(err) != protocol.ReasonQueryTaskNotFound {
			t.Errorf("a reply that comes late: %v", err)
		}
		cut := ask(t, p, "cut")
		close(draining)
		if got := <-cut; !errors.Is(got.err, ErrDraining) {
			t.Errorf("when the app drains: %v", got.err)
		}
	})
}

// If a worker leases a query task and does not respond within some seconds, another worker gets it (hedged request),
// and so on. The first response counts, also from a slow worker, and nothing stays queued.
func TestQueryOfASilentWorkerIsHedged(t *testing.T) {
	first := func(m *memoryQueue) (id string) { // first returns the ID of the first waiting task
		for _, l := range m.ready {
			id = l[0].ID
		}
		return id
	}
	for _, c := range []struct {
		why     string
		answers string
		timeout time.Duration
	}{
		{"the second answers", "y", 0},
		{"the third does", "z", 0},
		{"the first does in the end", "x", 0},
		{"none does", "", time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, _, _ := inMemory()
			m := p.queue.(*memoryQueue)
			asked := ask(t, p, "q")
			began, held := time.Now(), map[string]string{"x": "q"}
			claim(t, p, poller("x", 1, CapQueries))
			for i, id := range []string{"y", "z"} {
				time.Sleep(hedgeAfter << i)
				if given := claim(t, p, poller(id, 1, CapQueries)); given != nil {
					t.Fatalf("%s: after %v %s gets %q", c.why, time.Since(began), id, given)
				}
				time.Sleep(2 * leaseCheckInterval)
				synctest.Wait()
				held[id] = first(m)
				given := claim(t, p, poller("x", 1, CapQueries), poller("y", 1, CapQueries), poller("z", 1, CapQueries))
				if got := fmt.Sprint(given); got != "["+held[id]+"1 to "+id+"]" {
					t.Fatalf("%s: after %v given are %s, want one to %s", c.why, time.Since(began), got, id)
				}
				if c.answers == id {
					break
				}
			}
			if id := held[c.answers]; id != "" {
				q, err := p.Get(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.Complete(t.Context(), q, store.Reply{Result: c.answers}); err != nil {
					t.Errorf("%s: %v", c.why, err)
				}
			}
			got := <-asked
			var silent *NoReply
			switch {
			case c.answers != "" && (got.err != nil || got.reply.Result != c.answers):
				t.Errorf("%s: the caller is told %+v", c.why, got)
			case c.answers == "" && (!errors.As(got.err, &silent) || !errors.Is(got.err, ErrUnanswered) ||
				fmt.Sprint(silent.Workers) != "[x y z]" || time.Since(began) != c.timeout):
				t.Errorf("%s: after %v the caller is told %+v", c.why, time.Since(began), got)
			}
			if len(m.all)+len(m.ready) > 0 {
				t.Errorf("%s: left are %v, in line %v", c.why, m.all, m.ready)
			}
		})
	}
}

// The limit of a queue counts waiting query tasks only, not leased ones.
func TestLeasedQueriesDoNotCountForTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := inMemory()
		for i := range protocol.MaxPendingQuestions {
			ask(t, p, fmt.Sprint(i))
		}
		if got := <-ask(t, p, "more"); !errors.Is(got.err, store.ErrFull) {
			t.Errorf("one more: %v", got.err)
		}
		if given := claim(t, p, poller("x", 1, CapQueries)); len(given) != 1 {
			t.Fatalf("given are %q", given)
		}
		second := ask(t, p, "again")
		select {
		case got := <-second:
			t.Errorf("once there is room: %v", got.err)
		default:
		}
		counts, err := p.Count(t.Context(), "default", protocol.KindQuery)
		want := protocol.QueryTally{Ready: protocol.MaxPendingQuestions, Leased: 1}
		if err != nil || counts["main"] != want {
			t.Errorf("counted are %+v, %v", counts, err)
		}
	})
}

// Only a worker that declared a validator for the type and update name validates the update.
func TestWorkersThatMayValidateAnUpdate(t *testing.T) {
	q := store.Question{Kind: protocol.KindValidation, Type: "wf", Name: "set", Requirements: []string{"gpu"}}
	for _, c := range []struct {
		why  string
		w    engine.Worker
		want bool
	}{
		{"all it takes", engine.Worker{
			WorkflowTypes: []string{"wf"}, Capabilities: []string{"gpu", CapValidation},
			Contracts: []byte(`{"wf":{"update_validators":["set"]}}`),
		}, true},
		{"what the run requires is missing", engine.Worker{
			WorkflowTypes: []string{"wf"}, Capabilities: []string{CapValidation},
			Contracts: []byte(`{"wf":{"update_validators":["set"]}}`),
		}, false},
		{"it judges another update", engine.Worker{
			WorkflowTypes: []string{"wf"}, Capabilities: []string{"gpu", CapValidation},
			Contracts: []byte(`{"wf":{"update_validators":["get"]}}`),
		}, false},
		{"it answers queries alone", engine.Worker{
			WorkflowTypes: []string{"wf"}, Capabilities: []string{"gpu", CapQueries},
			Contracts: []byte(`{"wf":{"update_validators":["set"]}}`),
		}, false},
		{"it does not run the type", engine.Worker{
			WorkflowTypes: []string{"other"}, Capabilities: []string{"gpu", CapValidation},
			Contracts: []byte(`{"wf":{"update_validators":["set"]}}`),
		}, false},
	} {
		if got := CanRun(&c.w, &q); got != c.want {
			t.Errorf("%s: %t", c.why, got)
		}
	}
}

// Only the first event of a run contains its arguments.
func TestFirstEventContainsTheArguments(t *testing.T) {
	started := history.Event{Seq: 1, Data: &history.WorkflowStarted{Arguments: "blob"}}
	other := history.Event{Seq: 2, Data: &history.ActivityCompleted{}}
	for want, events := range map[payload.Payload][]history.Event{
		{Blob: "blob"}: {started, other}, {}: {other},
	} {
		if got := startArguments(events); got != want {
			t.Errorf("of %d events: %+v, want %+v", len(events), got, want)
		}
	}
}
