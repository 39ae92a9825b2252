package sweep

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clockwork is an in-memory store of due entries. Its clock is ahead of the process's clock by skew.
type clockwork struct {
	store.Reader // methods that a sweeper does not call panic

	mu       sync.Mutex // guards the fields below
	skew     time.Duration
	due      map[key]time.Time
	ended    []engine.SessionKey
	removed  [][]engine.SessionKey
	reads    int
	largest  int
	down     error
	refuse   map[key]error
	applied  []string // kind of each applied entry and its time since the start
	running  int
	together int
	start    time.Time
}

func newClockwork() *clockwork {
	return &clockwork{due: map[key]time.Time{}, refuse: map[key]error{}, start: time.Now()}
}

func (c *clockwork) Now(context.Context) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now(), c.down
}

func (c *clockwork) now() time.Time { return time.Now().Add(c.skew) }

func (c *clockwork) View(_ context.Context, fn func(store.Reader) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down != nil {
		return c.down
	}
	return fn(c)
}

func (c *clockwork) Due(_ context.Context, now time.Time, limit int) ([]store.Due, error) {
	c.reads++
	var all []store.Due
	for k, at := range c.due {
		if !at.After(now) {
			all = append(all, store.Due{Kind: k.kind, At: at, Run: k.run, Seq: k.seq, Session: k.session})
		}
	}
	slices.SortFunc(all, func(a, b store.Due) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Run, b.Run)) })
	c.largest = max(c.largest, limit)
	return all[:min(limit, len(all))], nil
}

func (c *clockwork) NextDue(_ context.Context, after time.Time) (next, now time.Time, err error) {
	c.reads++
	for _, at := range c.due {
		if at.After(after) {
			next = earliest(next, at)
		}
	}
	return next, c.now(), nil
}

func (c *clockwork) Removable(_ context.Context, _, _ time.Time, limit int) ([]engine.SessionKey, error) {
	c.reads++
	return slices.Clone(c.ended[:min(limit, len(c.ended))]), nil
}

// set makes a run due after the given time, by the store's clock, and returns the due time.
func (c *clockwork) set(run string, in time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.now().Add(in)
	c.due[key{kind: store.DueRun, run: run}] = at
	return at
}

func (c *clockwork) apply(_ context.Context, d store.Due) error {
	c.mu.Lock()
	c.running++
	c.together = max(c.together, c.running)
	c.mu.Unlock()
	time.Sleep(time.Millisecond) // a commit
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.applied = append(c.applied, fmt.Sprintf("%s %v", d.Run, time.Since(c.start).Truncate(10*time.Millisecond)))
	if err, ok := c.refuse[keyOf(d)]; ok {
		return err
	}
	delete(c.due, keyOf(d))
	return nil
}

func (c *clockwork) log() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.applied)
}

func (c *clockwork) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

func (c *clockwork) remove(_ context.Context, keys []engine.SessionKey) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = append(c.removed, keys)
	c.ended = slices.DeleteFunc(c.ended, func(k engine.SessionKey) bool { return slices.Contains(keys, k) })
	return nil
}

// sweeping runs a sweeper over a clockwork in a bubble for the length of f; one with a clean-up interval removes
// sessions.
func sweeping(t *testing.T, o Options, f func(c *clockwork, s *Sweeper)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork()
		c.skew = time.Hour
		if o.Cleanup > 0 {
			o.Remove = c.remove
		}
		s := New(c, c.apply, o)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			s.Run(ctx)
			close(ended)
		}()
		synctest.Wait()
		f(c, s)
		cancel()
		<-ended
	})
}

func TestDueItemIsProcessedWhenDue(t *testing.T) {
	sweeping(t, Options{}, func(c *clockwork, s *Sweeper) {
		c.set("late", 3*time.Minute)
		s.Pulse(c.set("first", 0)) // after this the sweeper knows of the late entry from its read
		time.Sleep(time.Minute)
		s.Pulse(c.set("soon", time.Minute)) // earlier than the planned wake-up
		s.Pulse(c.set("now", 0))
		time.Sleep(10 * time.Minute)
		if got, want := c.log(), []string{"first 0s", "now 1m0s", "soon 2m0s", "late 3m0s"}; !slices.Equal(got, want) {
			t.Fatalf("done: %v, want %v", got, want)
		}
	})
}

func TestSleepingSendsNothing(t *testing.T) {
	sweeping(t, Options{Cleanup: 5 * time.Minute}, func(c *clockwork, s *Sweeper) {
		s.Pulse(c.set("x", 24*time.Hour))
		time.Sleep(6 * time.Minute) // the start, and one check for ended sessions
		before := c.count()
		if before > 6 {
			t.Fatalf("%d reads at the start", before)
		}
		time.Sleep(23 * time.Hour)
		if n := c.count() - before; n != 0 {
			t.Fatalf("%d reads while nothing was due", n)
		}
		s.Pulse(c.now().Add(5 * time.Hour)) // later than the planned wake-up
		time.Sleep(time.Hour)
		if n := c.count() - before; n != 2 || len(c.log()) != 1 {
			t.Fatalf("%d reads for one due thing, done: %v", n, c.log())
		}
	})
}

func TestSharedDatabaseIsCheckedInIntervals(t *testing.T) {
	sweeping(t, Options{Shared: true}, func(c *clockwork, s *Sweeper) {
		time.Sleep(45 * time.Second)
		c.set("left by a dead process", 0)
		time.Sleep(time.Minute)
		if got, want := c.log(), []string{"left by a dead process 1m0s"}; !slices.Equal(got, want) {
			t.Fatalf("done: %v, want %v", got, want)
		}
	})
	sweeping(t, Options{Shared: true}, func(c *clockwork, s *Sweeper) {
		c.set("sleeps", 2*time.Hour)
		time.Sleep(time.Minute)
		before := c.count()
		time.Sleep(time.Hour)
		if n := c.count() - before; n < 119 || n > 121 {
			t.Fatalf("%d reads in an hour in which nothing is due, twice a minute", n)
		}
	})
	sweeping(t, Options{}, func(c *clockwork, s *Sweeper) {
		before := c.count()
		time.Sleep(time.Hour)
		if n := c.count() - before; n != 0 {
			t.Fatalf("%d reads in an hour of a database of one's own", n)
		}
	})
}

func TestDueItemsAreProcessedPageByPage(t *testing.T) {
	sweeping(t, Options{}, func(c *clockwork, s *Sweeper) {
		for i := range 3000 {
			s.Pulse(c.set(fmt.Sprintf("%04d", i), time.Second))
		}
		time.Sleep(5 * time.Second)
		if n := len(c.log()); n != 3000 {
			t.Fatalf("%d of 3000 done", n)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.together != 64 || c.largest != 500 || c.reads > 20 {
			t.Fatalf("%d at a time, %d read at once, %d reads", c.together, c.largest, c.reads)
		}
	})
}

func TestStuckItemDelaysOnlyItself(t *testing.T) {
	var logged bytes.Buffer
	sweeping(t, Options{Limit: 3, Log: zerolog.New(&logged)}, func(c *clockwork, s *Sweeper) {
		for i := range 5 {
			k := key{kind: store.DueRun, run: fmt.Sprint("stuck", i)}
			c.mu.Lock()
			c.refuse[k] = nil // applied without an error, and still due
			if i > 0 {
				c.refuse[k] = errors.New("no")
			}
			c.mu.Unlock()
			s.Pulse(c.set(k.run, 0))
		}
		time.Sleep(time.Hour)
		tries := len(c.log())
		if tries < 5*100 || tries > 5*140 {
			t.Fatalf("%d tries of five stuck things in an hour", tries)
		}
		s.Pulse(c.set("healthy", time.Minute))
		time.Sleep(2 * time.Minute)
		if log := c.log(); !slices.Contains(log, "healthy 1h1m0s") {
			t.Fatalf("the healthy one was not done in time: %v", log[tries:])
		}
		if n := strings.Count(logged.String(), "failed to process due work"); n != 1 {
			t.Fatalf("logged %d times:\n%s", n, logged.String())
		}
	})
}

func TestSweepBacksOffWhileTheStoreIsUnavailable(t *testing.T) {
	var logged bytes.Buffer
	sweeping(t, Options{Log: zerolog.New(&logged)}, func(c *clockwork, s *Sweeper) {
		c.mu.Lock()
		c.down = store.ErrUnavailable
		c.mu.Unlock()
		s.Pulse(c.set("x", time.Second))
		time.Sleep(10 * time.Minute)
		c.mu.Lock()
		c.down = nil
		c.mu.Unlock()
		time.Sleep(time.Minute)
		if len(c.log()) != 1 || strings.Count(logged.String(), "failed to read due work") != 1 {
			t.Fatalf("done: %v, logged:\n%s", c.log(), logged.String())
		}
		k := key{kind: store.DueRun, run: "y"}
		c.mu.Lock()
		c.refuse[k] = fmt.Errorf("commit: %w", store.ErrUnavailable)
		c.mu.Unlock()
		s.Pulse(c.set("y", 0))
		time.Sleep(10 * time.Minute)
		if n := len(c.log()); n > 40 {
			t.Fatalf("%d tries in ten minutes of a store that takes no writes", n)
		}
		c.mu.Lock()
		delete(c.refuse, k)
		c.mu.Unlock()
		time.Sleep(time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.due) != 0 {
			t.Fatal("y is still due")
		}
	})
}

func TestEndedSessionsAreRemovedWhileThereAreAny(t *testing.T) {
	sweeping(t, Options{Cleanup: 5 * time.Minute, Limit: 2}, func(c *clockwork, s *Sweeper) {
		c.mu.Lock()
		for i := range 3 {
			c.ended = append(c.ended, engine.SessionKey{Namespace: "n", ID: fmt.Sprint(i)})
		}
		c.mu.Unlock()
		done := func() [][]engine.SessionKey {
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.Clone(c.removed)
		}
		time.Sleep(4 * time.Minute)
		if len(done()) != 0 {
			t.Fatal("removed before it was time")
		}
		time.Sleep(time.Hour)
		if removed := done(); len(removed) != 2 || len(removed[0]) != 2 || len(removed[1]) != 1 {
			t.Fatalf("removed %v, want two and then one", removed)
		}
		before := c.count()
		time.Sleep(time.Hour)
		if n := c.count() - before; n != 0 {
			t.Fatalf("%d reads in an hour without sessions", n)
		}
		c.mu.Lock()
		c.ended = []engine.SessionKey{{Namespace: "n", ID: "new"}}
		c.mu.Unlock()
		s.SessionsChanged()
		time.Sleep(6 * time.Minute)
		if removed := done(); len(removed) != 3 {
			t.Fatalf("removed %v, want the new one too", removed)
		}
	})
}
