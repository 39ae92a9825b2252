package sqldb

import (
	"testing"

	"github.com/sojourn-run/sojourn/shared/history"
)

func following(last int64, n, bytes int) appended {
	a := appended{bytes: bytes}
	for i := range n {
		a.list = append(a.list, history.Event{Seq: last + int64(i) + 1})
	}
	return a
}

// However long a history gets, its end stays in memory: that is what a worker which keeps the run has not seen.
func TestTheEndOfAHistoryIsKeptWhateverItsLength(t *testing.T) {
	c := newCache()
	var last int64
	for range 20_000 {
		c.append("run", following(last, 3, 3*1024), true)
		last += 3
		list, bytes := c.events("run", last)
		n := len(list)
		if n < 3 || n > mostEvents || bytes > mostPast || list[n-1].Seq != last || list[0].Seq != last-int64(n)+1 {
			t.Fatalf("at event %d: %d events of %d bytes", last, n, bytes)
		}
		if p, _ := c.history.get("run"); p.at(last) == nil || p.at(last).Seq != last || p.at(last+1) != nil ||
			p.at(list[0].Seq-1) != nil {
			t.Fatalf("at event %d: a place in it is wrong", last)
		}
	}
	if list, _ := c.events("run", last); len(list) < mostEvents/4 {
		t.Errorf("%d events are kept", len(list))
	}
	c.append("run", following(last+10, 1, 100), true) // another app wrote between
	if list, _ := c.events("run", last+11); len(list) != 1 {
		t.Errorf("%d events are kept behind a gap", len(list))
	}
	c.append("run", following(last+11, 1, 100), false)
	if list, _ := c.events("run", last+12); list != nil {
		t.Errorf("%d events are kept of a run that is over", len(list))
	}
}
