package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// onSchedule applies one input to a schedule and stores the decision.
func (w *Fixture) onSchedule(k engine.ScheduleKey, in engine.ScheduleInput) engine.ScheduleDecision {
	w.T.Helper()
	return w.Commit(store.Transaction{
		Needs: store.Keys{Schedules: []engine.ScheduleKey{k}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			d, err := engine.DecideSchedule(rows.Schedule(k), k, engine.ScheduleEnvironment{}, in, now)
			return store.Writes{Schedules: []engine.ScheduleDecision{d}, Answer: d}, err
		},
	}).(engine.ScheduleDecision)
}

func hourly() engine.CreateSchedule {
	return engine.CreateSchedule{Request: protocol.ScheduleRequest{
		Spec:   &protocol.ScheduleSpec{Intervals: []protocol.ScheduleInterval{{Every: "PT1H"}}},
		Action: &protocol.ScheduleAction{WorkflowType: "flow", Input: json.RawMessage(`["x"]`)},
	}}
}

// testSchedules checks that schedules are stored with their history, are due at their times, and are listed by ID
// within their namespace.
func testSchedules(t *testing.T, s Suite) {
	w := s.New(t)
	key := func(id string) engine.ScheduleKey { return engine.ScheduleKey{Namespace: Namespace, ID: id} }
	for i := range 5 {
		w.onSchedule(key(fmt.Sprint("s", i)), hourly())
	}
	w.onSchedule(engine.ScheduleKey{Namespace: "other", ID: "s0"}, hourly())
	w.onSchedule(key("s4"), engine.PauseSchedule{Note: "not now"})
	w.View(func(r store.Reader) error {
		got, err := r.Schedule(t.Context(), key("s4"))
		if got.Status != engine.SchedulePaused || got.Note != "not now" || got.Version != 2 ||
			string(got.Action.Input) != `["x"]` || got.CreatedAt.IsZero() {
			t.Errorf("kept %+v, %v", got, err)
		}
		if _, err := r.Schedule(t.Context(), key("none")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("one that is not there: %v", err)
		}
		var ids []string
		for after := ""; ; {
			page, err := r.Schedules(t.Context(), Namespace, after, 2)
			if err != nil || len(page) == 0 {
				break
			}
			for _, s := range page {
				ids = append(ids, s.ID)
			}
			after = page[len(page)-1].ID
		}
		if fmt.Sprint(ids) != "[s0 s1 s2 s3 s4]" {
			t.Errorf("paged %v", ids)
		}
		events, err := r.ScheduleEvents(t.Context(), key("s4"), 1, 10)
		if len(events) != 1 || events[0].Sequence != 2 || events[0].Type != "SchedulePaused" {
			t.Errorf("history behind 1 is %+v, %v", events, err)
		}
		for before, want := range map[int64]string{0: "[2 1]", 2: "[1]", 1: "[]"} {
			back, err := r.ScheduleEventsBack(t.Context(), key("s4"), before, 10)
			seqs := []int64{}
			for _, e := range back {
				seqs = append(seqs, e.Sequence)
			}
			if err != nil || fmt.Sprint(seqs) != want {
				t.Errorf("back from %d: %v, %v; want %s", before, seqs, err, want)
			}
		}
		return err
	})
	due := func() (ids []string) {
		w.View(func(r store.Reader) error {
			now, err := w.S.Now(t.Context())
			if err != nil {
				return err
			}
			list, err := r.Due(t.Context(), now, 100)
			for _, d := range list {
				if d.Kind == store.DueSchedule && d.Schedule.Namespace == Namespace {
					ids = append(ids, d.Schedule.ID)
				}
			}
			return err
		})
		return ids
	}
	if got := due(); len(got) != 0 {
		t.Errorf("due at once: %v", got)
	}
	w.Pass(time.Hour)
	if got := due(); len(got) != 4 {
		t.Errorf("due after an hour: %v, want all but the paused one", got)
	}
	if d := w.onSchedule(key("s0"), engine.DueSchedule{}); len(d.Starts) != 1 {
		t.Errorf("fired %+v", d)
	}
	if got := due(); len(got) != 3 {
		t.Errorf("due after one fired: %v", got)
	}
	// A decision on an outdated version is refused and does not change the row.
	_, err := w.S.Commit(t.Context(), store.Transaction{
		Needs: store.Keys{Schedules: []engine.ScheduleKey{key("s1")}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			d, err := engine.DecideSchedule(
				rows.Schedule(key("s1")), key("s1"), engine.ScheduleEnvironment{}, engine.PauseSchedule{}, now,
			)
			d.After++
			return store.Writes{Schedules: []engine.ScheduleDecision{d}}, err
		},
	})
	if err == nil {
		t.Error("a decision on another version was stored")
	}
	// A deleted schedule keeps its row for its history and is no longer due. ForgetSchedule removes the row and the
	// history.
	w.onSchedule(key("s1"), engine.DeleteSchedule{})
	if got := due(); len(got) != 2 {
		t.Errorf("due after one was taken away: %v", got)
	}
	w.View(func(r store.Reader) error {
		if s, err := r.Schedule(t.Context(), key("s1")); err != nil || s.RemovedAt.IsZero() {
			t.Errorf("after it was taken away: %+v, %v", s, err)
		}
		events, err := r.ScheduleEvents(t.Context(), key("s1"), 0, 10)
		if len(events) != 2 || events[1].Type != "ScheduleDeleted" {
			t.Errorf("its history: %+v", events)
		}
		return err
	})
	w.Pass(time.Hour)
	now, err := w.S.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.onSchedule(key("s1"), engine.ForgetSchedule{Before: now})
	w.View(func(r store.Reader) error {
		if _, err := r.Schedule(t.Context(), key("s1")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after it was forgotten: %v", err)
		}
		events, err := r.ScheduleEvents(t.Context(), key("s1"), 0, 10)
		if len(events) != 0 {
			t.Errorf("its history stays: %+v", events)
		}
		return err
	})
	if d := w.onSchedule(key("s1"), hourly()); d.After != 0 {
		t.Errorf("a new one of the old id goes on from version %d", d.After)
	}
}

// testNamespaces checks that namespaces are stored with their settings, isolate their contents, and are deleted with
// them.
func testNamespaces(t *testing.T, s Suite) {
	w := s.New(t)
	set := func(n store.Namespace) {
		w.Commit(store.Transaction{Needs: store.Keys{
			Namespaces: []string{n.Name},
		}, Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{Namespaces: []store.Namespace{n}}, nil
		}})
	}
	set(store.Namespace{Name: "blue", Description: "d", RetentionDays: 3, SearchAttributes: map[string]string{"K": "int"}})
	set(store.Namespace{Name: "blue", Description: "e", RetentionDays: 3, SearchAttributes: map[string]string{"K": "int"}})
	var runs []string
	for i := range 3 {
		in := start(w, fmt.Sprint("w", i))
		in.Request.Namespace = "blue"
		in.Request.SearchAttributes = json.RawMessage(`{"K":1}`)
		runs = append(runs, w.StartAs(in))
	}
	same := start(w, "w0") // in this namespace the ID belongs to another run
	w.StartAs(same)
	w.Do(runs[0], engine.EndRun{})
	w.onSchedule(engine.ScheduleKey{Namespace: "blue", ID: "s"}, hourly())
	filter := store.RunQuery{Namespace: "blue", Where: []store.Condition{attribute("K", store.In, 1)}}
	w.View(func(r store.Reader) error {
		n, err := r.Namespace(t.Context(), "blue")
		if n.Description != "e" || n.Retention() != 3 || n.SearchAttributes["K"] != "int" || err != nil {
			t.Errorf("kept %+v, %v", n, err)
		}
		if _, err := r.Namespace(t.Context(), "red"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("one that is not there: %v", err)
		}
		all, err := r.Namespaces(t.Context())
		if err != nil || len(all) != 2 || all[0].Name != "blue" || all[1].Name != store.DefaultNamespace {
			t.Errorf("listed %+v, %v", all, err)
		}
		c, err := r.Contents(t.Context(), "blue", 2)
		if err != nil || len(c.Runs) != 2 || len(c.Schedules) != 1 || len(c.Workers)+len(c.Sessions) != 0 {
			t.Errorf("holds %+v, %v", c, err)
		}
		now, err := w.S.Now(t.Context())
		if err != nil {
			return err
		}
		old, err := r.Outdated(t.Context(), "blue", now.Add(time.Second), 10)
		if err != nil || len(old) != 1 || old[0].ID != runs[0] {
			t.Errorf("closed before now: %+v, %v", old, err)
		}
		first, err := r.FirstClosed(t.Context(), "blue")
		if !first.Equal(old[0].ClosedAt.Time) {
			t.Errorf("the first ended at %v, %v", first, err)
		}
		if none, err := r.FirstClosed(t.Context(), Namespace); !none.IsZero() || err != nil {
			t.Errorf("nothing has ended, and the first did at %v, %v", none, err)
		}
		return err
	})
	w.Commit(store.Transaction{
		Needs: store.Keys{Runs: runs, Chain: true, Namespaces: []string{"blue"}},
		Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{DropRuns: runs, DropNamespaces: []string{"blue"}}, nil
		},
	})
	w.View(func(r store.Reader) error {
		if _, err := r.Namespace(t.Context(), "blue"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after its removal: %v", err)
		}
		if list, err := r.Runs(t.Context(), filter); len(list.Heads) != 0 || err != nil {
			t.Errorf("its runs are found: %+v, %v", list, err)
		}
		list, err := r.Events(t.Context(), runs[1], 0, 0, 10, 0)
		if len(list) != 0 {
			t.Errorf("a history stays: %+v", list)
		}
		if _, err := r.Run(t.Context(), same.RunID); err != nil {
			t.Errorf("another's run went too: %v", err)
		}
		return err
	})
}

// Nothing is a decision function that changes nothing.
func Nothing(store.Rows, time.Time) (store.Writes, error) { return store.Writes{}, nil }
