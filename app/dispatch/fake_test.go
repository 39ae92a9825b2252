package dispatch

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backlog is a fake store in memory: ready tasks in order, and claims that take a millisecond.
type backlog struct {
	d *Dispatch

	mu     sync.Mutex // guards the other fields
	ready  []store.Offer
	claims []store.LeaseRequest
	fail   error
	took   time.Duration
	back   []store.Leased
}

func newBacklog() (*Dispatch, *backlog) {
	d := New(Options{})
	b := &backlog{d: d, took: time.Millisecond}
	d.Bind(b, b.giveBack, nil)
	return d, b
}

func (b *backlog) LeaseTasks(ctx context.Context, r store.LeaseRequest) ([]store.Leased, error) {
	b.mu.Lock()
	b.claims = append(b.claims, r)
	took := b.took
	b.mu.Unlock()
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return nil, b.fail
	}
	var leased []store.Leased
	given := make([]int, len(r.Pollers))
	for i := 0; i < len(b.ready); i++ {
		o := b.ready[i]
		for p, poller := range r.Pollers {
			if given[p] < poller.Max && fits(o, r, poller.Lessee) {
				given[p]++
				leased = append(leased, lease(o, p))
				b.ready = slices.Delete(b.ready, i, i+1)
				i--
				break
			}
		}
	}
	for _, o := range b.ready {
		if slices.ContainsFunc(r.Pollers, func(p store.Poller) bool { return fits(o, r, p.Lessee) }) {
			b.d.Backlog(r.Namespace, r.Queue, r.Kind, routingKeyOf(o))
		}
	}
	return leased, nil
}

func fits(o store.Offer, r store.LeaseRequest, l engine.Lessee) bool {
	return o.Namespace == r.Namespace && o.Queue == r.Queue && o.Kind == r.Kind && engine.Admit(want(o), l, o.Now).OK
}

func want(o store.Offer) engine.TaskRequirements {
	return engine.TaskRequirements{
		Kind: o.Kind, Type: o.Type, BuildID: o.BuildID, Requirements: o.Requirements, Session: o.Session,
	}
}

// lease returns the task of an offer. Offers have no ID, so tests identify them by their unique time, or by their type.
func lease(o store.Offer, poller int) store.Leased {
	return store.Leased{
		Kind: o.Kind, Poller: poller, Head: engine.Head{ProgressAt: history.Time{Time: o.Now}}, Arguments: o.Type,
	}
}

func (b *backlog) giveBack(tasks []store.Leased) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back = append(b.back, tasks...)
}

// addReady adds ready tasks without a reservation to the store and sends backlog notifications.
func (b *backlog) addReady(offers ...store.Offer) {
	b.mu.Lock()
	b.ready = append(b.ready, offers...)
	b.mu.Unlock()
	for _, o := range offers {
		b.d.Backlog(o.Namespace, o.Queue, o.Kind, routingKeyOf(o))
	}
}

func routingKeyOf(o store.Offer) store.RoutingKey {
	return store.RoutingKey{Type: o.Type, BuildID: o.BuildID, Requirements: o.Requirements, Priority: o.Priority}
}

func (b *backlog) sent() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.claims)
}

func (b *backlog) returned() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return names(b.back)
}

func (b *backlog) set(fail error, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail, b.took = fail, took
}

func names(tasks []store.Leased) []string {
	all := []string{}
	for _, t := range tasks {
		all = append(all, t.Arguments)
	}
	return all
}

// worker returns a registration with these types, for workflows and activities.
func worker(id string, types ...string) *engine.Worker {
	return &engine.Worker{
		Namespace: "default", ID: id, Incarnation: id + "-1", WorkflowTypes: types, ActivityTypes: types,
		AnyActivity: len(types) == 0,
	}
}

func spec(w *engine.Worker, most int, slots map[protocol.TaskKind]int) Spec {
	s := Spec{Namespace: "default", Queues: []string{"q"}, Free: slots, Max: most, Lessee: engine.Lessee{Worker: w}}
	for _, k := range kindNames {
		if slots[k] > 0 {
			s.Kinds = append(s.Kinds, k)
		}
	}
	return s
}

var oneActivity = map[protocol.TaskKind]int{protocol.KindActivity: 1}

func activity(typ string) store.Offer {
	return store.Offer{Kind: protocol.KindActivity, Namespace: "default", Queue: "q", Type: typ, Now: time.Now()}
}

func workflow(typ string) store.Offer {
	o := activity(typ)
	o.Kind = protocol.KindWorkflow
	return o
}

func held(by *engine.Worker, now time.Time) *engine.Session {
	return &engine.Session{
		Namespace: "default", ID: "s", Status: protocol.SessionActive, Owner: by.ID, Incarnation: by.Incarnation,
		EverAcquired: true,
		LeaseUntil:   history.At(now.Add(time.Minute)),
	}
}

// answer is the result of one call of Wait.
type answer struct {
	tasks []string
	err   error
	took  time.Duration
}

func waitFor(ctx context.Context, w *Waiter, hold time.Duration) <-chan answer {
	c := make(chan answer, 1)
	start := time.Now()
	go func() {
		tasks, err := w.Wait(ctx, hold)
		c <- answer{names(tasks), err, time.Since(start)}
	}()
	return c
}

func wantTasks(t *testing.T, c <-chan answer, tasks ...string) {
	t.Helper()
	got := <-c
	if got.err != nil || !slices.Equal(got.tasks, tasks) {
		t.Fatalf("got %v and error %v, want %v", got.tasks, got.err, tasks)
	}
}

func mustReserve(t *testing.T, d *Dispatch, o store.Offer) store.Reservation {
	t.Helper()
	r := d.Reserve(o)
	if r == nil {
		t.Fatalf("no poll was reserved for %s %s", o.Kind, o.Type)
	}
	return r
}

func closed(t *testing.T, d *Dispatch) {
	t.Helper()
	if err := d.Close(t.Context()); err != nil {
		t.Fatalf("close: %v", err)
	}
}
