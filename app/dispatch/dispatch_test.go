package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func bubble(t *testing.T, f func(t *testing.T, d *Dispatch, b *backlog)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, b := newBacklog()
		f(t, d, b)
		closed(t, d)
		synctest.Wait()
	})
}

// rested waits until the claims of all waiting polls have returned.
func rested() {
	time.Sleep(20 * time.Millisecond)
	synctest.Wait()
}

func TestLongestWaitingPollGetsTheTask(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		first := waitFor(t.Context(), d.Enter(spec(worker("a"), 1, oneActivity)), time.Minute)
		second := waitFor(t.Context(), d.Enter(spec(worker("b"), 1, oneActivity)), time.Minute)
		rested()
		x := mustReserve(t, d, activity("x"))
		y := mustReserve(t, d, activity("y"))
		if x.Lessee().Worker.ID != "a" || y.Lessee().Worker.ID != "b" {
			t.Fatalf("task x was delivered to %s, task y to %s", x.Lessee().Worker.ID, y.Lessee().Worker.ID)
		}
		if d.Reserve(activity("z")) != nil {
			t.Fatal("a third task was handed to one of two pollers with a slot each")
		}
		x.Deliver(lease(activity("x"), 0))
		y.Deliver(lease(activity("y"), 0))
		wantTasks(t, first, "x")
		wantTasks(t, second, "y")
	})
}

func TestAReturnedPollKeepsItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		var answers []<-chan answer
		for _, id := range []string{"a", "b", "c"} {
			answers = append(answers, waitFor(t.Context(), d.Enter(spec(worker(id), 1, oneActivity)), time.Minute))
		}
		rested()
		r := []store.Reservation{
			mustReserve(t, d, activity("x")), mustReserve(t, d, activity("y")), mustReserve(t, d, activity("z")),
		}
		r[1].Undo()
		r[0].Undo()
		for i, want := range []string{"a", "b"} {
			second := mustReserve(t, d, activity("again"))
			if got := second.Lessee().Worker.ID; got != want {
				t.Fatalf("reservation %d after the undo went to %s, want %s", i, got, want)
			}
			second.Deliver(lease(activity(want), 0))
		}
		r[2].Deliver(lease(activity("z"), 0))
		wantTasks(t, answers[0], "a")
		wantTasks(t, answers[1], "b")
		wantTasks(t, answers[2], "z")
	})
}

func TestOneBatchFillsAPollerWithMixedKindsUpToItsMax(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		w := worker("a")
		w.WorkflowTypes = []string{"w"}
		got := waitFor(
			t.Context(), d.Enter(spec(w, 3, map[protocol.TaskKind]int{protocol.KindActivity: 5, protocol.KindWorkflow: 1})),
			time.Minute,
		)
		rested()
		offers := []store.Offer{activity("1"), workflow("w"), activity("2")}
		var r []store.Reservation
		for _, o := range offers {
			r = append(r, mustReserve(t, d, o))
			if o.Kind == protocol.KindWorkflow && d.Reserve(workflow("w")) != nil {
				t.Fatal("a second workflow task was handed to a poller with one workflow slot")
			}
		}
		if d.Reserve(activity("3")) != nil {
			t.Fatal("a fourth task was handed to a poller that takes three")
		}
		r[0].Deliver(lease(offers[0], 0))
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("the poll ended before its batch was delivered")
		}
		r[1].Undo()
		if d.Reserve(workflow("w")) != nil {
			t.Fatal("a poller that was given a task is still in line")
		}
		r[2].Deliver(lease(offers[2], 0))
		wantTasks(t, got, "1", "2")
	})
}

func TestSessionTaskIsDispatchedOnlyToTheOwningProcess(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		other, old, holder := worker("b"), worker("a"), worker("a")
		holder.Incarnation = "a-2"
		holder.MaxSessions, old.MaxSessions, other.MaxSessions = 1, 1, 1
		for _, w := range []*engine.Worker{other, old} {
			waitFor(t.Context(), d.Enter(spec(w, 1, oneActivity)), time.Second)
		}
		rested()
		o := activity("x")
		o.Session = held(holder, o.Now)
		if d.Reserve(o) != nil {
			t.Fatal("a task of a session was delivered to a worker other than the owner")
		}
		got := waitFor(t.Context(), d.Enter(spec(holder, 1, oneActivity)), time.Second)
		rested()
		first := o
		first.Session = &engine.Session{Namespace: "default", ID: "s"}
		if d.Reserve(first) != nil {
			t.Fatal("a session was acquired without a claim")
		}
		mustReserve(t, d, o).Deliver(lease(o, 0))
		wantTasks(t, got, "x")
		time.Sleep(2 * time.Second)
	})
}

func TestPollersThatWaitCostNothing(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		w := worker("a")
		for range 500 {
			waitFor(t.Context(), d.Enter(spec(w, 1, oneActivity)), time.Hour)
		}
		rested()
		before := b.sent()
		time.Sleep(30 * time.Minute)
		for range 10 { // beginning and ending polls cause no claims either
			wantTasks(t, waitFor(t.Context(), d.Enter(spec(w, 1, oneActivity)), time.Minute))
		}
		if got := b.sent() - before; got != 0 || before > 2 {
			t.Fatalf("%d claims at the start and %d while waiting, want at most 2 and none", before, got)
		}
		time.Sleep(time.Hour)
	})
}

func TestTaskOneWorkerMayNotHaveIsFoundByTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		b.addReady(activity("x"))
		no := waitFor(t.Context(), d.Enter(spec(worker("a", "other"), 1, oneActivity)), time.Minute)
		rested()
		wantTasks(t, waitFor(t.Context(), d.Enter(spec(worker("b", "x"), 1, oneActivity)), time.Minute), "x")
		if len(no) != 0 {
			t.Fatal("the worker that does not run x received a response")
		}
		wantTasks(t, no)
	})
}

func TestNewTaskDoesNotOvertakeAnOlderReadyOne(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		b.addReady(activity("old"))
		got := waitFor(t.Context(), d.Enter(spec(worker("a"), 1, oneActivity)), time.Minute)
		if d.Reserve(activity("new")) != nil {
			t.Fatal("delivered although an older task may be ready")
		}
		b.addReady(activity("new"))
		wantTasks(t, got, "old")
		wantTasks(t, waitFor(t.Context(), d.Enter(spec(worker("a"), 1, oneActivity)), time.Minute), "new")
	})
}

func TestOneClaimServesAllWaitingPollsInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		w := worker("a")
		var answers []<-chan answer
		for range 5 {
			answers = append(answers, waitFor(t.Context(), d.Enter(spec(w, 1, oneActivity)), time.Minute))
		}
		rested()
		before := b.sent()
		b.addReady(activity("1"), activity("2"), activity("3"))
		rested()
		wantTasks(t, answers[0], "1")
		wantTasks(t, answers[1], "2")
		wantTasks(t, answers[2], "3")
		b.mu.Lock()
		claims := slices.Clone(b.claims[before:])
		b.mu.Unlock()
		if len(claims) != 2 || len(claims[0].Pollers) != 5 || len(claims[1].Pollers) != 2 {
			t.Fatalf("claims %v, want one for all five and, as the backlog was reported while it ran, one for the two left", claims)
		}
		time.Sleep(time.Minute)
	})
}

func TestSlotsOfAClaimAreNotReservedAsWell(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		a := worker("a")
		a.WorkflowTypes = []string{"w"}
		got := waitFor(
			t.Context(), d.Enter(spec(a, 1, map[protocol.TaskKind]int{protocol.KindActivity: 1, protocol.KindWorkflow: 1})),
			time.Minute,
		)
		rested()
		b.addReady(activity("x"))
		if d.Reserve(workflow("w")) != nil {
			t.Fatal("the only slot is used by a claim and was also reserved")
		}
		wantTasks(t, got, "x")
	})
}

func TestTaskOfAPollerThatLeftWhileReservedIsReturned(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("connection lost")
		got := waitFor(ctx, d.Enter(spec(worker("a"), 1, oneActivity)), time.Minute)
		rested()
		r := mustReserve(t, d, activity("x"))
		cancel(gone)
		if a := <-got; !errors.Is(a.err, gone) {
			t.Fatalf("got %v, want the cause of the context", a)
		}
		r.Deliver(lease(activity("x"), 0))
		synctest.Wait()
		if got := b.returned(); !slices.Equal(got, []string{"x"}) {
			t.Fatalf("given back: %v, want x", got)
		}
	})
}

func TestClaimForAPollerThatLeftIsReturned(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		b.addReady(activity("x"))
		w := d.Enter(spec(worker("a"), 1, oneActivity))
		w.Close()
		rested()
		if got := b.returned(); !slices.Equal(got, []string{"x"}) {
			t.Fatalf("given back: %v, want x", got)
		}
		if tasks, err := w.Wait(t.Context(), time.Minute); tasks != nil || err != nil {
			t.Fatalf("a poll that ended got %v, %v", tasks, err)
		}
	})
}

func TestTimeoutWaitsForAClaimThatCountsOnThePoller(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		b.set(nil, 100*time.Millisecond)
		b.addReady(activity("x"))
		wantTasks(t, waitFor(t.Context(), d.Enter(spec(worker("a"), 1, oneActivity)), 50*time.Millisecond), "x")

		b.set(nil, time.Minute) // claims that hang make it wait only until the timeout
		b.addReady(activity("y"))
		a := <-waitFor(t.Context(), d.Enter(spec(worker("a"), 1, oneActivity)), 50*time.Millisecond)
		if len(a.tasks) != 0 || a.took != 50*time.Millisecond+2*time.Second {
			t.Fatalf("got %v after %v", a.tasks, a.took)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.returned(); !slices.Equal(got, []string{"y"}) {
			t.Fatalf("given back: %v, want y", got)
		}
	})
}

func TestPollThatDoesNotWaitStillFindsTheBacklog(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		w := worker("a")
		w.WorkflowTypes = []string{"w"}
		s := spec(w, 1, map[protocol.TaskKind]int{protocol.KindActivity: 1, protocol.KindWorkflow: 1})
		b.addReady(activity("x"))
		wantTasks(t, waitFor(t.Context(), d.Enter(s), 0), "x")
		wantTasks(t, waitFor(t.Context(), d.Enter(s), 0))
		before := b.sent()
		a := <-waitFor(t.Context(), d.Enter(s), 0)
		if len(a.tasks) != 0 || a.took != 0 || b.sent() != before {
			t.Fatalf("a poll of empty queues took %v and %d claims, and got %v", a.took, b.sent()-before, a.tasks)
		}
		unavailable := waitFor(t.Context(), d.Enter(s), time.Second)
		b.set(store.ErrUnavailable, time.Millisecond)
		b.addReady(activity("y"))
		rested()
		if a := <-waitFor(t.Context(), d.Enter(s), 0); !errors.Is(a.err, store.ErrUnavailable) {
			t.Fatalf("got %v, want that the store is unavailable", a)
		}
		if a := <-unavailable; !errors.Is(a.err, store.ErrUnavailable) {
			t.Fatalf("got %v, want that the store is unavailable", a)
		}
	})
}

func TestFailedClaimsBackOffWhilePollsWait(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		b.set(store.ErrUnavailable, time.Millisecond)
		got := waitFor(t.Context(), d.Enter(spec(worker("a"), 1, oneActivity)), 10*time.Minute)
		time.Sleep(time.Minute)
		if n := b.sent(); n < 12 || n > 36 {
			t.Fatalf("%d claims in a minute of a broken store", n)
		}
		b.set(nil, time.Millisecond)
		b.addReady(activity("x"))
		wantTasks(t, got, "x")
		b.set(store.ErrUnavailable, time.Millisecond)
		b.addReady(activity("y"))
		before := b.sent()
		time.Sleep(time.Hour)
		if n := b.sent() - before; n != 0 {
			t.Fatalf("%d claims without a waiting poll", n)
		}
	})
}

func TestCollectReturnsTheDeliveriesOfTheBatchWithoutWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		w := worker("a")
		waitFor(t.Context(), d.Enter(spec(w, 1, oneActivity)), 0)
		rested()
		next := d.Enter(spec(w, 2, map[protocol.TaskKind]int{protocol.KindActivity: 2}))
		mustReserve(t, d, activity("x")).Deliver(lease(activity("x"), 0))
		if got := names(next.Collect(t.Context())); !slices.Equal(got, []string{"x"}) {
			t.Fatalf("got %v, want x", got)
		}
		start := time.Now()
		if got := d.Enter(spec(w, 1, oneActivity)).Collect(t.Context()); got != nil || time.Since(start) != 0 {
			t.Fatalf("got %v after %v, want nothing at once", got, time.Since(start))
		}
		if d.Reserve(activity("y")) != nil {
			t.Fatal("a collected poller is still in line")
		}
		b.addReady(activity("z"))
		if got := names(d.Enter(spec(w, 1, oneActivity)).Collect(t.Context())); !slices.Equal(got, []string{"z"}) {
			t.Fatalf("got %v, want z from the backlog", got)
		}
	})
}

func TestDrainAndDropEndWaitingPolls(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		old, fresh, other := worker("a"), worker("a"), worker("b")
		fresh.Incarnation = "a-2"
		var answers []<-chan answer
		for _, w := range []*engine.Worker{old, fresh, other} {
			answers = append(answers, waitFor(t.Context(), d.Enter(spec(w, 1, oneActivity)), time.Minute))
		}
		rested()
		d.Deregistered(store.Process{Worker: old.Key(), Incarnation: old.Incarnation})
		if a := <-answers[0]; !errors.Is(a.err, ErrRegistrationEnded) {
			t.Fatalf("the superseded process got %v", a)
		}
		r := mustReserve(t, d, activity("x"))
		d.Drain()
		if a := <-answers[2]; !errors.Is(a.err, ErrDraining) {
			t.Fatalf("got %v, want draining", a)
		}
		r.Deliver(lease(activity("x"), 0))
		wantTasks(t, answers[1], "x")
		if a := <-waitFor(t.Context(), d.Enter(spec(other, 1, oneActivity)), time.Minute); !errors.Is(a.err, ErrDraining) ||
			a.took != 0 {
			t.Fatalf("got %v, want draining at once", a)
		}
	})
}

// A worker that deregistered gets no tasks: neither tasks that are being committed or claimed for it, nor ready tasks.
// A poll that arrives after the deregistration does not wait.
func TestTasksInFlightToALeavingPollAreReturned(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		w := worker("a")
		gone := func() { d.Deregistered(store.Process{Worker: w.Key(), Incarnation: w.Incarnation}) }
		wantBack := func(name string) {
			t.Helper()
			rested()
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.back) != 1 {
				t.Errorf("%d tasks were released, want %s", len(b.back), name)
			}
			b.back = nil
		}
		end := waitFor(t.Context(), d.Enter(spec(w, 1, oneActivity)), time.Minute)
		rested()
		r := mustReserve(t, d, activity("being committed"))
		gone()
		if a := <-end; !errors.Is(a.err, ErrRegistrationEnded) || len(a.tasks) > 0 {
			t.Errorf("the open poll got %v", a)
		}
		r.Deliver(lease(activity("being committed"), 0))
		wantBack("what was being committed")

		waiter := d.Enter(spec(w, 1, oneActivity))
		rested()
		mustReserve(t, d, activity("lies there")).Deliver(lease(activity("lies there"), 0))
		gone()
		wantBack("what lay there")
		if tasks, err := waiter.Wait(t.Context(), time.Minute); !errors.Is(err, ErrRegistrationEnded) || len(tasks) > 0 {
			t.Errorf("got %v, %v", tasks, err)
		}

		b.addReady(activity("being claimed"))
		end = waitFor(t.Context(), d.Enter(spec(w, 1, oneActivity)), time.Minute)
		time.Sleep(time.Millisecond / 2)
		gone()
		if a := <-end; !errors.Is(a.err, ErrRegistrationEnded) {
			t.Errorf("the poll that claims got %v", a)
		}
		wantBack("what was being claimed")

		stands := true
		s := spec(w, 1, oneActivity)
		s.Still = func() bool { return stands }
		d.OnProcessEnded(func(store.Process) { stands = false })
		d.Enter(s).Close()
		gone()
		start := time.Now()
		_, err := d.Enter(s).Wait(t.Context(), time.Minute)
		if !errors.Is(err, ErrRegistrationEnded) || time.Since(start) != 0 {
			t.Errorf("a poll after the deregistration got %v after %s", err, time.Since(start))
		}
	})
}

func TestCloseWaitsForOpenReservations(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		ctx, cancel := context.WithCancel(t.Context())
		got := waitFor(ctx, d.Enter(spec(worker("a"), 1, oneActivity)), time.Minute)
		rested()
		r := mustReserve(t, d, activity("x"))
		cancel()
		<-got
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Close(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("closed with %v while a reservation was open", err)
		}
		r.Deliver(lease(activity("x"), 0))
		closed(t, d)
		if got := b.returned(); !slices.Equal(got, []string{"x"}) {
			t.Fatalf("given back: %v, want x", got)
		}
	})
}

func TestRecheckFindsWhatAWorkerMayHaveNow(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		w := worker("a")
		got := waitFor(t.Context(), d.Enter(spec(w, 1, oneActivity)), time.Minute)
		rested()
		b.mu.Lock()
		b.ready = append(b.ready, activity("x")) // the store sends no notification
		b.mu.Unlock()
		d.Recheck(w.Key())
		wantTasks(t, got, "x")
	})
}

// A poll for a hand-over finds no task and still waits when the worker polls for all tasks again: the empty claim of
// the first poll does not delay the second one.
func TestAnEmptyClaimForAHandOverDoesNotCountForOtherPolls(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		w := worker("a")
		only := spec(w, 1, oneActivity)
		only.Lessee.Draining = true
		waits := waitFor(t.Context(), d.Enter(only), time.Minute)
		rested()
		b.addReady(activity("x"))
		rested()
		before := b.sent()
		wantTasks(t, waitFor(t.Context(), d.Enter(spec(w, 1, oneActivity)), time.Second), "x")
		rested()
		if b.sent() == before {
			t.Error("the second poll received the task without a claim")
		}
		before = b.sent()
		time.Sleep(10 * time.Second)
		if b.sent() != before {
			t.Errorf("%d claims while no task waits", b.sent()-before)
		}
		d.Drop(w.Key(), ErrDrained)
		<-waits
	})
}

// A poll for a hand-over waits first, and has found no older task. A new task outside of the worker's sessions goes to
// another worker's poll, or waits; a task of a session that the worker hands over goes to the poll.
func TestAPollForAHandOverReceivesOnlyTasksOfItsSessions(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		a := worker("a")
		only := spec(a, 1, oneActivity)
		only.Lessee.Draining = true
		waits := waitFor(t.Context(), d.Enter(only), time.Minute)
		rested()
		if d.Reserve(activity("x")) != nil {
			t.Fatal("the poll receives a task without a session")
		}
		other := waitFor(t.Context(), d.Enter(spec(worker("b"), 1, oneActivity)), time.Minute)
		rested()
		mustReserve(t, d, activity("y")).Deliver(lease(activity("y"), 0))
		wantTasks(t, other, "y")
		z := activity("z")
		z.Session = held(a, z.Now)
		z.Session.Prepare = &engine.Preparation{Until: z.Session.LeaseUntil}
		mustReserve(t, d, z).Deliver(lease(z, 0))
		wantTasks(t, waits, "z")
	})
}

// Polls of a worker for a hand-over send one claim, however often the worker polls, and so do its polls afterwards.
func TestPollsForAHandOverShareTheirEmptyClaim(t *testing.T) {
	for _, polls := range []int{2, 40} {
		bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
			for _, handOver := range []bool{true, false, true, false} {
				for range polls {
					s := spec(worker("a"), 1, oneActivity)
					s.Lessee.Draining = handOver
					wantTasks(t, waitFor(t.Context(), d.Enter(s), time.Second))
				}
			}
			if n := b.sent(); n != 2 {
				t.Errorf("%d claims for %d polls, want 2", n, 4*polls)
			}
		})
	}
}

func TestBacklogWithoutEligiblePollersCausesFewClaims(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		none := waitFor(t.Context(), d.Enter(spec(worker("a", "other"), 1, oneActivity)), time.Minute)
		for range 1000 {
			b.addReady(activity("x"))
			time.Sleep(time.Millisecond)
		}
		if n := b.sent(); n > 150 {
			t.Fatalf("%d claims in vain within a second", n)
		}
		b.addReady(activity("other"))
		wantTasks(t, none, "other")
	})
}

func TestDueBeforeBindIsReportedAtBind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		early := time.Now().Add(time.Hour)
		d.Due(early.Add(time.Minute))
		d.Due(early)
		d.Due(time.Time{})
		var reported []time.Time
		d.Bind(&backlog{d: d}, nil, func(at time.Time) { reported = append(reported, at) })
		d.Due(early.Add(time.Second))
		if want := []time.Time{early, early.Add(time.Second)}; !slices.Equal(reported, want) {
			t.Fatalf("reported %v, want %v", reported, want)
		}
		closed(t, d)
	})
}

// After a lost notification of another app, a poller must not keep waiting while a task for it is ready.
func TestAllPollsReadAgainAfterMissedHints(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		got := waitFor(t.Context(), d.Enter(spec(worker("a"), 1, oneActivity)), time.Minute)
		all, moves := d.Watch(TopicRuns), d.Watch(TopicMoves)
		run, stop := d.WatchRun("r")
		defer stop()
		rested()
		b.mu.Lock()
		b.ready = append(b.ready, activity("x")) // the store sends no notification
		b.mu.Unlock()
		d.Missed()
		wantTasks(t, got, "x")
		if _, overflow := all.Take(); !notified(all.C) || !overflow || !notified(run) {
			t.Error("the watcher was not notified of an overflow")
		}
		if notified(moves.C) {
			t.Error("a watch of session moves was notified, although it need not receive all moves of other apps")
		}
	})
}

func TestPollsOfASilentWorkerGetNothing(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		still := worker("still")
		first := waitFor(t.Context(), d.Enter(spec(still, 1, oneActivity)), time.Minute)
		second := waitFor(t.Context(), d.Enter(spec(still, 1, oneActivity)), time.Minute)
		other := waitFor(t.Context(), d.Enter(spec(worker("other"), 1, oneActivity)), time.Minute)
		rested()
		d.LeaseExpired(still.Key())
		mustReserve(t, d, activity("lost")).Deliver(lease(activity("lost"), 0))
		wantTasks(t, other, "lost")
		for _, c := range []<-chan answer{first, second} {
			if a := <-c; len(a.tasks) > 0 || a.err != nil || a.took > time.Second {
				t.Errorf("a poll of the worker without heartbeats got %v after %s", a, a.took)
			}
		}
		// a repeated poll shows that the worker is alive
		repeated := waitFor(t.Context(), d.Enter(spec(still, 1, oneActivity)), time.Minute)
		rested()
		b.addReady(activity("next"))
		wantTasks(t, repeated, "next")
	})
}

// Polls that cannot run a task are not checked for it, neither at its commit nor for a claim.
func TestForeignPollsAreNotChecked(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		for i := range 1000 {
			w := worker(fmt.Sprintf("foreign-%d", i), "x")
			w.Capabilities = []string{w.ID}
			waitFor(t.Context(), d.Enter(spec(w, 1, oneActivity)), time.Hour)
		}
		able := worker("able", "x")
		able.Capabilities = []string{"gpu"}
		got := waitFor(t.Context(), d.Enter(spec(able, 1, oneActivity)), time.Hour)
		rested()
		o := activity("x")
		o.Requirements = []string{"gpu"}
		if n := testing.AllocsPerRun(100, func() { d.Reserve(o).Undo() }); n > 1 {
			t.Errorf("%v allocations for a task that one of many may have", n)
		}
		o.Requirements = []string{"tpu"}
		if n := testing.AllocsPerRun(100, func() {
			if d.Reserve(o) != nil {
				t.Fatal("delivered to a worker without the required capability")
			}
		}); n > 0 {
			t.Errorf("%v allocations for a task that no worker may run", n)
		}
		before := b.sent()
		d.Backlog("default", "q", protocol.KindActivity, store.RoutingKey{Type: "x", Requirements: []string{"tpu"}})
		rested()
		if n := b.sent() - before; n > 0 {
			t.Errorf("%d claims for a task that no worker may run", n)
		}
		o.Requirements = []string{"gpu"}
		b.mu.Lock()
		b.ready = append(b.ready, o)
		b.mu.Unlock()
		d.Backlog("default", "q", protocol.KindActivity, store.RoutingKey{Type: "x", Requirements: []string{"gpu"}})
		wantTasks(t, got, "x")
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, r := range b.claims[before:] {
			if len(r.Pollers) != 1 {
				t.Errorf("a claim for %d pollers where one may have the task", len(r.Pollers))
			}
		}
	})
}
