package admission

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

const processors = 2

// requests are the requests of a test.
type requests struct {
	*Limiter
	t     *testing.T
	delay time.Duration // delay of the scheduler
	alone bool          // no other namespace is active
}

func newRequests(t *testing.T) *requests {
	r := &requests{t: t, delay: time.Second}
	r.Limiter = New(Options{
		OthersActive: func(string) bool { return !r.alone },
		Delay:        func() time.Duration { return r.delay },
		Processors:   processors,
	})
	return r
}

// entered is a request that entered, or waits.
type entered struct {
	place Place
	err   error
	done  chan struct{}
}

// enter sends a request and returns when it is in progress or waits.
func (r *requests) enter(ctx context.Context, namespace string, weight int) *entered {
	e := &entered{done: make(chan struct{})}
	go func() {
		defer close(e.done)
		e.err = e.place.Enter(ctx, r.Limiter, namespace, weight)
	}()
	synctest.Wait()
	return e
}

// inProgress returns the number of these requests in progress.
func inProgress(list []*entered) (n int) {
	for _, e := range list {
		select {
		case <-e.done:
			if e.err == nil && e.place.limiter != nil {
				n++
			}
		default:
		}
	}
	return n
}

func (r *requests) flood(namespace string, n, weight int) (list []*entered) {
	for range n {
		list = append(list, r.enter(r.t.Context(), namespace, weight))
	}
	return list
}

// tick lets the limit be adjusted, by a request of a third namespace.
func (r *requests) tick() {
	time.Sleep(interval)
	e := r.enter(r.t.Context(), "tick", 1)
	e.place.Leave()
	synctest.Wait()
}

func TestANamespaceAloneIsNotLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t)
		r.alone = true
		if n := inProgress(r.flood("a", 500, 40)); n != 500 {
			t.Errorf("%d of 500 requests are in progress", n)
		}
	})
}

func TestNothingIsLimitedWhileProcessorsAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t)
		r.delay = maxDelay
		if n := inProgress(r.flood("a", 500, 1)); n != 500 {
			t.Errorf("%d of 500 requests are in progress", n)
		}
	})
}

func TestAFloodLeavesTheProcessorsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t)
		const limit = perProcessor * processors
		flood := r.flood("flood", 100, 1)
		if n := inProgress(flood); n != limit {
			t.Fatalf("%d requests of a flood are in progress, want %d", n, limit)
		}
		quiet := r.flood("quiet", processors+1, 1)
		if n := inProgress(quiet); n != processors {
			t.Errorf("next to a flood %d requests of another namespace are in progress, want %d", n, processors)
		}
		flood[0].place.Leave() // more requests than the limit are in progress: no request is admitted
		flood[1].place.Leave()
		synctest.Wait()
		if n := inProgress(flood) + inProgress(quiet); n != limit {
			t.Errorf("%d requests are in progress, want %d", n, limit)
		}
		quiet[0].place.Leave() // 2 requests of the flood and 1 of the other namespace are left: the other one has fewer
		synctest.Wait()
		if n := inProgress(quiet); n != processors {
			t.Errorf("the freed place went to the flood: the other namespace has %d, want %d", n, processors)
		}

		// With free processors the limit rises, and everything that waits is admitted.
		r.delay = 0
		for range 200 {
			r.tick()
		}
		if waiting := r.Stats().Waiting; waiting != 0 {
			t.Errorf("%d requests still wait while processors are free", waiting)
		}
	})
}

// A large request counts as many small ones, and is still admitted if its namespace has no other request.
func TestLargeRequestsOfANamespaceRunOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t)
		held := r.flood("small", perProcessor*processors, 1)
		r.tick()
		large := r.flood("large", 3, 40)
		for turn := range large {
			if n := inProgress(large); n != 1 {
				t.Fatalf("turn %d: %d large requests are in progress, want 1", turn, n)
			}
			large[turn].place.Leave()
			synctest.Wait()
		}
		if n := inProgress(held); n != len(held) {
			t.Errorf("%d of %d small requests are in progress", n, len(held))
		}
	})
}

func TestAWaitingRequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t)
		r.flood("flood", perProcessor*processors, 1)
		r.tick()
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := r.enter(ctx, "flood", 1)
		late := r.enter(t.Context(), "flood", 1)
		cause := errors.New("the caller is gone")
		cancel(cause)
		synctest.Wait()
		if <-gone.done; !errors.Is(gone.err, cause) {
			t.Errorf("got %v, want the cause", gone.err)
		}
		time.Sleep(maxWait)
		synctest.Wait()
		if <-late.done; !errors.Is(late.err, ErrOverloaded) {
			t.Errorf("got %v, want %v", late.err, ErrOverloaded)
		}
		if s := r.Stats(); s != (Stats{}) {
			t.Errorf("got %+v", s)
		}
		late.place.Leave() // does nothing
	})
}

func TestTooManyWaitingRequestsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t)
		r.flood("flood", perProcessor*processors, 1)
		r.tick()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range maxWaiting {
			go func() { _ = new(Place).Enter(ctx, r.Limiter, "flood", 1) }()
		}
		synctest.Wait()
		if err := new(Place).Enter(ctx, r.Limiter, "flood", 1); !errors.Is(err, ErrOverloaded) {
			t.Errorf("got %v, want %v", err, ErrOverloaded)
		}
		if err := new(Place).Enter(ctx, r.Limiter, "quiet", 1); err != nil {
			t.Errorf("another namespace: %v", err)
		}
	})
}

func TestARequestAllocatesNothingForItsPlace(t *testing.T) {
	r := newRequests(t)
	var p Place
	if n := testing.AllocsPerRun(1000, func() {
		if err := p.Enter(t.Context(), r.Limiter, "a", 1); err != nil {
			t.Fatal(err)
		}
		p.Leave()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNamespacesWithoutRequestsAreForgotten(t *testing.T) {
	r := newRequests(t)
	for i := range 4 * rememberedNamespaces {
		var p Place
		if err := p.Enter(t.Context(), r.Limiter, string(rune('a'+i)), 1); err != nil {
			t.Fatal(err)
		}
		p.Leave()
	}
	if n := len(r.namespaces); n > rememberedNamespaces+1 {
		t.Errorf("%d namespaces are remembered", n)
	}
}

func TestTheDelayOfTheScheduler(t *testing.T) {
	var d schedulerDelay
	d.read()
	for range 1000 { // goroutines that run one after the other
		done := make(chan struct{})
		go close(done)
		<-done
	}
	if delay := d.read(); delay <= 0 || delay > time.Minute {
		t.Errorf("delay %v", delay)
	}
}
