package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// sized returns an offer of an activity whose delivery has the given number of bytes.
func sized(typ string, bytes int64) store.Offer {
	o := activity(typ)
	o.Bytes, o.CachedBytes = bytes, bytes
	return o
}

const most = protocol.MaxTaskBytes

// A poll receives the tasks that fit into its response. The first task always fits. After the first task that does not
// fit it receives no others, however small; another poll may receive them.
func TestADispatchedTaskFitsIntoTheResponse(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		slots := map[protocol.TaskKind]int{protocol.KindActivity: 10}
		first := waitFor(t.Context(), d.Enter(spec(worker("a"), 10, slots)), time.Minute)
		rested()
		var promised []store.Reservation
		reserve := func(o store.Offer) bool {
			r := d.Reserve(o)
			if r != nil {
				promised = append(promised, r)
			}
			return r != nil
		}
		for i, c := range []struct {
			bytes int64
			fits  bool
		}{{3 * most, true}, {2000, false}} {
			if got := reserve(sized(fmt.Sprint(i), c.bytes)); got != c.fits {
				t.Fatalf("task %d of %d bytes: delivered: %v", i, c.bytes, got)
			}
		}
		promised[0].Undo() // no task is reserved now, so the response is empty again
		promised = nil
		for i, c := range []struct {
			bytes int64
			fits  bool
		}{{most / 2, true}, {most / 4, true}, {most / 2, false}, {2000, false}} {
			if got := reserve(sized(fmt.Sprint(i), c.bytes)); got != c.fits {
				t.Fatalf("task %d of %d bytes: delivered: %v", i, c.bytes, got)
			}
		}
		second := waitFor(t.Context(), d.Enter(spec(worker("b"), 10, slots)), time.Minute)
		rested()
		if !reserve(sized("3", most/2)) || promised[2].Lessee().Worker.ID != "b" {
			t.Fatal("another poll with free bytes did not get the task")
		}
		for i, r := range promised {
			r.Deliver(lease(sized(fmt.Sprint(i), 0), 0))
		}
		wantTasks(t, first, "0", "1")
		wantTasks(t, second, "2")
	})
}

// Claims of one poll share the bytes of its response with each other and with reservations. Only one claim may return a
// task that is larger than the remaining bytes. Bytes that a claim does not use are available to the next claim.
func TestClaimsShareTheBytesOfAResponse(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		b.set(nil, 10*time.Millisecond)
		both := map[protocol.TaskKind]int{protocol.KindActivity: 4, protocol.KindWorkflow: 4}
		w := waitFor(t.Context(), d.Enter(spec(worker("a"), 8, both)), time.Minute)
		time.Sleep(5 * time.Millisecond) // both claims are in progress
		b.mu.Lock()
		sent := slices.Clone(b.claims)
		b.mu.Unlock()
		if len(sent) != 2 {
			t.Fatalf("%d claims, want one for each kind", len(sent))
		}
		total, first := int64(0), 0
		for _, c := range sent {
			total += c.Pollers[0].Bytes
			if c.Pollers[0].First {
				first++
			}
		}
		if total > most || first != 1 {
			t.Fatalf("the claims may bring %d bytes of %d, and %d of them a larger task", total, int64(most), first)
		}
		rested()
		b.addReady(sized("x", 1))
		rested()
		b.mu.Lock()
		last := b.claims[len(b.claims)-1].Pollers[0]
		b.mu.Unlock()
		if last.Bytes < most/2 || !last.First {
			t.Errorf("after claims that found nothing the next may bring %d bytes, first %v", last.Bytes, last.First)
		}
		wantTasks(t, w, "x")
	})
}

// Polls whose tasks are part of the same response share its bytes. A poll that gets no task for that reason does not
// wait.
func TestPollsOfOneResponseShareItsBytes(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		budget := NewBudget(most, nil)
		turn := spec(worker("a"), 1, oneActivity)
		turn.Run, turn.Budget = "run", budget
		next := spec(worker("a"), 4, map[protocol.TaskKind]int{protocol.KindActivity: 4})
		next.Budget, next.Own = budget, []Own{{Run: "other", Kind: protocol.KindActivity}}
		own, poll := d.Enter(turn), d.Enter(next)
		rested()
		large := sized("large", most)
		large.Run = "run"
		// from now on the queue is known to be empty
		waitFor(t.Context(), d.Enter(spec(worker("a"), 1, oneActivity)), 0)
		rested()
		mustReserve(t, d, large).Deliver(lease(large, 0))
		b.addReady(sized("small", 2000))
		began := time.Now()
		if got := names(poll.Collect(t.Context())); len(got) != 0 {
			t.Errorf("the next poll was given %v beside a response that is full", got)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the next poll was held for %s", took)
		}
		if got := names(own.Collect(t.Context())); !slices.Equal(got, []string{"large"}) {
			t.Errorf("the first poll got %v", got)
		}
		later := spec(worker("a"), 4, map[protocol.TaskKind]int{protocol.KindActivity: 4})
		second := waitFor(t.Context(), d.Enter(later), time.Minute)
		wantTasks(t, second, "small")
		if d.Spend(budget, 10, 0) || !d.Spend(budget, 10, 100) {
			t.Error("other parts of the response exceed the remaining bytes")
		}
	})
}

// A worker with a run in its sticky cache receives fewer bytes of its history.
func TestAWorkerThatKeepsTheRunIsSentLess(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		d.Prefer(func(run string) []store.Process {
			return []store.Process{{Worker: worker("a").Key(), Incarnation: "a-1"}}
		})
		slots := map[protocol.TaskKind]int{protocol.KindWorkflow: 5}
		w := waitFor(t.Context(), d.Enter(spec(worker("a", "f"), 5, slots)), time.Minute)
		rested()
		var all []store.Reservation
		for range 3 {
			o := workflow("f")
			o.Run, o.Bytes, o.CachedBytes = "run", most, 2000
			all = append(all, mustReserve(t, d, o))
		}
		for _, r := range all {
			r.Deliver(lease(workflow("f"), 0))
		}
		wantTasks(t, w, "f", "f", "f")
	})
}
