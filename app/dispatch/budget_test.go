package dispatch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// throttledStore is a store with one task, which a limit delays until the test removes the limit.
type throttledStore struct {
	d *Dispatch

	mu     sync.Mutex // guards the other fields
	bound  *engine.Throttle
	claims int
}

func (s *throttledStore) LeaseTasks(_ context.Context, r store.LeaseRequest) ([]store.Leased, error) {
	s.mu.Lock()
	s.claims++
	bound := s.bound
	s.mu.Unlock()
	if bound != nil {
		s.d.Throttled(r.Namespace, r.Queue, r.Kind, *bound)
		return nil, nil
	}
	return []store.Leased{{Kind: r.Kind, Arguments: "x"}}, nil
}

func (s *throttledStore) set(bound *engine.Throttle) (claims int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound = bound
	return s.claims
}

// While a limit delays a queue's tasks, the queue is claimed once. The end of a lease, the end of the minute, or a
// change of the settings triggers the next claim immediately. A poll that ends without a task reports the limit.
func TestThrottledPollQueueClaimsAgainWhenTheBudgetAllows(t *testing.T) {
	leases, minute := &engine.Throttle{Why: &protocol.Wait{Limit: 2}},
		&engine.Throttle{Why: &protocol.Wait{Limit: 1}, Wait: 40 * time.Second}
	for name, c := range map[string]struct {
		bound *engine.Throttle
		room  func(*Dispatch)
		after time.Duration
	}{
		"a lease ends":              {leases, func(d *Dispatch) { d.Backlog("default", "q", protocol.KindActivity) }, 0},
		"one of another queue ends": {leases, func(d *Dispatch) { d.Backlog("default", "", protocol.KindActivity) }, 0},
		"the minute ends":           {minute, func(*Dispatch) {}, 40 * time.Second},
		"a budget is changed": {minute, func(d *Dispatch) {
			d.Queue(&engine.Queue{Namespace: "default", Name: "q"})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := New(Options{})
				s := &throttledStore{d: d, bound: c.bound}
				d.Bind(s, nil, nil)
				in := spec(worker("w"), 1, oneActivity)
				vain := d.Enter(in)
				if got, err := vain.Wait(t.Context(), 10*time.Second); len(got) > 0 || err != nil ||
					vain.Throttled() != c.bound.Why {
					t.Fatalf("the first poll: %v, %v, %v", got, err, vain.Throttled())
				}
				began := time.Now()
				var got []store.Leased
				done := make(chan struct{})
				w := d.Enter(in)
				go func() { got, _ = w.Wait(t.Context(), time.Minute); close(done) }()
				synctest.Wait()
				if n := s.set(nil); n != 1 {
					t.Fatalf("%d claims while the budget had no room, want 1", n)
				}
				c.room(d)
				<-done
				if len(got) != 1 || time.Since(began) > c.after {
					t.Fatalf("%d tasks after %v, want one within %v", len(got), time.Since(began), c.after)
				}
				if err := d.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A drain of a build immediately ends the polls of that build's workers, and no others.
func TestADrainEndsThePollsOfItsBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		errs := map[string]chan error{}
		for _, build := range []string{"v1", "v2"} {
			out := make(chan error, 1)
			errs[build] = out
			in := spec(worker(build), 1, oneActivity)
			in.Queues, in.Lessee.Worker.BuildID = []string{"q", "more"}, build
			w := d.Enter(in)
			go func() {
				_, err := w.Wait(t.Context(), time.Minute)
				out <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		q, _ := engine.DecideQueue(
			nil, engine.QueueKey{Namespace: "default", Name: "more"}, engine.DrainBuild{BuildID: "v1"}, began,
		)
		d.Queue(&q)
		if err := <-errs["v1"]; err != ErrDrained || time.Since(began) > 0 {
			t.Errorf("the drained build's poll ended with %v after %v", err, time.Since(began))
		}
		if err := <-errs["v2"]; err != nil || time.Since(began) < time.Minute {
			t.Errorf("the other build's poll ended with %v after %v", err, time.Since(began))
		}
		_ = d.Close(t.Context())
	})
}
