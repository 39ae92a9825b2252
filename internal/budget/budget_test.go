package budget_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/internal/budget"
)

func owner(namespace, token string) budget.Owner {
	return budget.Owner{Namespace: namespace, Token: token}
}

// A caller alone uses all of a budget but the part that is reserved for outcomes.
func TestACallerAloneUsesAllOfABudget(t *testing.T) {
	b := budget.New(100)
	for range 75 {
		if _, err := b.Acquire(t.Context(), owner("a", "1"), 1, budget.Ordinary); err != nil {
			t.Fatal(err)
		}
	}
	if s := b.Stats(); s.Used != 75 {
		t.Errorf("%d bytes are used", s.Used)
	}
	for range 25 {
		if _, err := b.Acquire(t.Context(), owner("a", "1"), 1, budget.Reserved); err != nil {
			t.Fatal(err)
		}
	}
	// A request for more than the total gets the total.
	c := budget.New(100)
	g, err := c.Acquire(t.Context(), owner("a", "1"), 1000, budget.Ordinary)
	if err != nil || c.Stats().Used != 75 {
		t.Errorf("%v, %d bytes are used", err, c.Stats().Used)
	}
	g.Release()
	g.Release()
	if c.Stats().Used != 0 {
		t.Errorf("%d bytes are used after the end", c.Stats().Used)
	}
}

// While one caller floods an app, freed bytes go to other callers first: no request of another token or namespace is
// refused.
func TestOtherCallersAreServedFirstDuringAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(80) // 60 for ordinary requests
		outcomes := make(chan error, 1000)
		use := func(o budget.Owner, outcome chan<- error) {
			g, err := b.Acquire(t.Context(), o, 10, budget.Ordinary)
			outcome <- err
			if err == nil {
				time.Sleep(time.Second)
				g.Release()
			}
		}
		const flood = 200
		for range flood {
			go use(owner("loud", "x"), outcomes)
		}
		synctest.Wait()
		quiet := make(chan error, 100)
		began := time.Now()
		for i := range 6 {
			go use(owner("quiet", fmt.Sprint(i)), quiet)
			go use(owner("loud", fmt.Sprint(i)), quiet)
		}
		for range 12 {
			if err := <-quiet; err != nil {
				t.Errorf("a bystander: %v", err)
			}
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("twelve bystanders, of which six fit at a time, waited %s", took)
		}
		served := 0
		for range flood {
			switch err := <-outcomes; {
			case err == nil:
				served++
			case !errors.Is(err, budget.ErrOverloaded):
				t.Error(err)
			}
		}
		if served < 20 {
			t.Errorf("of the flood %d were served, though it was alone for most of the time", served)
		}
		time.Sleep(time.Minute)
		if s := b.Stats(); s.Used != 0 || s.Waiting != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}

// A caller above its share that does not use its bytes, for example because it sends its body slowly, is cut for a
// caller below its share.
func TestASlowCallerAboveItsShareIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(80)
		var slow []*budget.Grant
		for range 6 {
			g, err := b.Acquire(t.Context(), owner("slow", "x"), 10, budget.Ordinary)
			if err != nil {
				t.Fatal(err)
			}
			g.MayBeCut(budget.CutFunc(g.Release))
			slow = append(slow, g)
		}
		if _, err := b.Acquire(t.Context(), owner("slow", "x"), 10, budget.Ordinary); !errors.Is(err, budget.ErrOverloaded) {
			t.Errorf("one more of the same caller: %v", err)
		}
		if s := b.Stats(); s.Cut != 0 {
			t.Errorf("%d requests of a caller were cut for itself", s.Cut)
		}
		for i, o := range []budget.Owner{owner("other", "y"), owner("slow", "z")} {
			if _, err := b.Acquire(t.Context(), o, 10, budget.Ordinary); err != nil {
				t.Errorf("%v: %v", o, err)
			}
			if s := b.Stats(); s.Cut != int64(i+1) {
				t.Errorf("%d requests were cut, want one for each", s.Cut)
			}
		}
		for _, g := range slow {
			g.MayBeCut(nil)
		}
		if _, err := b.Acquire(t.Context(), owner("third", "y"), 10, budget.Ordinary); !errors.Is(err, budget.ErrOverloaded) {
			t.Errorf("where nobody may be cut: %v", err)
		}
	})
}

// A request that was cut is not cut again while the app writes the error response.
func TestARequestIsCutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cuts := budget.New(1<<20), 0
		g := b.Force(owner("slow", "x"), 1<<20)
		cut := budget.CutFunc(func() { cuts++ })
		for range 2 {
			g.MayBeCut(cut)
			b.Force(owner("other", "y"), 1<<20)
			synctest.Wait()
		}
		if s := b.Stats(); cuts != 1 || s.Cut != 1 || !g.WasCut() {
			t.Errorf("cut %d times, counted %d", cuts, s.Cut)
		}
	})
}

// The reserved part is free when ordinary requests have used up their part, and its requests do not wait for ordinary
// ones.
func TestOutcomesHaveAPartOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(80)
		all, err := b.Acquire(t.Context(), owner("a", "1"), 60, budget.Ordinary)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		refused := make(chan error)
		go func() {
			_, err := b.Acquire(ctx, owner("b", "1"), 10, budget.Ordinary)
			refused <- err
		}()
		synctest.Wait()
		began := time.Now()
		outcome, err := b.Acquire(t.Context(), owner("a", "1"), 20, budget.Reserved)
		if err != nil || time.Since(began) > 0 {
			t.Errorf("an outcome: %v after %s", err, time.Since(began))
		}
		cancel()
		if err := <-refused; !errors.Is(err, context.Canceled) {
			t.Errorf("one that left: %v", err)
		}
		b.Force(owner("a", "1"), 5).Release()
		all.Release()
		outcome.Release()
		if s := b.Stats(); s.Used != 0 || s.Waiting != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}

// A worker that floods the app with outcomes leaves room for all requests of other callers, and small requests do not
// wait.
func TestAFloodOfOutcomesLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(6400)
		ctx, stop := context.WithCancel(t.Context())
		var floods sync.WaitGroup
		flood := func() {
			for ctx.Err() == nil {
				if g, err := b.Acquire(ctx, owner("loud", "x"), 1600, budget.Reserved); err == nil {
					time.Sleep(100 * time.Millisecond)
					g.Release()
				}
			}
		}
		for range 50 {
			floods.Go(flood)
		}
		synctest.Wait()
		for i := range 20 {
			if g := b.Open(owner("quiet", fmt.Sprint(i))); !g.Small(50) {
				t.Error("a small request waited")
			} else {
				g.Release()
			}
			for _, class := range []budget.Class{budget.Ordinary, budget.Reserved} {
				g, err := b.Acquire(t.Context(), owner("quiet", fmt.Sprint(i)), 1000, class)
				if err != nil {
					t.Errorf("a request of class %d: %v", class, err)
				}
				g.Release()
			}
		}
		// Small requests of the flooding token do not wait behind its large ones either, up to a 64th of the budget.
		small, limit := 0, int(b.Stats().Total/64/50)
		var granted []*budget.Grant
		for range limit + 1 {
			g := b.Open(owner("loud", "x"))
			if g.Small(50) {
				small++
			}
			granted = append(granted, g)
		}
		if small != limit {
			t.Errorf("%d small requests of the flood did not wait, want %d", small, limit)
		}
		for _, g := range granted {
			g.Release()
		}
		if g := b.Open(owner("loud", "x")); !g.Small(50) {
			t.Error("a small request waited although the earlier ones have ended")
		} else {
			g.Release()
		}
		stop()
		floods.Wait()
	})
}

// A single caller may use all places. If another caller comes later, it gets its share.
func TestPlacesGoToOwnersWithFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.Places(12)
		held := map[budget.Owner]int{}
		var grants []*budget.Grant
		acquire := func(o budget.Owner) bool {
			g, ok := b.Place(o, budget.CutFunc(func() { held[o]-- }))
			if ok {
				held[o]++
				grants = append(grants, g)
			}
			synctest.Wait()
			return ok
		}
		first, second, third := owner("a", "1"), owner("a", "2"), owner("b", "1")
		for range 12 {
			if !acquire(first) {
				t.Fatal("a place of a caller alone was refused")
			}
		}
		if acquire(first) {
			t.Error("one more than there are")
		}
		for range 20 {
			acquire(third)
		}
		if held[first] != 6 || held[third] != 6 {
			t.Errorf("two namespaces have %v", held)
		}
		for range 20 {
			acquire(second)
		}
		if held[first] != 3 || held[second] != 3 || held[third] != 6 {
			t.Errorf("two tokens of one namespace, and another namespace, have %v", held)
		}
		for _, g := range grants {
			g.Release()
		}
		if s := b.Stats(); s.Used != 0 {
			t.Errorf("%d places are taken after the end", s.Used)
		}
	})
}

// Try grants only free bytes, none that a waiting caller with fewer bytes needs, and they are released with their
// grant.
func TestBytesAreTriedWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(400) // 300 of them for ordinary requests
		a, other := budget.Owner{Token: "a"}, budget.Owner{Token: "b"}
		third := b.Force(budget.Owner{Token: "c"}, 100)
		g := b.Open(a)
		if !g.Try(150) || g.Try(100) || !g.Try(50) || g.Bytes() != 200 {
			t.Fatalf("reserved %d bytes, want 200", g.Bytes())
		}
		var waited *budget.Grant
		done := make(chan error, 1)
		go func() {
			var err error
			waited, err = b.Acquire(t.Context(), other, 100, budget.Ordinary)
			done <- err
		}()
		synctest.Wait()
		if g.Return(20); g.Try(10) {
			t.Error("bytes were reserved before those of a caller that waits with fewer")
		}
		g.Return(100)
		if err := <-done; err != nil || waited.Bytes() != 100 {
			t.Errorf("the caller that waited has %d bytes: %v", waited.Bytes(), err)
		}
		ended := b.Open(a)
		waited.Force(1000)
		go func() { done <- ended.Grow(t.Context(), 100) }()
		synctest.Wait()
		ended.Release()
		waited.Release()
		third.Release()
		g.Release()
		if err := <-done; err != nil || ended.Try(10) || ended.Grow(t.Context(), 10) == nil {
			t.Errorf("a grant that has ended was given bytes: %v", err)
		}
		if s := b.Stats(); s.Used != 0 || s.Waiting != 0 {
			t.Errorf("at the end: %+v", s)
		}
		ctx := budget.NewContext(t.Context(), b, a)
		if err := budget.Load(ctx, 50); err != nil || b.Stats().Used != 50*budget.LoadFactor {
			t.Errorf("loading 50 bytes counts with %d: %v", b.Stats().Used, err)
		}
		if budget.Loaded(ctx, 50, 20); b.Stats().Used != 20*budget.LoadFactor {
			t.Errorf("20 loaded bytes count with %d", b.Stats().Used)
		}
		if budget.Loaded(ctx, 20, 90); b.Stats().Used != 90*budget.LoadFactor {
			t.Errorf("90 loaded bytes count with %d", b.Stats().Used)
		}
		if err := budget.Load(t.Context(), 1<<40); err != nil {
			t.Errorf("a load without a budget: %v", err)
		}
	})
}

// Of the requests of one owner, freed bytes go to the request that has the most: it can finish. Otherwise requests that
// each hold a part of the bytes that they need could wait for each other.
func TestFreedBytesGoToTheRequestThatHasTheMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(80) // 60 for ordinary requests
		o := owner("a", "1")
		acquire := func(n int64) *budget.Grant {
			g, err := b.Acquire(t.Context(), o, n, budget.Ordinary)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		other, small, large := acquire(20), acquire(10), acquire(30)
		order := make(chan string, 2)
		grow := func(name string, g *budget.Grant) {
			go func() {
				if err := g.Grow(t.Context(), 20); err != nil {
					name += ": " + err.Error()
				}
				order <- name
			}()
			synctest.Wait()
		}
		grow("small", small)
		grow("large", large)
		other.Release()
		if first := <-order; first != "large" {
			t.Fatalf("the freed bytes went to %s", first)
		}
		large.Release()
		if next := <-order; next != "small" {
			t.Fatal(next)
		}
		small.Release()
	})
}
