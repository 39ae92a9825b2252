package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func types(list []store.Leased) (names []string) {
	for _, l := range list {
		names = append(names, l.Activity.Type)
	}
	return names
}

func testOrder(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w")
	urgent, idle := 1, 9
	for i, p := range []*int{&idle, nil, &urgent} {
		in := start(w, fmt.Sprint("w", i))
		in.Request.Priority = p
		w.StartAs(in)
	}
	list := w.LeaseTasks(protocol.KindWorkflow, worker, 10)
	var got []string
	for _, l := range list {
		got = append(got, l.Head.WorkflowID)
	}
	if fmt.Sprint(got) != "[w2 w1 w0]" {
		t.Fatalf("workflow tasks came as %v, want by priority", got)
	}
	first := Activity("first", "")
	hot := Activity("hot", "")
	hot.Priority = new(1)
	w.Decide(list[1], first, Activity("second", ""))
	w.Decide(list[0], Activity("third", ""), hot)
	if got := fmt.Sprint(types(w.LeaseTasks(protocol.KindActivity, worker, 3))); got != "[third hot first]" {
		t.Fatalf("activities came as %s", got)
	}
	if got := len(w.LeaseTasks(protocol.KindActivity, worker, 3)); got != 1 {
		t.Fatalf("then %d, want the last one", got)
	}
}

func testPollers(t *testing.T, s Suite) {
	w := s.New(t)
	a, b := w.Worker("a"), w.Worker("b")
	var commands []protocol.Command
	for i := range 7 {
		commands = append(commands, Activity(fmt.Sprint("t", i), ""))
	}
	w.Begun("flow", commands...)
	list, err := w.S.LeaseTasks(t.Context(),
		store.LeaseRequest{Namespace: Namespace, Queue: Queue, Kind: protocol.KindActivity, Pollers: []store.Poller{
			{Lessee: engine.Lessee{Worker: a, PollID: "p"}, Max: 2},
			{Lessee: engine.Lessee{Worker: b}, Max: 0},
			{Lessee: engine.Lessee{Worker: b}, Max: 3},
		}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range list {
		got = append(got, fmt.Sprint(l.Activity.Type, l.Poller, l.Activity.Owner))
		if (l.Activity.PollID == "p") != (l.Poller == 0) || l.Head.ID == "" || l.Activity.Delivery != 1 ||
			l.Activity.Attempt != 1 {
			t.Errorf("leased %+v", l.Activity)
		}
	}
	if fmt.Sprint(got) != "[t00a t10a t22b t32b t42b]" {
		t.Fatalf("dealt %v", got)
	}
	w.View(func(r store.Reader) error {
		refs, err := r.Owned(t.Context(), b.Key(), "1")
		if len(refs) != 3 || refs[0].Kind != protocol.KindActivity || refs[0].Delivery != 1 {
			t.Errorf("b owns %+v, want three", refs)
		}
		held, herr := r.Holdings(t.Context(), Namespace)
		if herr != nil || held["a"].Leases != 2 || held["b"].Leases != 3 {
			t.Errorf("holdings %v, %v", held, herr)
		}
		stats, serr := r.Queues(t.Context(), Namespace)
		if serr != nil || len(stats) != 1 || stats[0].Ready != 2 || stats[0].Leased != 5 || stats[0].OldestReady.IsZero() {
			t.Errorf("queues %+v, %v", stats, serr)
		}
		return err
	})
}

func testKeepers(t *testing.T, s Suite) {
	w := s.New(t)
	a, b, old := w.Worker("a"), w.Worker("b"), w.Worker("c", func(w *engine.Worker) { w.Incarnation = "2" })
	var runs []string
	for i := range 4 {
		runs = append(runs, w.Start(fmt.Sprint("flow-", i)))
	}
	keeps := map[string][]store.Process{
		runs[0]: {
			{Worker: old.Key(), Incarnation: "1"}, {Worker: b.Key(), Incarnation: "1"}, {Worker: a.Key(), Incarnation: "1"},
		},
		runs[1]: {{Worker: old.Key(), Incarnation: "1"}}, // a process that has ended
		runs[2]: {{Worker: b.Key(), Incarnation: "1"}},   // it has leased the first one
	}
	list, err := w.S.LeaseTasks(t.Context(), store.LeaseRequest{
		Namespace: Namespace, Queue: w.Queue, Kind: protocol.KindWorkflow,
		StickyWorkers: func(run string) []store.Process { return keeps[run] },
		Pollers: []store.Poller{
			{Lessee: engine.Lessee{Worker: a}, Max: 3},
			{Lessee: engine.Lessee{Worker: b}, Max: 1},
			{Lessee: engine.Lessee{Worker: old}, Max: 3},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, l := range list {
		if l.Head.ID != runs[i] {
			t.Errorf("task %d is of run %s: the order of tasks changed", i, l.Head.ID)
		}
		got = append(got, fmt.Sprint(l.Poller, l.Head.Task.Owner))
	}
	if fmt.Sprint(got) != "[1b 0a 0a 0a]" {
		t.Errorf("dealt %v", got)
	}
}

func testRoutingKeys(t *testing.T, s Suite) {
	w := s.New(t)
	narrow := w.Worker("narrow", func(w *engine.Worker) {
		w.AnyActivity, w.ActivityTypes, w.WorkflowTypes = false, []string{"x"}, nil
	})
	gpu := w.Worker("gpu", func(w *engine.Worker) { w.Capabilities = []string{"gpu", "fast"} })
	hard := Activity("x", "")
	hard.Requirements = []string{"gpu"}
	w.Begun("flow", Activity("y", ""), hard, Activity("x", ""))
	w.Start("another")
	w.None(protocol.KindWorkflow, narrow)
	if l := w.One(protocol.KindActivity, narrow); l.Activity.Type != "x" || len(l.Activity.Requirements) > 0 {
		t.Fatalf("narrow got %+v", l.Activity)
	}
	w.None(protocol.KindActivity, narrow)
	if got := len(w.LeaseTasks(protocol.KindActivity, gpu, 5)); got != 2 {
		t.Fatalf("gpu got %d, want the two others", got)
	}
	w.One(protocol.KindWorkflow, gpu)
}

func testLapse(t *testing.T, s Suite) {
	w := s.New(t)
	a, b := w.Worker("a"), w.Worker("b")
	run := w.Begun("flow", Activity("x", ""))
	first := w.One(protocol.KindActivity, a)
	w.None(protocol.KindActivity, b)
	w.Pass(119 * time.Second)
	w.Sweep()
	w.None(protocol.KindActivity, b)
	w.Pass(time.Second)
	if got := fmt.Sprint(w.Sweep()); got != "[activity]" {
		t.Fatalf("swept %s, want the activity", got)
	}
	second := w.One(protocol.KindActivity, b)
	if second.Activity.Delivery != 2 || second.Activity.Attempt != 2 || len(second.Activity.Lost) != 1 {
		t.Fatalf("second delivery is %+v", second.Activity)
	}
	before := w.Run(run).LastSeq
	if _, err := w.S.Commit(t.Context(), Finishing(first)); protocol.ReasonOf(err) != protocol.ReasonStaleAttempt {
		t.Fatalf("late completion: %v, want a stale attempt", err)
	}
	if got := w.Run(run).LastSeq; got != before {
		t.Fatalf("a refused completion wrote event %d", got)
	}
	w.Finish(second)
	// The same for the workflow task: only the run's row contains its lease.
	task := w.One(protocol.KindWorkflow, a)
	w.None(protocol.KindWorkflow, b)
	w.Pass(engine.WorkflowLease)
	if got := fmt.Sprint(w.Sweep()); got != "[run]" {
		t.Fatalf("swept %s, want the run", got)
	}
	if repeated := w.One(protocol.KindWorkflow, b); repeated.Head.Task.Delivery != 2 ||
		repeated.Head.Task.Number != task.Head.Task.Number {
		t.Fatalf("second delivery of the workflow task is %+v", repeated.Head.Task)
	}
}

func testRetry(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w")
	most := 3
	c := Activity("x", "")
	c.RetryPolicy = &retry.Policy{MaxAttempts: &most, BackoffSeconds: []int{10}}
	run := w.Begun("flow", c)
	l := w.One(protocol.KindActivity, worker)
	w.Commit(Step(run, engine.FailActivity{
		Seq: l.Activity.Seq, Holder: engine.Holder{Owner: "w", Delivery: 1}, Failure: protocol.Failure{Message: "no"},
		Hash: "f",
	}, store.Keys{Activities: []int64{1}}))
	w.Sweep()
	w.None(protocol.KindActivity, worker)
	w.View(func(r store.Reader) error {
		before, err := w.S.Now(t.Context())
		if err != nil {
			return err
		}
		next, now, err := r.NextDue(t.Context(), before)
		d := next.Sub(now)
		if d < 5*time.Second || d > 15*time.Second || now.Before(before) || now.Sub(before) > time.Minute {
			t.Errorf("at %s next due at %s, want about 10 s later; it was %s before", now, next, before)
		}
		return err
	})
	w.Pass(15 * time.Second)
	w.Sweep()
	if second := w.One(protocol.KindActivity, worker); second.Activity.Attempt != 2 {
		t.Fatalf("attempt %d, want 2", second.Activity.Attempt)
	}
}

func testClaimers(t *testing.T, s Suite) {
	w := s.New(t)
	const tasks, claimers = 200, 8
	w.schedule(tasks)
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	for i := range claimers {
		worker := w.Worker(fmt.Sprint("w", i))
		wg.Go(func() {
			for {
				list, err := w.S.LeaseTasks(context.Background(), store.LeaseRequest{
					Namespace: Namespace, Queue: Queue, Kind: protocol.KindActivity,
					Pollers: []store.Poller{{Lessee: engine.Lessee{Worker: worker}, Max: 3}},
				})
				if err != nil {
					t.Error(err)
				}
				if len(list) == 0 {
					return
				}
				mu.Lock()
				for _, l := range list {
					got[Name(l)]++
				}
				mu.Unlock()
				for _, l := range list {
					if _, err := w.S.Commit(context.Background(), Finishing(l)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if len(got) != tasks {
		t.Fatalf("%d tasks were leased, want %d", len(got), tasks)
	}
	for name, n := range got {
		if n != 1 {
			t.Errorf("%s was leased %d times", name, n)
		}
	}
}

func testDue(t *testing.T, s Suite) {
	w := s.New(t)
	w.Worker("w")
	in := start(w, "timed")
	in.Request.RunTimeout = 30
	timed := w.StartAs(in)
	run := w.Begun(
		"timers", protocol.Command{Type: protocol.StartTimer, Delay: new(int64(20))},
		protocol.Command{Type: protocol.StartTimer, Delay: new(int64(10))},
	)
	_ = timed
	w.View(func(r store.Reader) error {
		now, err := w.S.Now(t.Context())
		if err != nil {
			return err
		}
		list, err := r.Due(t.Context(), now.Add(time.Hour), 10)
		var kinds []string
		for i, d := range list {
			kinds = append(kinds, fmt.Sprint(d.Kind, d.Seq))
			if i > 0 && d.At.Before(list[i-1].At) {
				t.Errorf("%v comes before %v", list[i-1], d)
			}
		}
		slices.Sort(kinds[2:])
		if fmt.Sprint(kinds[:2]) != "[timer2 timer1]" {
			t.Errorf("due are %v, want the timers first", kinds)
		}
		if some, _ := r.Due(t.Context(), now.Add(time.Hour), 1); len(some) != 1 {
			t.Errorf("a limit of 1 gave %d", len(some))
		}
		if none, _ := r.Due(t.Context(), now, 10); len(none) != 0 {
			t.Errorf("%v are due already", none)
		}
		return err
	})
	w.Pass(11 * time.Second)
	w.Sweep()
	if got := w.Run(run).Timers.Len(); got != 1 {
		t.Fatalf("%d timers are left, want 1", got)
	}
	w.Pass(25 * time.Second)
	w.Sweep()
	w.View(func(r store.Reader) error {
		list, err := r.Runs(
			t.Context(), store.RunQuery{Namespace: Namespace, Statuses: []protocol.RunStatus{protocol.RunTimedOut}},
		)
		if len(list.Heads) != 1 {
			t.Errorf("%d runs timed out, want 1", len(list.Heads))
		}
		return err
	})
}
