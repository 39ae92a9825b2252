package clock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

const (
	lease = 28 * time.Second // the default of attempts, less the margin
	s     = time.Second
)

var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// machine is a worker's host in a simulation: its clocks, and the store's.
type machine struct {
	at    Elapsed
	store time.Time
}

// passes advances all clocks.
func (m *machine) passes(d time.Duration) {
	m.at.Mono += d
	m.at.Wall += d
	m.store = m.store.Add(d)
}

func both(d time.Duration) Elapsed { return Elapsed{d, d} }

func TestAgeOfAnAnswerIsHowMuchLaterThanTheBestItWasRead(t *testing.T) {
	m := &machine{at: Elapsed{5 * s, 3600 * s}, store: epoch}
	ages := &Ages{}
	read := func(what string, after time.Duration, want Elapsed) {
		t.Helper()
		sent := m.store
		m.passes(after)
		if got, known := ages.Of(m.at, sent); !known || got != want {
			t.Errorf("%s: got %v (known %v), want %v", what, got, known, want)
		}
	}
	if _, known := ages.Of(m.at, m.store.Add(-20*time.Millisecond)); known {
		t.Error("the first answer has an age")
	}
	read("as fast", 20*time.Millisecond, both(0))
	read("slower", 320*time.Millisecond, both(300*time.Millisecond))
	read("faster", 5*time.Millisecond, both(0))
	read("than that", 25*time.Millisecond, both(20*time.Millisecond))
	read("frozen while it lay there", 40*s, both(40*s-5*time.Millisecond))
	read("and the one behind it", 10*s, both(10*s-5*time.Millisecond))

	sent := m.store // the machine is suspended: its monotonic clock stops
	m.at.Wall += 600 * s
	m.store = m.store.Add(600 * s)
	if got, _ := ages.Of(m.at, sent); got.Longest() < 599*s || got.Agree() {
		t.Errorf("suspended for 600 s: got %v", got)
	}
	if got, _ := ages.Of(m.at, m.store.Add(-5*time.Millisecond)); got.Longest() > time.Millisecond {
		t.Errorf("fresh after that: got %v", got)
	}
	m.at.Wall += 30 * s // the clock is set
	if got, _ := ages.Of(m.at, m.store.Add(-5*time.Millisecond)); got.Agree() || got.Longest() < 29*s {
		t.Errorf("clock set: got %v", got)
	}
}

func TestBestMeasurementExpires(t *testing.T) {
	m := &machine{store: epoch}
	ages := &Ages{}
	answer := func(way time.Duration) (age time.Duration) {
		sent := m.store
		m.passes(way)
		got, _ := ages.Of(m.at, sent)
		return got.Longest()
	}
	answer(10 * time.Millisecond)
	m.passes(300 * s) // nothing comes for long: the last one still counts
	if got := answer(100 * s); got != 100*s-10*time.Millisecond {
		t.Errorf("after a long silence: %s", got)
	}
	for range 8 { // the way has become longer for good
		m.passes(20 * s)
		answer(3 * s)
	}
	if got := answer(3 * s); got != 0 {
		t.Errorf("the old best still counts: %s", got)
	}
}

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		Lease
		want Verdict
	}{
		"fresh":                     {Lease{Since: both(0), Lasts: lease, Known: true}, Begin},
		"nearly over":               {Lease{Since: both(lease - 1), Lasts: lease, Known: true}, Begin},
		"over":                      {Lease{Since: both(lease), Lasts: lease, Known: true}, Drop},
		"over by a bound alone":     {Lease{Since: both(50 * s), Lasts: lease}, Confirm},
		"fresh, by a bound":         {Lease{Since: both(10 * s), Lasts: lease}, Begin},
		"paused, lease valid":       {Lease{Since: both(5 * s), Lasts: lease, Known: true, Paused: true}, Confirm},
		"paused, lease expired":     {Lease{Since: both(40 * s), Lasts: lease, Known: true, Paused: true}, Drop},
		"suspended past its end":    {Lease{Since: Elapsed{2 * s, 600 * s}, Lasts: lease, Known: true}, Confirm},
		"suspended for a moment":    {Lease{Since: Elapsed{2 * s, 4 * s}, Lasts: lease, Known: true}, Confirm},
		"clock set back":            {Lease{Since: Elapsed{2 * s, -3600 * s}, Lasts: lease, Known: true}, Confirm},
		"clock set forward":         {Lease{Since: Elapsed{2 * s, 3600 * s}, Lasts: lease, Known: true}, Confirm},
		"clock set back, long over": {Lease{Since: Elapsed{40 * s, -3600 * s}, Lasts: lease, Known: true}, Confirm},
		"clocks a little apart": {
			Lease{Since: Elapsed{2 * s, 2500 * time.Millisecond}, Lasts: lease, Known: true}, Begin,
		},
		"nothing left of it to last": {Lease{Since: both(0), Lasts: -s, Known: true}, Drop},
	} {
		if got := c.Judge(); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestSuspensionIsDetectedBeforeTheNextCheck(t *testing.T) {
	began := time.Now()
	ticks := &Ticks{last: began}
	at := began.Add
	for i := range 5 {
		if d := ticks.sample(at(time.Duration(i+1) * s)); d != 0 {
			t.Fatalf("look %d: a gap of %s", i, d)
		}
	}
	if ticks.PausedSince(at(0), at(6*s)) {
		t.Error("it ran all the time")
	}
	if !ticks.PausedSince(at(4*s), at(40*s)) {
		t.Error("no check ran for 35 s, and no check noticed")
	}
	if d := ticks.sample(at(40 * s)); d != 35*s {
		t.Errorf("a gap of %s, want 35 s", d)
	}
	for then, want := range map[time.Duration]bool{0: true, 39 * s: true, 40 * s: true, 41 * s: false} {
		if got := ticks.PausedSince(at(then), at(41*s)); got != want {
			t.Errorf("since %s: stood still %v, want %v", then, got, want)
		}
	}
}

func TestReadingEverySecondFindsNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ticks, done, began := NewTicks(), make(chan struct{}), time.Now()
		go func() {
			defer close(done)
			ticks.Run(ctx, func(d time.Duration) { t.Errorf("a gap of %s", d) })
		}()
		time.Sleep(time.Hour)
		if ticks.PausedSince(began, time.Now()) {
			t.Error("it stood still")
		}
		stop()
		<-done
	})
}
