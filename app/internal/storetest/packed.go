package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// recording records the events of a change, as they were decided.
func recording(c store.Transaction, events *[]history.Event) store.Transaction {
	decide := c.Decide
	c.Decide = func(r store.Rows, now time.Time) (store.Writes, error) {
		w, err := decide(r, now)
		*events = nil
		for _, d := range w.Runs {
			*events = append(*events, d.Events...)
		}
		return w, err
	}
	return c
}

// events reads one page.
func (w *Fixture) events(run string, after, through int64, limit, bytes int) (list []history.Event) {
	w.T.Helper()
	w.View(func(r store.Reader) (err error) {
		list, err = r.Events(w.T.Context(), run, after, through, limit, bytes)
		return err
	})
	return list
}

// sameEvents compares events by their form in histories.
func (w *Fixture) sameEvents(what string, got, want []history.Event) {
	w.T.Helper()
	if len(got) != len(want) {
		w.T.Fatalf("%s: %d events, want %d", what, len(got), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			w.T.Fatalf("%s: event %d is %+v %+v, want %+v %+v", what, i, got[i], got[i].Data, want[i], want[i].Data)
		}
	}
}

// testPacked checks that the events of a thousand commands in one change, of 1 KB each and some of 1 MB, are stored in
// few rows, and each of their events is read as it was decided, wherever a page is cut.
func testPacked(t *testing.T, s Suite) {
	w := s.New(t)
	const n = 1000
	commands := make([]protocol.Command, n)
	for i := range commands {
		size := 1 << 10
		if i%300 == 7 {
			size = 1 << 20
		}
		commands[i] = Activity("t", "")
		commands[i].Arguments.Blob = strings.Repeat(string(rune('A'+i%26)), size)
	}
	run := w.Start("packed")
	task := w.One(protocol.KindWorkflow, w.Worker("w"))
	start := w.History(run)
	var decided []history.Event
	before := w.S.Stats()
	w.Commit(recording(Answering(task, commands...), &decided))
	// the tasks, 16 rows of 64 events, four rows of events too large to share one and the rows that they split, the run
	// and the stamp
	if rows := w.S.Stats().Rows - before.Rows; rows > n+16+2*4+4 {
		t.Errorf("%d commands are %d rows", n, rows)
	}
	want := slices.Concat(start, decided)
	w.sameEvents("at once", w.History(run), want)
	last := want[len(want)-1].Seq
	if len(want) < n || last != int64(len(want)) {
		t.Fatalf("%d events up to %d", len(want), last)
	}
	for _, size := range []int{7, 63, 64, 65, 1000} {
		var got []history.Event
		for page := w.events(run, 0, 0, size, 0); len(page) > 0; page = w.events(run, got[len(got)-1].Seq, 0, size, 0) {
			if len(page) > size {
				t.Fatalf("a page of %d has %d", size, len(page))
			}
			got = append(got, page...)
		}
		w.sameEvents(fmt.Sprint("by ", size), got, want)
	}
	for range 50 {
		after, many := rand.Int64N(last), rand.Int64N(100)
		through := min(after+1+many, last)
		w.sameEvents(fmt.Sprint("after ", after), w.events(run, after, through, 1000, 0), want[after:through])
		w.sameEvents(fmt.Sprint("at ", after), w.events(run, after, 0, 1, 1), want[after:after+1])
	}
	if got := w.events(run, 1, 0, 1000, 10<<10); len(got) < 5 || len(got) > 12 {
		t.Errorf("about 10 KB are %d events", len(got))
	}
	if got := w.events(run, last, 0, 10, 0); len(got) != 0 {
		t.Errorf("behind the last event are %d", len(got))
	}
	w.View(func(r store.Reader) error {
		var keys []store.EventKey
		arguments := map[store.EventKey]string{}
		for _, e := range want {
			if d, ok := e.Data.(*history.ActivityScheduled); ok {
				k := store.EventKey{Run: run, Seq: e.Seq}
				keys = append(keys, k)
				arguments[k] = d.Arguments
			}
		}
		for _, some := range [][]store.EventKey{keys, keys[:1], keys[70:71], {keys[3], keys[90], {Run: "none", Seq: 1}}} {
			got, err := r.Arguments(t.Context(), some)
			if err != nil {
				return err
			}
			for _, k := range some {
				if got[k] != arguments[k] {
					t.Fatalf("arguments of %v are %.20q, want %.20q", k, got[k], arguments[k])
				}
			}
		}
		e, err := r.LastEvent(t.Context(), run)
		w.sameEvents("the last", []history.Event{e}, want[last-1:])
		return err
	})
	w.finished(run, want)
}

// finished completes 200 of a run's activities in one batch: the outcome of each is found in its shared row.
func (w *Fixture) finished(run string, want []history.Event) {
	t := w.T
	leased := w.leaseAll(NewWorker("w"), 200)
	changes, decided := make([]store.Transaction, len(leased)), make([][]history.Event, len(leased))
	for i, l := range leased {
		changes[i] = recording(Finishing(l), &decided[i])
	}
	before := w.S.Stats()
	if err := errors.Join(w.together(changes...)...); err != nil {
		t.Fatal(err)
	}
	// 200 tasks that end, of which the workflow task replaces one row, four rows of events, the run and two stamps
	if rows := w.S.Stats().Rows - before.Rows; rows > 200+4+5 {
		t.Errorf("200 ends in a batch are %d rows", rows)
	}
	want = slices.Concat(append([][]history.Event{want}, decided...)...)
	w.sameEvents("with the ends", w.History(run), want)
	w.View(func(r store.Reader) error {
		for i, l := range leased {
			e, err := r.Completion(t.Context(), run, l.Activity.Seq)
			if err != nil {
				return err
			}
			w.sameEvents("the end of "+engine.StepID(run, l.Activity.Seq), []history.Event{e}, decided[i][:1])
		}
		return nil
	})
}

// testPackedSessions checks that the attempts that ended in a session are found in the order of their ends, page by
// page, although rows of the history contain several of them; and the end of a holding counts each one.
func testPackedSessions(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w", Sessions(10, time.Hour))
	want := map[string][]store.RunEvent{} // latest first
	for range 3 {
		var sessions []string
		for i := range 30 {
			sessions = append(sessions, []string{"a", "b", "a", "", "b", "b"}[i%6])
		}
		run := w.startInSessions(sessions...)
		leased := w.leaseAll(worker, 30)
		changes, decided := make([]store.Transaction, len(leased)), make([][]history.Event, len(leased))
		for i, l := range leased {
			changes[i] = recording(Finishing(l), &decided[i])
		}
		if err := errors.Join(w.together(changes...)...); err != nil {
			t.Fatal(err)
		}
		head := w.Run(run).Head
		for i, l := range leased {
			if id := l.Activity.SessionID; id != "" {
				want[id] = append(
					[]store.RunEvent{{Run: run, WorkflowID: head.WorkflowID, Event: decided[i][0]}}, want[id]...,
				)
			}
		}
		w.Pass(time.Second)
	}
	for _, id := range []string{"a", "b"} {
		key := engine.SessionKey{Namespace: Namespace, ID: id}
		for _, size := range []int{1, 2, 7, 100} {
			var got []store.RunEvent
			for {
				var before store.RunEvent
				if len(got) > 0 {
					before = got[len(got)-1]
				}
				var page []store.RunEvent
				w.View(func(r store.Reader) (err error) {
					page, err = r.SessionHistory(t.Context(), key, before, size)
					return err
				})
				if len(page) > size {
					t.Fatalf("a page of %d has %d", size, len(page))
				}
				got = append(got, page...)
				if len(page) < size {
					break
				}
			}
			if !reflect.DeepEqual(got, want[id]) {
				t.Fatalf("session %s by %d: %d ends, want %d as %v", id, size, len(got), len(want[id]), want[id])
			}
		}
		w.Commit(SessionStep(id, engine.ReleaseSession{SessionHolder: engine.SessionHolder{Worker: "w"}, Why: "test"}))
		w.View(func(r store.Reader) error {
			line, err := r.Timeline(t.Context(), key, 0, 10)
			if len(line) == 0 || line[len(line)-1].Ran != len(want[id]) {
				t.Errorf("the timeline of %s ends with %+v, want %d attempts", id, line, len(want[id]))
			}
			return err
		})
	}
}

// FencedByKeys checks that a writer that appends to an outdated history violates the primary key, because a row begins
// at the same event. taken reports whether the database refuses a row of one event.
func FencedByKeys(t *testing.T, s Suite, taken func(run string, seq int64) bool) {
	w := s.New(t)
	worker := w.Worker("w", Sessions(10, time.Hour))
	run := w.startInSessions("a", "b", "a", "a", "", "b")
	states := []int64{0, w.Run(run).LastSeq}
	leased := w.leaseAll(worker, 6)
	for _, some := range [][]store.Leased{leased[:3], leased[3:4], leased[4:]} {
		var changes []store.Transaction
		for _, l := range some {
			changes = append(changes, Finishing(l))
		}
		if err := errors.Join(w.together(changes...)...); err != nil {
			t.Fatal(err)
		}
		states = append(states, w.Run(run).LastSeq)
	}
	now := states[len(states)-1]
	for _, last := range states {
		if got, want := taken(run, last+1), last < now; got != want {
			t.Errorf("of %d events, that %d follows on: refused %v, want %v", now, last, got, want)
		}
	}
}
