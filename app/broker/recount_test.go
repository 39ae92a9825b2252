package broker_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/quota"
	"github.com/sojourn-run/sojourn/app/store"
)

// usageError returns the difference between the stored usage of the default namespace and the actual usage of its runs.
func (o *harness) usageError() engine.Usage {
	o.t.Helper()
	c, err := o.store.CountUsage(o.t.Context(), "default")
	if err != nil {
		o.t.Fatal(err)
	}
	off := c.Row.Usage.Minus(c.Counted)
	off.Starts = 0 // starts cannot be recounted
	return off
}

// forgotten removes the usage that is not stored yet from the ledger, as if the app were killed, and returns it.
func (o *harness) forgotten() engine.Usage {
	o.t.Helper()
	c, err := o.store.CountUsage(o.t.Context(), "default")
	if err != nil {
		o.t.Fatal(err)
	}
	taken := o.store.Quotas().TakeUsage()["default"]
	o.store.Quotas().Settle("default", quota.Row{Usage: c.Row.Usage, CountedAt: c.Row.CountedAt.Time})
	return taken
}

// started starts n runs. With lost, the app loses their usage, as if it were killed before storing it.
func (o *harness) started(a *app, n int, lost bool) {
	o.t.Helper()
	for range n {
		o.runs++
		a.start(fmt.Sprint("counted-", o.runs))
	}
	if lost && o.forgotten().OpenRuns != int64(n) {
		o.t.Fatal("the usage was stored at once")
	}
	time.Sleep(5 * time.Second)
}

// When the liveness of a killed app expires, one of the other apps recounts the usage that the killed app had not
// stored, at the default intervals. An app that ends cleanly causes no recount.
func TestUsageOfAKilledAppIsRecounted(t *testing.T) {
	for _, way := range []string{"killed", "stopped", "ended"} {
		inBubble(t, way, func(o *harness) {
			var counts atomic.Int32
			o.counting = func(string) { counts.Add(1) }
			b, _ := o.app("b", true)
			o.started(b, 2, false)
			a, kill := o.app("a", true)
			time.Sleep(time.Minute)
			before := counts.Load()
			o.started(a, 3, way != "ended")
			switch way {
			case "killed":
				kill()
			case "stopped": // both apps run for longer than their liveness, since they share a store here
				o.away.Store(true)
				time.Sleep(5 * time.Minute)
				o.away.Store(false)
			case "ended":
				kill()
				a.Close()
			}
			time.Sleep(3 * time.Minute)
			if off := o.usageError(); off != (engine.Usage{}) {
				o.t.Errorf("the stored usage differs from the runs by %+v", off)
			}
			if n := counts.Load() - before; way == "ended" && n != 0 || way == "killed" && n != 1 {
				o.t.Errorf("%d counts", n)
			}
		})
	}
}

// If another app stores usage during a count, the count is repeated, so that runs which that app has committed are
// counted only once.
func TestARecountIncludesTheUsageOfOtherAppsOnce(t *testing.T) {
	inBubble(t, "two apps", func(o *harness) {
		b, _ := o.app("b", true)
		o.app("a", true)
		o.started(b, 2, false)
		time.Sleep(time.Minute)
		o.started(b, 1, true)
		others, counts := o.runs, 0
		o.counting = func(namespace string) {
			if counts++; counts > 1 {
				return
			}
			o.runs++ // the other app commits a run before the count, and stores its usage after it
			b.start(fmt.Sprint("counted-", o.runs))
			usage := o.forgotten()
			time.AfterFunc(time.Second, func() { o.addUsage(namespace, usage) })
		}
		o.store.Quotas().MarkUncertain()
		o.store.Quotas().RequestExchange("default")
		time.Sleep(time.Minute)
		if off := o.usageError(); off != (engine.Usage{}) || o.runs != others+1 {
			o.t.Errorf("the stored usage differs from the runs by %+v", off)
		}
		if counts != 2 {
			o.t.Errorf("%d counts, want 2", counts)
		}
	})
}

// addUsage stores usage as another app does.
func (o *harness) addUsage(namespace string, u engine.Usage) {
	_, err := o.store.Commit(o.t.Context(), store.Transaction{
		Needs: store.Keys{Namespaces: []string{namespace}},
		Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
			n := *rows.Namespace(namespace)
			n.Usage = n.Usage.Plus(u)
			return store.Writes{Namespaces: []store.Namespace{n}}, nil
		},
	})
	if err != nil {
		o.t.Error(err)
	}
}

// While runs start, a count and the app's own counts of commits match: no commit is missing or counted twice.
func TestACountIncludesEachCommitOnce(t *testing.T) {
	inBubble(t, "starts", func(o *harness) {
		a, _ := o.app("a", false)
		var ended atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; !ended.Load(); i++ {
				a.start(fmt.Sprint("run-", i))
				time.Sleep(time.Millisecond)
			}
		}()
		for range 100 {
			c, err := o.store.CountUsage(o.t.Context(), "default")
			if err != nil {
				o.t.Fatal(err)
			}
			if known := c.Known.OpenRuns; known != c.Counted.OpenRuns {
				o.t.Errorf("%d open runs are known, %d counted", known, c.Counted.OpenRuns)
			}
			time.Sleep(time.Millisecond)
		}
		ended.Store(true)
		<-done
	})
}
