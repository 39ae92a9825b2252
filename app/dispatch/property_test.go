package dispatch

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// model runs random polls, offers, failures and delays against a Dispatch, and tracks where each task is: always in
// exactly one place.
type model struct {
	*rapid.T
	d       *Dispatch
	b       *backlog
	workers []*engine.Worker
	next    int
	made    map[time.Time]store.Offer // offers by their time, which identifies them
	open    []promise
	polls   []*poll
	took    map[time.Time]int // number of deliveries of each task to polls
}

type promise struct {
	r store.Reservation
	o store.Offer
}

type poll struct {
	spec   Spec
	cancel context.CancelFunc
	done   chan []store.Leased
}

// TestTasksAreNeitherLostNorDoubled checks the main property of the dispatcher: each task is delivered to one poll
// once, no poll gets more tasks than it has free slots, the longest-waiting poll is served first, and no task is
// delivered before an older task that the poll could run, except a task that the poll itself created and that may do
// so.
func TestTasksAreNeitherLostNorDoubled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A synctest bubble has no test deadline, so rapid must not see that this is a *testing.T.
		rapid.Check(struct{ *testing.T }{t}, func(r *rapid.T) {
			d, b := newBacklog()
			plain, picky, able := worker("plain", "t0", "t1"), worker("picky", "t0"), worker("able", "t0", "t1")
			able.Capabilities = []string{"gpu"}
			w := &model{
				T: r, d: d, b: b, workers: []*engine.Worker{plain, picky, able}, made: map[time.Time]store.Offer{},
				took: map[time.Time]int{},
			}
			w.Repeat(map[string]func(*rapid.T){
				"":       func(*rapid.T) { w.settle() },
				"poll":   func(*rapid.T) { w.poll() },
				"batch":  func(*rapid.T) { w.batch() },
				"commit": func(*rapid.T) { w.commit() },
				"others": func(*rapid.T) { w.others() },
				"leave":  func(*rapid.T) { w.addReady() },
				"gone": func(*rapid.T) { // the worker registers again immediately
					name := rapid.SampledFrom(w.workers).Draw(w.T, "gone")
					w.d.Deregistered(store.Process{Worker: name.Key(), Incarnation: name.Incarnation})
				},
				"break": func(*rapid.T) { w.breakdown() },
				"time":  func(*rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 3000).Draw(r, "us")) * time.Microsecond) },
			})
			w.finish()
		})
	})
}

func (w *model) offer() store.Offer {
	w.next++
	o := store.Offer{
		Namespace: "default", Now: time.Unix(0, int64(w.next)), Kind: rapid.SampledFrom(kindNames[:2]).Draw(w.T, "kind"),
	}
	o.Queue = rapid.SampledFrom([]string{"q", "p"}).Draw(w.T, "queue")
	o.Type = rapid.SampledFrom([]string{"t0", "t1"}).Draw(w.T, "type")
	if rapid.IntRange(0, 4).Draw(w.T, "needs") == 0 {
		o.Requirements = []string{"gpu"}
	}
	o.Run = rapid.SampledFrom([]string{"r0", "r1"}).Draw(w.T, "run")
	o.Priority, o.MayOvertake = rapid.IntRange(4, 6).Draw(w.T, "priority"), rapid.Bool().Draw(w.T, "past")
	w.made[o.Now] = o
	return o
}

func (w *model) poll() {
	s := Spec{
		Namespace: "default", Queues: []string{"q", "p"}[:rapid.IntRange(1, 2).Draw(w.T, "queues")], Kinds: kindNames[:],
		Free: map[protocol.TaskKind]int{
			protocol.KindActivity: rapid.IntRange(0, 3).Draw(w.T, "activity slots"),
			protocol.KindWorkflow: rapid.IntRange(0, 2).Draw(w.T, "workflow slots"),
		},
		Max:    rapid.IntRange(1, 4).Draw(w.T, "max"),
		Lessee: engine.Lessee{Worker: rapid.SampledFrom(w.workers).Draw(w.T, "worker")},
	}
	for range rapid.IntRange(0, 2).Draw(w.T, "own") {
		s.Own = append(s.Own, Own{
			rapid.SampledFrom([]string{"r0", "r1"}).Draw(w.T, "of"), rapid.SampledFrom(kindNames[:2]).Draw(w.T, "makes"),
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &poll{spec: s, cancel: cancel, done: make(chan []store.Leased, 1)}
	w.polls = append(w.polls, p)
	waiter := w.d.Enter(s)
	hold := time.Duration(rapid.IntRange(-1, 20).Draw(w.T, "hold")) * time.Millisecond
	go func() {
		if hold < 0 {
			p.done <- waiter.Collect(ctx)
			return
		}
		tasks, _ := waiter.Wait(ctx, hold)
		p.done <- tasks
	}()
}

// batch reserves pollers for new tasks and writes unreserved tasks as ready. A later step of the model commits or fails
// the transaction.
func (w *model) batch() {
	for range rapid.IntRange(1, 5).Draw(w.T, "tasks") {
		o := w.offer()
		first := w.longest(o)
		r := w.d.Reserve(o)
		if r == nil {
			if first != nil && first.entry(w.d.pollQueues[keyOf(o)]).spot.hasNoOlderTask() {
				w.Fatalf("task %d was not delivered to the poll that waits for it", o.Now.UnixNano())
			}
			w.open = append(w.open, promise{o: o})
			continue
		}
		got := r.(*reservation).waiter
		may := o.MayOvertake && slices.ContainsFunc(got.spec.Own, func(own Own) bool { return own.Run == o.Run })
		if got != first && !may {
			w.Fatalf(
				"task %d was handed to arrival %d, the longest wait is arrival %d", o.Now.UnixNano(), got.place, first.place,
			)
		}
		w.b.mu.Lock()
		ready := slices.Clone(w.b.ready)
		w.b.mu.Unlock()
		for _, old := range ready {
			if may && old.Priority >= o.Priority {
				continue
			}
			if fits(old, store.LeaseRequest{Namespace: "default", Queue: o.Queue, Kind: o.Kind}, got.spec.Lessee) {
				w.Fatalf("task %d was delivered before %d", o.Now.UnixNano(), old.Now.UnixNano())
			}
		}
		w.open = append(w.open, promise{r: r, o: o})
	}
}

func keyOf(o store.Offer) pollQueueKey { return pollQueueKey{o.Namespace, o.Queue, kindOf(o.Kind)} }

// longest returns the poll that should get the task if no older tasks wait, by searching all polls.
func (w *model) longest(o store.Offer) *Waiter {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	var first *Waiter
	for c := range w.d.waiters {
		asks := slices.Contains(c.spec.Queues, o.Queue) && slices.Contains(c.spec.Kinds, o.Kind)
		if asks && c.room(kindOf(o.Kind)) > 0 && engine.Admit(want(o), c.spec.Lessee, o.Now).OK &&
			(first == nil || c.place < first.place) {
			first = c
		}
	}
	return first
}

func (w *model) commit() {
	fail := rapid.IntRange(0, 3).Draw(w.T, "fails") == 0
	for _, p := range w.open {
		switch {
		case fail && p.r != nil:
			p.r.Undo()
			w.b.addReady(p.o) // the transaction is retried and finds no poll
		case p.r != nil:
			p.r.Deliver(lease(p.o, 0))
		default:
			w.b.addReady(p.o)
		}
	}
	w.open = nil
}

// others makes a task ready without a reservation, as another app does.
func (w *model) others() { w.b.addReady(w.offer()) }

func (w *model) addReady() {
	if len(w.polls) > 0 {
		rapid.SampledFrom(w.polls).Draw(w.T, "who").cancel()
	}
}

func (w *model) breakdown() {
	var fail error
	if rapid.Bool().Draw(w.T, "broken") {
		fail = store.ErrUnavailable
	}
	w.b.set(fail, time.Duration(rapid.IntRange(0, 5000).Draw(w.T, "took"))*time.Microsecond)
}

// settle checks the finished polls and adds returned tasks to the store again.
func (w *model) settle() {
	synctest.Wait()
	w.polls = slices.DeleteFunc(w.polls, func(p *poll) bool {
		select {
		case tasks := <-p.done:
			w.check(p.spec, tasks)
			p.cancel()
			return true
		default:
			return false
		}
	})
	w.b.mu.Lock()
	back := w.b.back
	w.b.back = nil
	w.b.mu.Unlock()
	for _, t := range back {
		w.b.addReady(w.made[t.Head.ProgressAt.Time])
	}
}

func (w *model) check(s Spec, tasks []store.Leased) {
	count := map[protocol.TaskKind]int{}
	for _, t := range tasks {
		w.took[t.Head.ProgressAt.Time]++
		count[t.Kind]++
		if o := w.made[t.Head.ProgressAt.Time]; !slices.Contains(s.Queues, o.Queue) ||
			!engine.Admit(want(o), s.Lessee, o.Now).OK {
			w.Fatalf("worker %s was given task %+v", s.Lessee.Worker.ID, o)
		}
	}
	for k, n := range count {
		if n > s.Free[k] {
			w.Fatalf("%d tasks of kind %s for %d slots", n, k, s.Free[k])
		}
	}
	if len(tasks) > s.Max {
		w.Fatalf("%d tasks for a poller that takes %d", len(tasks), s.Max)
	}
}

// finish lets every worker lease all remaining tasks, and counts them.
func (w *model) finish() {
	w.commit()
	w.b.set(nil, time.Millisecond)
	for _, p := range w.polls {
		p.cancel()
	}
	time.Sleep(time.Minute) // long pauses after failures have ended, and claims that hung have returned
	w.settle()
	w.settle()
	for _, worker := range w.workers {
		for {
			s := Spec{
				Namespace: "default", Queues: []string{"q", "p"}, Kinds: kindNames[:2], Max: 9,
				Lessee: engine.Lessee{Worker: worker},
			}
			s.Free = map[protocol.TaskKind]int{protocol.KindActivity: 9, protocol.KindWorkflow: 9}
			tasks, err := w.d.Enter(s).Wait(context.Background(), 0)
			if err != nil {
				w.Fatalf("the last poll of %s: %v", worker.ID, err)
			}
			if len(tasks) == 0 {
				break
			}
			w.check(s, tasks)
		}
	}
	if err := w.d.Close(context.Background()); err != nil {
		w.Fatalf("close: %v", err)
	}
	for id := range w.made {
		if n := w.took[id]; n != 1 {
			w.Fatalf("task %d reached %d pollers", id.UnixNano(), n)
		}
	}
	if c := w.d.Counts(); c.Waiting != 0 || w.d.busy != 0 {
		w.Fatalf("%d polls and %d open outcomes remain", c.Waiting, w.d.busy)
	}
	for k, l := range w.d.pollQueues {
		if l.size != 0 || len(l.asking) > 0 {
			w.Fatalf("line %v is not empty", k)
		}
		for _, g := range l.groups {
			if g.first == nil && g.last == nil {
				continue
			}
			w.Fatalf("line %v is not empty", k)
		}
	}
}
