package sessiontest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// inTurn are activities one after another, in a session if there is an id.
func inTurn(ctx workflow.Context, session string, n int) error {
	for i := range n {
		if _, err := in(ctx, session, fmt.Sprint(session, "#", i), 0); err != nil {
			return err
		}
	}
	return nil
}

func TestRowsOfASession(t *testing.T) {
	bubble(t, "a session costs its beginning and its end", func(h *harness) {
		h.flow("turns", inTurn)
		h.flow("started", func(ctx workflow.Context, n int) error {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return err
			}
			for i := range n {
				if err := s.Execute(ctx, "work", fmt.Sprint("started#", i), 0).Get(ctx, nil); err != nil {
					return err
				}
			}
			return s.End(ctx)
		})
		h.start("a")
		rows := func(flow string, args ...any) int64 {
			h.wait(sec) // the worker waits for tasks
			before := h.store.Stats().Rows
			h.finish(h.begin(flow, args...))
			h.wait(0) // the last commit can be read a moment before its rows are counted
			return h.store.Stats().Rows - before
		}
		// least is of some runs the one in which the worker was always back in time, as a task that waits for it is written
		// twice. On a busy machine that takes more runs: it tries until the count is at most enough, or gives up.
		least := func(flow, session string, n int, enough int64) (fewest int64) {
			for i := 0; i < 5 || i < 60 && fewest > enough; i++ {
				args := []any{n}
				if flow == "turns" {
					args = []any{strings.ReplaceAll(session, "#", fmt.Sprint(n, ".", i)), n}
				}
				if r := rows(flow, args...); i == 0 || r < fewest {
					fewest = r
				}
			}
			return fewest
		}
		least("turns", "", 1, 15) // what is written of a queue but once
		least("turns", "held", 1, 15)
		least("started", "", 1, 25)
		for _, n := range []int{5, 15} {
			plain := least("turns", "", n, int64(7+8*n))
			for _, s := range []struct {
				what, flow, id string
				most           int64 // rows more than without a session, however many activities
			}{
				{"a mere id", "turns", "id#", 2},
				{"an id that is held", "turns", "held", 0},
				{"a started session", "started", "", 10},
			} {
				got := least(s.flow, s.id, n, plain+s.most)
				t.Logf("%s: %d activities write %d rows, %d without", s.what, n, got, plain)
				if got > plain+s.most {
					t.Errorf("%s: %d activities write %d rows, %d without, want at most %d more", s.what, n, got, plain, s.most)
				}
			}
		}
	})
}
