package broker

import (
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/shared/history"
)

func TestEventsAheadAreGivenPageByPageAndOnce(t *testing.T) {
	var a historyPrefetch
	var events []history.Event
	for seq := int64(3); seq <= 10; seq++ {
		events = append(events, history.Event{Seq: seq})
	}
	want := func(what string, got []history.Event, seqs ...int64) {
		t.Helper()
		var have []int64
		for _, e := range got {
			have = append(have, e.Seq)
		}
		if cap(got) > len(got) {
			t.Errorf("%s: appending to the page overwrites prefetched events", what)
		}
		if fmt.Sprint(have) != fmt.Sprint(seqs) {
			t.Errorf("%s: %v, want %v", what, have, seqs)
		}
	}
	a.add("run", events)
	want("another run", a.takePage("other", 2, 10, 100))
	want("from before what is kept", a.takePage("run", 1, 10, 100))
	want("beyond what is kept", a.takePage("run", 2, 11, 100))
	want("nothing", a.takePage("run", 10, 10, 100))
	want("the first page", a.takePage("run", 2, 10, 3), 3, 4, 5)
	want("the same again", a.takePage("run", 2, 10, 3), 3, 4, 5)
	want("the next", a.takePage("run", 5, 10, 3), 6, 7, 8)
	want("the last", a.takePage("run", 8, 10, 3), 9, 10)
	want("behind the last", a.takePage("run", 8, 10, 3))
	a.add("run", events)
	want("up to what a task was shown", a.takePage("run", 2, 6, 100), 3, 4, 5, 6)

	a.add("run", events)
	for i := range maxPrefetchedRuns {
		a.add(fmt.Sprint("later ", i), events)
	}
	want("of the oldest", a.takePage("run", 2, 10, 100))
	want("of the newest", a.takePage(fmt.Sprint("later ", maxPrefetchedRuns-1), 2, 10, 2), 3, 4)
}
