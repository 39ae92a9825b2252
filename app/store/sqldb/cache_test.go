package sqldb

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func following(last int64, n, bytes int) appended {
	a := appended{bytes: bytes}
	for i := range n {
		a.list = append(a.list, history.Event{Seq: last + int64(i) + 1})
	}
	return a
}

// The end of a history stays in memory, however long the history gets: a worker with the run in its sticky cache has
// not seen it.
func TestTheEndOfAHistoryIsKeptWhateverItsLength(t *testing.T) {
	c := newCache(maxHistory)
	var last int64
	for range 20_000 {
		c.append("run", following(last, 3, 3*1024), true)
		last += 3
		list, bytes := c.events("run", last)
		n := len(list)
		if n < 3 || n > maxEvents || bytes > maxTailBytes || list[n-1].Seq != last || list[0].Seq != last-int64(n)+1 {
			t.Fatalf("at event %d: %d events of %d bytes", last, n, bytes)
		}
		if p, _ := c.history.get("run"); p.at(last) == nil || p.at(last).Seq != last || p.at(last+1) != nil ||
			p.at(list[0].Seq-1) != nil {
			t.Fatalf("at event %d: an event has the wrong position", last)
		}
	}
	if list, _ := c.events("run", last); len(list) < maxEvents/4 {
		t.Errorf("%d events are cached", len(list))
	}
	c.append("run", following(last+10, 1, 100), true) // another app wrote events in between
	if list, _ := c.events("run", last+11); len(list) != 1 {
		t.Errorf("%d events are cached after a gap", len(list))
	}
	c.append("run", following(last+11, 1, 100), false)
	if list, _ := c.events("run", last+12); list != nil {
		t.Errorf("%d events of a closed run are cached", len(list))
	}
}

// Entries that were not used during a whole round are evicted, a limited number at a time.
func TestUnusedEntriesAreEvicted(t *testing.T) {
	l := newLRU[int, int](10_000)
	for i := range 2500 {
		l.add(i, i, 2)
	}
	rest := func() []int {
		l.nextRound()
		var left []int
		for l.evict(maxEvictions) {
			left = append(left, l.len())
		}
		return append(left, l.len())
	}
	if got := fmt.Sprint(rest()); got != "[2500]" {
		t.Errorf("after the round in which they were added: %s", got)
	}
	for i := range 3 {
		l.get(i)
	}
	if got := fmt.Sprint(rest()); got != "[1500 500 3]" {
		t.Errorf("after another: %s", got)
	}
	for i := range 4 {
		if v, ok := l.get(i); ok != (i < 3) || ok && v != i {
			t.Errorf("%d is %d, %t", i, v, ok)
		}
	}
	rest()
	if rest(); l.len() != 0 || l.weight != 0 {
		t.Errorf("%d entries of weight %d", l.len(), l.weight)
	}
	l.add(1, 1, 1)
	if v, ok := l.get(1); !ok || v != 1 {
		t.Error("the cache accepts no new entry")
	}
}

// The weight of a history is the memory that it uses; events without payloads count, too.
func TestEventsWithoutPayloadsWeigh(t *testing.T) {
	c := newCache(maxHistory)
	for i := range 100_000 {
		c.append(fmt.Sprint(i), following(0, 3, 0), true)
	}
	if n := c.history.len(); n > maxHistory>>10 {
		t.Errorf("the ends of %d histories are cached", n)
	}
}

// The cached head of a run is valid until the run is written, or the whole run is cached.
func TestTheCachedHeadOfARunIsDroppedWhenTheRunIsWritten(t *testing.T) {
	c := newCache(maxHistory)
	batchOf := func(r *run) *batch {
		r.Run = &engine.Run{Head: engine.Head{ID: "run", Status: protocol.RunRunning}}
		return &batch{runs: map[string]*run{"run": r}}
	}
	for _, b := range []*batch{
		batchOf(&run{version: 7}), batchOf(&run{partial: true, wrote: true, version: 7}), {dropped: []string{"run"}},
	} {
		c.remember(batchOf(&run{partial: true, version: 7}), true)
		if r := c.partly("run", 7); r == nil || !r.partial || r.version != 7 || c.partly("run", 8) != nil {
			t.Fatal("the head of a run that was read for a claim is not cached by its version")
		}
		if c.remember(b, true); c.partly("run", 7) != nil {
			t.Errorf("the head is remembered still after %+v", b.runs["run"])
		}
	}
	c.remember(batchOf(&run{partial: true}), true)
	if c.forget(batchOf(&run{partial: true})); c.partly("run", 0) != nil {
		t.Error("the head is remembered still after a batch that was not stored")
	}
}

// Unused entries of all caches are evicted, not only when a new entry needs space: evictables contains every cache.
func TestEveryReloadableListIsEvicted(t *testing.T) {
	s := &Store{cache: newCache(maxHistory), memory: newMemory()}
	evicted := map[uintptr]bool{reflect.ValueOf(s.cache.workers).Pointer(): true} // exempt by design
	for _, f := range s.evictables() {
		evicted[reflect.ValueOf(f).Pointer()] = true
	}
	lists := 0
	for _, v := range []reflect.Value{reflect.ValueOf(s.cache).Elem(), reflect.ValueOf(s.memory).Elem()} {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Type.Kind() != reflect.Pointer || !strings.HasPrefix(f.Type.Elem().Name(), "lru[") {
				continue
			}
			if lists++; !evicted[v.Field(i).Pointer()] {
				t.Errorf("%s.%s is not evicted", v.Type().Name(), f.Name)
			}
		}
	}
	if lists != len(evicted) {
		t.Errorf("%d lists, %d that are evicted", lists, len(evicted))
	}
}
