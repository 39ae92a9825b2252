package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// logged stores lines of an attempt.
func (w *Fixture) logged(k store.AttemptKey, part int64, texts ...string) {
	w.T.Helper()
	w.Commit(logging(k, part, texts...))
}

// logging is a change that stores lines of an attempt.
func logging(k store.AttemptKey, part int64, texts ...string) store.Transaction {
	p := store.LogBatch{LogKey: store.LogKey{AttemptKey: k, Part: part}}
	for _, text := range texts {
		p.Lines = append(p.Lines, protocol.LogLine{Level: "info", Source: "stdout", Text: text})
	}
	return store.Transaction{Background: true, Decide: func(store.Rows, time.Time) (store.Writes, error) {
		return store.Writes{Logs: []store.LogBatch{p}}, nil
	}}
}

// lines returns the stored texts of an attempt after a part.
func (w *Fixture) lines(k store.AttemptKey, after int64) string {
	w.T.Helper()
	out := ""
	w.View(func(r store.Reader) error {
		list, err := r.Logs(w.T.Context(), k, after, 100)
		for _, p := range list {
			for _, l := range p.Lines {
				out += fmt.Sprintf("%d %s;", p.Part, l.Text)
			}
		}
		return err
	})
	return out
}

func testLogs(t *testing.T, s Suite) {
	w := s.New(t)
	run := w.Start("a")
	other := w.Start("b")
	first, second := store.AttemptKey{Run: run, Seq: 2, Delivery: 1}, store.AttemptKey{Run: run, Seq: 2, Delivery: 2}
	elsewhere := store.AttemptKey{Run: other, Seq: 2, Delivery: 1}
	w.logged(first, 1, "one", "two")
	w.logged(first, 2, "three\x00 \U0001F6B6")
	w.logged(first, 2, "again") // the response was lost: the part was stored before
	w.logged(second, 1, "four")
	w.logged(elsewhere, 1, "five")
	if got, want := w.lines(first, 0), "1 one;1 two;2 three\x00 \U0001F6B6;"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := w.lines(first, 1), "2 three\x00 \U0001F6B6;"; got != want {
		t.Errorf("behind the first part: got %q, want %q", got, want)
	}
	w.View(func(r store.Reader) error {
		sums, err := r.LogSums(t.Context(), run, 2)
		if want := []store.LogSum{
			{Delivery: 1, Size: 6 + 11 + 3*64, Last: 2}, {Delivery: 2, Size: 4 + 64, Last: 1},
		}; fmt.Sprint(sums) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", sums, want)
		}
		return err
	})
	var old []store.LogKey
	w.View(func(r store.Reader) error {
		now, err := w.S.Now(t.Context())
		if err != nil {
			return err
		}
		at, err := r.FirstLog(t.Context())
		if at.IsZero() || at.After(now) || err != nil {
			t.Errorf("the oldest were stored at %v, %v", at, err)
		}
		if none, err := r.OldLogs(t.Context(), at, 10); len(none) > 0 || err != nil {
			t.Errorf("older than the oldest: %v, %v", none, err)
		}
		old, err = r.OldLogs(t.Context(), now.Add(time.Second), 2)
		return err
	})
	if len(old) != 2 || old[0].AttemptKey != first {
		t.Fatalf("oldest first, two at most: got %v", old)
	}
	w.Commit(store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) {
		return store.Writes{DropLogs: old}, nil
	}})
	if got := w.lines(first, 0) + w.lines(second, 0) + w.lines(elsewhere, 0); got != "1 four;1 five;" {
		t.Errorf("after the oldest went: got %q", got)
	}
	w.Commit(store.Transaction{
		Needs: store.Keys{Runs: []string{run}, Chain: true},
		Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{DropRuns: []string{run}}, nil
		},
	})
	if got := w.lines(second, 0) + w.lines(elsewhere, 0); got != "1 five;" {
		t.Errorf("after the run went: got %q", got)
	}
	w.logged(second, 2, "late")
	if got := w.lines(second, 0); got != "" {
		t.Errorf("of a run that is gone was stored %q", got)
	}
	// both in one batch
	gone := w.Start("c")
	k := store.AttemptKey{Run: gone, Seq: 2, Delivery: 1}
	w.together(store.Transaction{
		Needs: store.Keys{Runs: []string{gone}, Chain: true},
		Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{DropRuns: []string{gone}}, nil
		},
	}, logging(k, 1, "late"))
	if got := w.lines(k, 0); got != "" {
		t.Errorf("of a run that went in the same batch was stored %q", got)
	}
}
