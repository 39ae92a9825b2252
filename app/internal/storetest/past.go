package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func testHistory(t *testing.T, s Suite) {
	w := s.New(t)
	run := w.Start("a")
	for i := range 30 {
		w.Do(run, engine.SignalRun{Name: fmt.Sprint("s", i), Value: "c29tZSB2YWx1ZQ=="})
	}
	page := func(after, through int64, limit, bytes int) (seqs []int64) {
		w.View(func(r store.Reader) error {
			list, err := r.Events(t.Context(), run, after, through, limit, bytes)
			for _, e := range list {
				seqs = append(seqs, e.Seq)
			}
			return err
		})
		return seqs
	}
	if got := page(0, 0, 1000, 0); len(got) != 31 || got[0] != 1 || got[30] != 31 {
		t.Fatalf("whole history is %v", got)
	}
	if got := fmt.Sprint(page(10, 14, 1000, 0)); got != "[11 12 13 14]" {
		t.Fatalf("after 10 through 14: %s", got)
	}
	if got := fmt.Sprint(page(10, 0, 3, 0)); got != "[11 12 13]" {
		t.Fatalf("three after 10: %s", got)
	}
	// A page is never larger than the limit of its encoded form.
	for _, most := range []int{1000, 3000, 9000} {
		w.View(func(r store.Reader) error {
			list, err := r.Events(t.Context(), run, 0, 0, 1000, most)
			raw, _ := json.Marshal(list)
			if len(list) < most/500 || len(raw) > most {
				t.Errorf("%d events of %d bytes are a page of at most %d bytes", len(list), len(raw), most)
			}
			return err
		})
	}
	if got := page(30, 0, 1000, 1); len(got) != 1 {
		t.Fatalf("a page smaller than an event has %d events, want 1", len(got))
	}
	w.View(func(r store.Reader) error {
		e, err := r.LastEvent(t.Context(), run)
		if d, ok := e.Data.(*history.SignalReceived); !ok || d.SignalName != "s29" || d.Value != "c29tZSB2YWx1ZQ==" ||
			e.At.IsZero() {
			t.Errorf("last event is %+v", e)
		}
		return err
	})
}

func testFind(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w")
	in := start(w, "a")
	in.Arguments = "c3RhcnQ="
	run := w.StartAs(in)
	x := Activity("x", "")
	x.Arguments.Blob = "eA=="
	w.Decide(w.One(protocol.KindWorkflow, worker), x, Activity("y", ""))
	l := w.One(protocol.KindActivity, worker)
	if l.Cached && l.Arguments != "eA==" {
		t.Fatalf("leased with arguments %q, want those it was scheduled with", l.Arguments)
	}
	w.Finish(l)
	w.View(func(r store.Reader) error {
		got, err := r.Arguments(
			t.Context(), []store.EventKey{{Run: run, Seq: 1}, {Run: run, Seq: l.Activity.Event}, {Run: run, Seq: 99}},
		)
		if err != nil {
			return err
		}
		want := map[store.EventKey]string{{Run: run, Seq: 1}: "c3RhcnQ=", {Run: run, Seq: l.Activity.Event}: "eA=="}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("arguments %v, want %v", got, want)
		}
		e, err := r.Completion(t.Context(), run, l.Activity.Seq)
		if err != nil {
			return err
		}
		if d, ok := e.Data.(*history.ActivityCompleted); !ok || d.BodyHash != "h" ||
			d.AttemptID != engine.AttemptID(run, l.Activity.Seq, 1) {
			t.Errorf("outcome is %+v", e.Data)
		}
		if _, err := r.Completion(t.Context(), run, 2); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("outcome of an open activity: %v, want not found", err)
		}
		return nil
	})
}
