package workflow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// finishes runs a workflow in which only timers wait, and returns its output. Every prefix of the history replays.
func finishes(t *testing.T, timers int, fn any) any {
	t.Helper()
	a := start(t, fn)
	a.drain(nil)
	for i := range timers {
		a.fire(int64(i + 1))
		a.drain(nil)
	}
	a.replays()
	if a.run.Status.Open() {
		t.Fatal("the run is still open")
	}
	return a.output()
}

// With a buffer of one, the second Send waits until the first value is received; values arrive in the order of the
// sends, and after Close the buffered ones are still received.
func TestAChannelPassesValuesInOrder(t *testing.T) {
	for size, expected := range []string{
		"got 1|sent 1|got 2|sent 2|got 3|sent 3|closed",
		"sent 1|got 1|got 2|sent 2|sent 3|got 3|closed",
		"sent 1|sent 2|got 1|got 2|got 3|sent 3|closed",
	} {
		got := finishes(t, 1, func(ctx workflow.Context) (string, error) {
			var log []string
			c := workflow.NewChannel[int](ctx, size)
			workflow.Go(ctx, func(ctx workflow.Context) {
				for n := 1; n <= 3; n++ {
					if c.Send(ctx, n) == nil {
						log = append(log, fmt.Sprint("sent ", n))
					}
				}
				c.Close()
			})
			if err := workflow.Sleep(ctx, time.Second); err != nil {
				return "", err
			}
			for {
				n, ok, err := c.Receive(ctx)
				if err != nil || !ok {
					return strings.Join(append(log, "closed"), "|"), err
				}
				log = append(log, fmt.Sprint("got ", n))
			}
		})
		want(t, fmt.Sprint("size ", size), got, any(expected))
	}
}

func TestAChannelWithoutAReceiverOrSender(t *testing.T) {
	got := finishes(t, 1, func(ctx workflow.Context) (string, error) {
		under, cancel := workflow.WithCancel(ctx)
		one, none := workflow.NewChannel[string](ctx, 1), workflow.NewChannel[string](ctx, 0)
		log := fmt.Sprint(one.TrySend("a"), one.TrySend("b"), none.TrySend("c"), one.Len())
		var sent, full, received error
		workflow.Go(under, func(ctx workflow.Context) { sent = none.Send(ctx, "d") })
		workflow.Go(under, func(ctx workflow.Context) { _, _, received = workflow.NewChannel[int](ctx, 0).Receive(ctx) })
		workflow.Go(ctx, func(ctx workflow.Context) { full = one.Send(ctx, "e") })
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		cancel()
		one.Close()
		one.Close()
		if err := workflow.Until(ctx, func() bool { return sent != nil && full != nil && received != nil }); err != nil {
			return "", err
		}
		left, ok := none.TryReceive()
		log += fmt.Sprint(" ", sent, " ", received, " ", errors.Is(full, workflow.ErrChannelClosed), " ", left, ok)
		a, ok := one.TryReceive()
		log += fmt.Sprint(" ", a, ok, " ", errors.Is(one.Send(ctx, "f"), workflow.ErrChannelClosed), one.TrySend("g"))
		_, ok, err := one.Receive(ctx)
		return log + fmt.Sprint(" ", ok, err), nil
	})
	want(t, "log", got, any("true false false 1 cancelled cancelled true false atrue true false false <nil>"))
}

// Select returns a channel with a value, or one that is closed, like a signal that has arrived.
func TestSelectWaitsForAChannel(t *testing.T) {
	got := finishes(t, 1, func(ctx workflow.Context) (string, error) {
		a, b := workflow.NewChannel[int](ctx, 0), workflow.NewChannel[int](ctx, 0)
		workflow.Go(ctx, func(ctx workflow.Context) {
			if workflow.Sleep(ctx, time.Second) == nil && b.Send(ctx, 7) == nil {
				a.Close()
			}
		})
		first, err := workflow.Select(ctx, a, b)
		if err != nil {
			return "", err
		}
		n, ok, err := b.Receive(ctx)
		if err != nil {
			return "", err
		}
		second, err := workflow.Select(ctx, a, b)
		return fmt.Sprint(first, n, ok, second), err
	})
	want(t, "order", got, any("1 7 true 0"))
}

// Three branches share two units; the branch that needs both is not overtaken by the one behind it.
func TestASemaphoreIsAcquiredInOrder(t *testing.T) {
	got := finishes(t, 3, func(ctx workflow.Context) (string, error) {
		var log []string
		s, g := workflow.NewSemaphore(ctx, 2), workflow.NewWaitGroup(ctx)
		for i, units := range []int64{1, 2, 1} {
			g.Go(ctx, func(ctx workflow.Context) {
				if s.Acquire(ctx, units) != nil {
					return
				}
				defer s.Release(units)
				log = append(log, fmt.Sprint("+", i))
				if workflow.Sleep(ctx, time.Second) == nil {
					log = append(log, fmt.Sprint("-", i))
				}
			})
		}
		err := g.Wait(ctx)
		return strings.Join(log, ""), err
	})
	want(t, "order", got, any("+0-0+1-1+2-2"))
}

// A cancelled Acquire has no units, and the request behind it is granted.
func TestACancelledAcquireDoesNotBlockOthers(t *testing.T) {
	got := finishes(t, 1, func(ctx workflow.Context) (string, error) {
		s, m := workflow.NewSemaphore(ctx, 3), workflow.NewMutex(ctx)
		under, cancel := workflow.WithCancel(ctx)
		log := fmt.Sprint(s.Acquire(ctx, 2), errors.Is(s.Acquire(ctx, 4), workflow.ErrInvalidOptions))
		log += fmt.Sprint(" ", m.TryLock(), m.TryLock())
		var large, locked error
		small := false
		workflow.Go(under, func(ctx workflow.Context) { large = s.Acquire(ctx, 2) })
		workflow.Go(under, func(ctx workflow.Context) { locked = m.Lock(ctx) })
		workflow.Go(ctx, func(ctx workflow.Context) { small = s.Acquire(ctx, 1) == nil })
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		log += fmt.Sprint(" ", small, s.TryAcquire(1))
		cancel()
		if err := workflow.Until(ctx, func() bool { return large != nil && locked != nil && small }); err != nil {
			return "", err
		}
		m.Unlock()
		return log + fmt.Sprint(" ", large, " ", locked, m.TryLock(), s.TryAcquire(1)), nil
	})
	want(t, "log", got, any("<nil> true true false false false cancelled cancelled true false"))
}

// A release of what is not acquired, and a negative count, are errors of the code: the workflow task fails.
func TestMisuseOfASemaphoreFailsTheTask(t *testing.T) {
	for name, fn := range map[string]func(workflow.Context) error{
		"is locked": func(ctx workflow.Context) error { workflow.NewMutex(ctx).Unlock(); return nil },
		"count":     func(ctx workflow.Context) error { workflow.NewWaitGroup(ctx).Done(); return nil },
		"size":      func(ctx workflow.Context) error { workflow.NewChannel[int](ctx, -1); return nil },
		"units":     func(ctx workflow.Context) error { workflow.NewSemaphore(ctx, -1); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, fn)
			m := replay.New(a.def, a.options)
			defer m.Close()
			var panicked *workflow.PanicError
			if _, err := m.Apply(a.task(1), a.events); !errors.As(err, &panicked) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Random returns the same numbers in every replay, others from each call, and does not change NewID.
func TestRandomIsTheSameInEveryReplay(t *testing.T) {
	program := func(random bool) func(ctx workflow.Context) (string, error) {
		return func(ctx workflow.Context) (string, error) {
			numbers := map[uint64]bool{}
			if random {
				a, b := workflow.Random(ctx), workflow.Random(ctx)
				for range 100 {
					numbers[a.Uint64()], numbers[b.Uint64()] = true, true
				}
				if err := workflow.Sleep(ctx, time.Duration(1+a.IntN(1000))*time.Second); err != nil {
					return "", err
				}
			} else if err := workflow.Sleep(ctx, time.Second); err != nil {
				return "", err
			}
			return fmt.Sprint(workflow.NewID(ctx), len(numbers)), nil
		}
	}
	with, without := finishes(t, 1, program(true)), finishes(t, 1, program(false))
	if with != fmt.Sprint(strings.TrimSuffix(without.(string), "0"), "200") {
		t.Errorf("%v with generators, %v without", with, without)
	}
}

func TestReceiveTimeoutReturnsTheSignalOrFalse(t *testing.T) {
	code := func(ctx workflow.Context) (string, error) {
		var first, second string
		a, err := workflow.Signal(ctx, "go").ReceiveTimeout(ctx, time.Minute, &first)
		if err != nil {
			return "", err
		}
		b, err := workflow.Signal(ctx, "go").ReceiveTimeout(ctx, time.Minute, &second)
		return fmt.Sprint(a, first, b, second), err
	}
	a := start(t, code)
	a.drain(nil)
	a.signal("go", "x")
	a.drain(nil)
	var open []int64
	for seq := range int64(10) {
		if _, ok := a.run.Timers.Get(seq); ok {
			open = append(open, seq)
		}
	}
	if len(open) != 1 { // that of the first call was cancelled
		t.Fatalf("open timers %v", open)
	}
	a.fire(open[0])
	a.drain(nil)
	a.replays()
	want(t, "output", a.output(), any("truexfalse"))
}
