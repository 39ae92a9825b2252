package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// largeActivity returns an activity with arguments of the given size.
func largeActivity(typ, session string, bytes int) protocol.Command {
	c := Activity(typ, session)
	c.Arguments = payload.Payload{Blob: strings.Repeat("A", bytes)}
	return c
}

// claimBytes claims activities for pollers, and returns which poller received which.
func (w *Fixture) claimBytes(kind protocol.TaskKind, pollers ...store.Poller) (got string, list []store.Leased) {
	w.T.Helper()
	list, err := w.S.LeaseTasks(w.T.Context(), store.LeaseRequest{
		Namespace: Namespace, Queue: w.Queue, Kind: kind, Pollers: pollers,
	})
	if err != nil {
		w.T.Fatal(err)
	}
	var names []string
	for _, l := range list {
		name := l.Head.WorkflowID
		if l.Activity != nil {
			name = l.Activity.Type
		}
		names = append(names, fmt.Sprint(name, ":", l.Poller))
	}
	return strings.Join(names, " "), list
}

// testClaimBytes checks that a claim leases only tasks that fit into the responses of its pollers. It stops at the
// first task that does not fit and skips none; the first task of a response always fits; the remaining tasks stay ready
// and are reported.
func testClaimBytes(t *testing.T, s Suite) {
	line := &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	a, b := w.Worker("a"), w.Worker("b")
	w.Begun(
		"flow", largeActivity("huge", "", 1<<20), largeActivity("k1", "", 1000), largeActivity("large", "", 500_000),
		largeActivity("k2", "", 1000),
	)
	w.until("the hint", func() bool { l, _, _ := line.hints(); return len(l) > 0 })
	poller := func(w *engine.Worker, bytes int64, first bool) store.Poller {
		return store.Poller{Lessee: engine.Lessee{Worker: w}, Max: 10, Bytes: bytes, First: first}
	}
	if got, _ := w.claimBytes(protocol.KindActivity, poller(a, 100_000, false)); got != "" {
		t.Fatalf("100,000 bytes held %s: a task was passed over", got)
	}
	// The remaining tasks are reported, so that the next poll claims at once.
	w.until("the hint", func() bool { l, _, _ := line.hints(); return len(l) == 1 })
	w.View(func(r store.Reader) error {
		stats, err := r.Queues(t.Context(), Namespace)
		if err == nil && (stats[0].Ready != 4 || stats[0].Leased != 0) {
			t.Errorf("of four tasks that fit into no response %+v", stats[0])
		}
		return err
	})
	if got, list := w.claimBytes(protocol.KindActivity, poller(a, 2000, true)); got != "huge:0" {
		t.Fatalf("the first task of a response did not fit: %s", got)
	} else if l := list[0]; l.Activity.Delivery != 1 || l.Activity.Attempt != 1 || l.Size < 1<<20 {
		t.Errorf(
			"claimed in vain before, it is delivery %d, attempt %d, of %d bytes", l.Activity.Delivery, l.Activity.Attempt, l.Size,
		)
	}
	// k1 fits into the first poller's bytes. large does not, and k2 behind it is not leased to that poller. The second
	// poller continues from large.
	got, _ := w.claimBytes(protocol.KindActivity, poller(a, 20_000, true), poller(b, 700_000, false))
	if got != "k1:0 large:1 k2:1" {
		t.Fatalf("dealt %s", got)
	}
	// Without a limit nothing is counted.
	w.Begun("more", largeActivity("x1", "", 1<<20), largeActivity("x2", "", 1<<20))
	if got, _ := w.claimBytes(protocol.KindActivity, poller(a, 0, false)); got != "x1:0 x2:0" {
		t.Fatalf("dealt %s", got)
	}
}

// testClaimBytesInOrder checks that a claim keeps the order of tasks in a session and of priorities, even if a later,
// smaller task would fit.
func testClaimBytesInOrder(t *testing.T, s Suite) {
	w := s.New(t)
	a := w.Worker("a", Sessions(2, 30*time.Second))
	poller := func(bytes int64, first bool) store.Poller {
		return store.Poller{Lessee: engine.Lessee{Worker: a}, Max: 10, Bytes: bytes, First: first}
	}
	w.Begun("in", largeActivity("s1", "s", 1000), largeActivity("s2", "s", 400_000), largeActivity("s3", "s", 1000))
	for _, want := range []string{"s1:0", "s2:0", "s3:0"} {
		got, list := w.claimBytes(protocol.KindActivity, poller(10_000, true))
		if got != want {
			t.Fatalf("claimed %s in the session, want %s", got, want)
		}
		w.Finish(list[0])
	}
	late, urgent := largeActivity("late", "", 1000), largeActivity("urgent", "", 400_000)
	late.Priority, urgent.Priority = new(7), new(2)
	w.Begun("by", late, urgent)
	if got, _ := w.claimBytes(protocol.KindActivity, poller(10_000, false)); got != "" {
		t.Fatalf("%s went past a more urgent task", got)
	}
	if got, _ := w.claimBytes(protocol.KindActivity, poller(1_000_000, false)); got != "urgent:0 late:0" {
		t.Fatalf("claimed %s", got)
	}
}

// testClaimBytesOfHistory checks that a workflow task counts the bytes that it delivers: the whole history, or the
// events that a worker with the run in its sticky cache has not seen.
func testClaimBytesOfHistory(t *testing.T, s Suite) {
	w := s.New(t)
	a := w.Worker("a")
	start := func(name string, bytes int) string {
		in := start(w, name)
		in.Request.TaskQueue, in.Arguments = w.Queue, strings.Repeat("A", bytes)
		return w.StartAs(in)
	}
	run := start("one", 100_000)
	start("two", 100_000)
	poller := store.Poller{Lessee: engine.Lessee{Worker: a}, Max: 10, Bytes: 300_000, First: true}
	got, list := w.claimBytes(protocol.KindWorkflow, poller)
	if got != "one:0" || list[0].Size < 200_000 || list[0].Size > 210_000 {
		t.Fatalf("claimed %s, want one of two tasks of 200,000 bytes each", got)
	}
	w.Decide(list[0], Activity("step", ""))
	w.Finish(w.One(protocol.KindActivity, a))
	claim := store.LeaseRequest{
		Namespace: Namespace, Queue: w.Queue, Kind: protocol.KindWorkflow, Pollers: []store.Poller{poller},
		StickyWorkers: func(id string) []store.Process {
			if id != run {
				return nil
			}
			return []store.Process{{Worker: a.Key(), Incarnation: "1"}}
		},
	}
	list, err := w.S.LeaseTasks(t.Context(), claim)
	if err != nil || len(list) != 2 || list[0].Head.WorkflowID != "two" || list[1].Size > 10_000 {
		t.Fatalf("claimed %d tasks, %v; want both, the second by what is new in it", len(list), err)
	}
}
