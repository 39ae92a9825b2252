package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func testTwo(t *testing.T, s Suite) {
	if !s.Shared {
		t.Skip("one process has this database to itself")
	}
	line := &Line{}
	one, two := s.Fixture(t, "a", Options{App: "one"}), s.Fixture(t, "a", Options{App: "two", Dispatch: line})
	worker := two.Worker("w")
	// Either app can lease the task, and the other app is notified of it.
	run := one.Start("flow")
	var queues, changes int // notices arrive one after the other
	two.until("the other app's hint", func() bool {
		backlog, _, changed := line.hints()
		queues, changes = queues+len(backlog), changes+len(changed)
		return queues > 0 && changes > 0
	})
	l := two.One(protocol.KindWorkflow, worker)
	line.hints()
	one.Decide(l, Activity("x", "s"), Activity("y", ""))
	two.until("the other app's hint", func() bool { backlog, _, _ := line.hints(); return len(backlog) > 0 })
	for _, task := range two.LeaseTasks(protocol.KindActivity, worker, 5) {
		one.Finish(task)
	}
	if got := two.Run(run).Activities.Len(); got != 0 {
		t.Fatalf("%d activities are open", got)
	}
	// A workflow ID is started once, whichever app receives the request.
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 40 {
		w, in := []*Fixture{one, two}[i%2], start(one, fmt.Sprint("contested", i/4))
		wg.Go(func() {
			_, err := w.S.Commit(context.Background(), StartChange(in))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, ErrExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 10 {
		t.Fatalf("%d starts won 10 ids", won)
	}
	// Both write one run at once and lose nothing.
	for i := range 60 {
		w := []*Fixture{one, two}[i%2]
		wg.Go(func() {
			if _, err := w.S.Commit(context.Background(), Step(run, engine.SignalRun{
				Name: fmt.Sprint(i),
			}, store.Keys{})); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := one.Run(run).Signals.Len(); got != 60 {
		t.Fatalf("%d signals arrived, want 60", got)
	}
}

// testSkipped: a claim skips a run that another app has locked, and finds no other task. If the other app changes
// nothing, because its request is refused, it still has to send a notice: otherwise the task would wait for another
// event in its queue.
func testSkipped(t *testing.T, s Suite) {
	if !s.Shared {
		t.Skip("one process has this database to itself")
	}
	line := &Line{}
	one, two := s.Fixture(t, "a", Options{App: "one"}), s.Fixture(t, "a", Options{App: "two", Dispatch: line})
	worker := two.Worker("w")
	run := one.Start("flow")
	two.until("the other app's hint", func() bool { backlog, _, _ := line.hints(); return len(backlog) > 0 })
	locked, release, done := make(chan struct{}), make(chan struct{}), make(chan error)
	refused := errors.New("refused")
	go func() {
		var once sync.Once
		_, err := one.S.Commit(context.Background(), store.Transaction{Needs: store.Keys{
			Runs: []string{run},
		}, Decide: func(store.Rows, time.Time) (store.Writes, error) {
			once.Do(func() { close(locked) })
			<-release
			return store.Writes{}, refused
		}})
		done <- err
	}()
	<-locked
	two.None(protocol.KindWorkflow, worker)
	close(release)
	if err := <-done; !errors.Is(err, refused) {
		t.Fatal(err)
	}
	two.until("word that the task is to be had", func() bool { backlog, _, _ := line.hints(); return len(backlog) > 0 })
	leased := two.One(protocol.KindWorkflow, worker)
	// The same applies to a claim: leasing one task of a run hides the run's other tasks from other apps.
	one.Decide(
		leased, Activity("x", ""), protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "y", Queue: "elsewhere"},
	)
	notified := func() bool { // the last notice
		backlog, _, _ := line.hints()
		return slices.ContainsFunc(backlog, func(s string) bool { return strings.Contains(s, "elsewhere") })
	}
	two.until("the other app's hint", notified)
	one.One(protocol.KindActivity, one.Worker("v"))
	two.until("word of the other queue", notified)
}

// testLockedHolding checks that all sessions of a worker are counted, even if another app has locked one of them and a
// change in the same batch needs that one.
func testLockedHolding(t *testing.T, s Suite) {
	if !s.Shared {
		t.Skip("one process has this database to itself")
	}
	one, two := s.Fixture(t, "a", Options{App: "one"}), s.Fixture(t, "a", Options{App: "two"})
	worker := one.Worker("w", Sessions(2, time.Hour))
	one.startInSessions("x", "y")
	one.claimActivity(worker)
	one.claimActivity(worker)
	x := engine.SessionKey{Namespace: Namespace, ID: "x"}
	locked, release, done := make(chan struct{}), make(chan struct{}), make(chan error)
	var enter, leave sync.Once
	go func() {
		_, err := one.S.Commit(context.Background(), store.Transaction{
			Needs: store.Keys{Sessions: []engine.SessionKey{x}},
			Decide: func(store.Rows, time.Time) (store.Writes, error) {
				enter.Do(func() { close(locked) })
				<-release
				return store.Writes{}, errNo
			},
		})
		done <- err
	}()
	<-locked
	held := 0
	two.together(
		store.Transaction{
			Needs:  store.Keys{Sessions: []engine.SessionKey{x}},
			Decide: func(store.Rows, time.Time) (store.Writes, error) { return store.Writes{}, errNo },
		},
		store.Transaction{
			Needs: store.Keys{Workers: []engine.WorkerKey{worker.Key()}, Holdings: true},
			Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
				held = rows.Holding(worker.Key(), engine.SessionKey{}, now)
				leave.Do(func() { close(release) })
				return store.Writes{}, errNo
			},
		},
	)
	if err := <-done; !errors.Is(err, errNo) {
		t.Fatal(err)
	}
	if held != 2 {
		t.Fatalf("the worker holds %d sessions, want 2", held)
	}
}

// contend lets apps claim activities for one worker, eight at a time, up to max in a claim. It returns the number of
// tasks that they leased together.
func contend(t *testing.T, worker *engine.Worker, max int, apps ...*Fixture) int {
	var wg sync.WaitGroup
	var leased atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			for range 10 {
				list, err := apps[i%len(apps)].S.LeaseTasks(context.Background(), store.LeaseRequest{
					Namespace: Namespace, Queue: Queue, Kind: protocol.KindActivity,
					Pollers: []store.Poller{{Lessee: engine.Lessee{Worker: worker}, Max: max}},
				})
				if err != nil {
					t.Error(err)
				}
				leased.Add(int64(len(list)))
			}
		})
	}
	wg.Wait()
	return int(leased.Load())
}

// testTwoCaps lets two apps claim for one worker at once: the worker must never hold more sessions than its limit.
func testTwoCaps(t *testing.T, s Suite) {
	if !s.Shared {
		t.Skip("one process has this database to itself")
	}
	one, two := s.Fixture(t, "a", Options{App: "one"}), s.Fixture(t, "a", Options{App: "two"})
	const most, sessions = 3, 30
	worker := one.Worker("w", Sessions(most, time.Hour))
	for i := range sessions {
		one.startInSessions(fmt.Sprint("s", i))
	}
	leased := contend(t, worker, 2, one, two)
	one.View(func(r store.Reader) error {
		held, err := r.Holdings(t.Context(), Namespace)
		if held["w"].Sessions != most || leased != most {
			t.Errorf("worker holds %d sessions after %d leases, its most is %d", held["w"].Sessions, leased, most)
		}
		return err
	})
}

// testOneBatch commits several claims for one worker in one batch: each counts the leases of the earlier ones.
func testOneBatch(t *testing.T, s Suite) {
	w := s.New(t)
	const most = 3
	worker := w.Worker("w", Sessions(most, time.Hour))
	for i := range 12 {
		w.startInSessions(fmt.Sprint("s", i))
	}
	busy, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		var once sync.Once
		_, err := w.S.Commit(context.Background(), store.Transaction{Decide: func(store.Rows, time.Time) (
			store.Writes, error,
		) {
			once.Do(func() { close(busy) })
			<-release
			return store.Writes{}, nil
		}})
		if err != nil {
			t.Error(err)
		}
	})
	<-busy
	var leased atomic.Int64
	for range 4 {
		all.Go(func() {
			list, err := w.S.LeaseTasks(context.Background(), store.LeaseRequest{
				Namespace: Namespace, Queue: Queue, Kind: protocol.KindActivity,
				Pollers: []store.Poller{{Lessee: engine.Lessee{Worker: worker}, Max: 5}},
			})
			if err != nil {
				t.Error(err)
			}
			leased.Add(int64(len(list)))
		})
	}
	for w.S.(interface{ Waiting() int }).Waiting() < 4 {
		runtime.Gosched()
	}
	close(release)
	all.Wait()
	if got := leased.Load(); got != most {
		t.Errorf("four claims of one batch gave %d sessions, the worker's most is %d", got, most)
	}
}
