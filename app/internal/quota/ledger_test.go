package quota_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/quota"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

var none engine.Usage

// exchange adds the usage of each ledger to one row, as apps do once per second.
func exchange(row *quota.Row, apps ...*quota.Ledger) {
	for _, l := range apps {
		for name, u := range l.TakeUsage() {
			row.Usage = row.Usage.Plus(u)
			l.Settle(name, *row)
		}
	}
}

func TestTheRateIsSharedByApps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := engine.NoQuotas
		limits.StartsPerSecond = 10
		a, b := quota.New(), quota.New()
		a.Limit(limits)
		b.Limit(limits)
		row := quota.Row{CountedAt: time.Now()}
		a.Settle("n", row)
		b.Settle("n", row)
		started := map[*quota.Ledger]int{}
		const seconds = 60
		for range seconds * 100 {
			for _, l := range []*quota.Ledger{a, b} {
				if l.Standing("n", none).NewRun(0, 0) == nil {
					started[l]++
					l.Add("n", engine.Usage{Starts: 1})
				}
			}
			time.Sleep(10 * time.Millisecond)
			if time.Now().Nanosecond() == 0 {
				exchange(&row, a, b)
			}
		}
		// The quota, plus the starts that each app may save up for a second at the beginning.
		if n := started[a] + started[b]; n < seconds*10*9/10 || n > seconds*10+2*10+10 {
			t.Errorf("%d runs started in %d s by two apps that have 10 per second together", n, seconds)
		}
		if started[a] < seconds || started[b] < seconds {
			t.Errorf("one app took nearly all: %d and %d", started[a], started[b])
		}
	})
}

func TestAppsKnowEachOtherAfterAnExchange(t *testing.T) {
	limits := engine.QuotaLimits{OpenRuns: 3, StartsPerSecond: 100, StoredBytes: 1000, Schedules: 2}
	a, b := quota.New(), quota.New()
	a.Limit(limits)
	b.Limit(limits)
	var row quota.Row
	a.Add("n", engine.Usage{OpenRuns: 2, StoredBytes: 10, Schedules: 2})
	b.Add("n", engine.Usage{OpenRuns: 1})
	if x := b.Standing("n", none).NewRun(0, 0); x != nil {
		t.Errorf("before the exchange: %+v", *x)
	}
	exchange(&row, a, b, a) // no usage of a is left to exchange: it learns of b's usage with its next own usage
	want := engine.QuotaExceeded{Quota: protocol.QuotaOpenRuns, Limit: 3, Used: 3}
	if x := b.Standing("n", none).NewRun(0, 0); x == nil || *x != want {
		t.Errorf("after the exchange: %+v", x)
	}
	if b.Standing("n", none).NewSchedule() == nil || b.Standing("n", none).NewBytes() != nil {
		t.Error("schedules of the other app do not count, or bytes do")
	}
	if x := b.Standing("other", none).NewRun(0, 0); x != nil {
		t.Errorf("another namespace: %+v", *x)
	}
	// After a refusal the row is read again, since the other app may have freed usage.
	a.CountRefusal(quota.Refusal{Namespace: "n", Quota: protocol.QuotaOpenRuns, What: "start"})
	exchange(&row, a)
	if a.Standing("n", none).NewRun(0, 0) == nil {
		t.Error("an app that only refused has not heard of the other's runs")
	}
}

func TestAnExchangeThatWasNotStoredIsRepeated(t *testing.T) {
	l := quota.New()
	l.Add("n", engine.Usage{OpenRuns: 2})
	taken := l.TakeUsage()
	l.Add("n", engine.Usage{OpenRuns: 1})
	if u := l.Standing("n", none).Usage.OpenRuns; u != 3 {
		t.Errorf("%d open runs in the middle of an exchange, want 3", u)
	}
	l.Return(taken)
	if u := l.TakeUsage()["n"].OpenRuns; u != 3 {
		t.Errorf("%d open runs are taken again, want 3", u)
	}
}

func TestNothingIsExchangedAtRest(t *testing.T) {
	l := quota.New()
	l.Standing("n", none)
	l.Add("n", none)
	select {
	case <-l.Changed():
		t.Error("an exchange without a commit")
	default:
	}
	if taken := l.TakeUsage(); len(taken) > 0 {
		t.Errorf("taken: %v", taken)
	}
}

func TestRunsAreCountedOnceADay(t *testing.T) {
	l, now := quota.New(), time.Now()
	if !l.Uncounted("n", now) {
		t.Error("a namespace that was never counted")
	}
	l.Settle("n", quota.Row{CountedAt: now})
	if l.Uncounted("n", now.Add(23*time.Hour)) || !l.Uncounted("n", now.Add(25*time.Hour)) {
		t.Error("not counted once a day")
	}
	l.MarkUncertain()
	if !l.Uncounted("n", now) {
		t.Error("commits may be missing, and the runs are not counted")
	}
	other := quota.New()
	other.Settle("n", quota.Row{CountedAt: now})
	if !other.Uncounted("n", now.Add(2*time.Hour)) || other.Uncounted("n", now.Add(3*time.Hour)) {
		t.Error("an app that begins has not counted once")
	}
}
