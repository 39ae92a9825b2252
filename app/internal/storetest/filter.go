package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func attribute(name string, test store.Comparison, values ...any) store.Condition {
	c := store.Condition{Field: store.FieldAttribute, Name: name, Test: test}
	for _, v := range values {
		raw, _ := json.Marshal(v)
		keys := engine.AttributeKeys(raw)
		c.Values = append(c.Values, keys[0])
	}
	return c
}

func column(field store.RunField, test store.Comparison, values ...any) store.Condition {
	return store.Condition{Field: field, Test: test, Values: values}
}

// either returns a choice of single conditions, without negated ones.
func either(of ...store.Condition) (c store.Condition) {
	for _, one := range of {
		c.Any = append(c.Any, []store.Condition{one})
	}
	return c
}

func not(c store.Condition) store.Condition { c.Not = true; return c }

// testFilters checks that filters find runs by their columns and by their search attributes, newest first, whichever
// condition's index is used, and that pages have no gaps.
func testFilters(t *testing.T, s Suite) {
	t.Run("few are read whole", func(t *testing.T) { findAndPage(t, s.New(t)) })
	t.Run("many are walked", func(t *testing.T) { findAndPage(t, s.Fixture(t, "a", Options{FewRuns: 1})) })
}

func findAndPage(t *testing.T, w *Fixture) {
	begin := map[int]int64{}
	ids := map[int]string{}
	for i := range 9 {
		in := start(w, fmt.Sprint("w", i))
		in.Request.SearchAttributes = json.RawMessage(fmt.Sprintf(
			`{"N":%d,"Big":%d,"Half":%g,"Who":"c%d","Vip":%t,"At":"2026-01-0%dT00:00:00Z","Tags":["all","t%d","t%d"],"Odd":"%s"}`,
			i-4, int64(9007199254740990)+int64(i), float64(i)/2, i%3, i%2 == 0, i+1, i%2, 7,
			[]string{"2026-01-09T00:00:00Z", "never"}[i%2]))
		if i == 8 {
			in.Request.SearchAttributes = nil
			in.Request.BusinessKey = "key"
			in.Request.WorkflowType = "other"
		}
		ids[i] = w.StartAs(in)
		w.View(func(r store.Reader) error {
			h, err := r.Run(t.Context(), ids[i])
			begin[i] = h.StartedAt.Micros()
			return err
		})
		// times are listed by the hours of starts: some hours have one run, some two, some none
		w.Pass(40 * time.Minute)
		if i == 5 {
			w.Pass(5 * time.Hour)
		}
	}
	w.Do(ids[1], engine.EndRun{})
	w.Do(ids[6], engine.EndRun{Terminate: true})
	list := func(limit int, after *engine.Head, where ...store.Condition) (names []string, heads []engine.Head) {
		t.Helper()
		q := store.RunQuery{Namespace: Namespace, Where: where, Limit: limit}
		if after != nil {
			q.AfterStart, q.AfterRun = after.StartedAt, after.ID
		}
		w.View(func(r store.Reader) error {
			list, err := r.Runs(t.Context(), q)
			heads = list.Heads
			for _, h := range heads {
				names = append(names, strings.TrimPrefix(h.WorkflowID, "w"))
			}
			return err
		})
		return names, heads
	}
	for _, c := range []struct {
		want  string
		where []store.Condition
	}{
		{"7 4 1", []store.Condition{attribute("Who", store.In, "c1")}},
		{"7 5 4 2 1", []store.Condition{attribute("Who", store.In, "c1", "c2")}},
		{"6 3 0", []store.Condition{attribute("Who", store.NotIn, "c1", "c2")}},
		{"6 0", []store.Condition{attribute("Who", store.In, "c0"), attribute("Vip", store.In, true)}},
		{"2 1 0", []store.Condition{attribute("N", store.Less, -1)}},
		{"7 6 5 4", []store.Condition{attribute("N", store.AtLeast, 0)}},
		{"5 4 3", []store.Condition{attribute("N", store.Between, -1, 1)}},
		{"7 6 5", []store.Condition{attribute("Big", store.More, int64(9007199254740994))}},
		{"3", []store.Condition{attribute("Big", store.In, int64(9007199254740993))}},
		{"3 2 1 0", []store.Condition{attribute("Half", store.AtMost, 1.5)}},
		{"4", []store.Condition{attribute("Half", store.In, 2)}},
		{"7 6 5", []store.Condition{{Field: store.FieldAttribute, Name: "At", Test: store.More, Values: []any{
			engine.TimeKey(time.Date(2026, 1, 5, 1, 0, 0, 0, time.FixedZone("", 3600))),
		}}}},
		{"4", []store.Condition{attribute("At", store.In, "2026-01-05T00:00:00Z")}},
		{"7 4 0", []store.Condition{
			attribute("At", store.In, "2026-01-05T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-08", "2026-01-30"),
		}},
		{"7 6 5 3 2 1 0", []store.Condition{attribute("At", store.NotIn, "2026-01-05T00:00:00Z")}},
		{"2 1 0", []store.Condition{attribute("At", store.Less, "2026-01-04T00:00:00Z")}},
		{"3 2 1 0", []store.Condition{attribute("At", store.AtMost, "2026-01-04T00:00:00Z")}},
		{"5 4 3", []store.Condition{attribute("At", store.Between, "2026-01-04T00:00:00Z", "2026-01-06T12:00:00Z")}},
		{"7 6 2 1 0", []store.Condition{not(attribute("At", store.Between, "2026-01-04", "2026-01-06T12:00:00Z"))}},
		{"", []store.Condition{attribute("At", store.AtLeast, "2026-03-01T00:00:00Z")}},
		{"7 6 5 4 3 2 1 0", []store.Condition{attribute("At", store.Present)}},
		{"8", []store.Condition{attribute("At", store.Absent)}},
		{"4 1", []store.Condition{
			attribute("At", store.AtMost, "2026-01-05T00:00:00Z"), attribute("Who", store.In, "c1"),
		}},
		{"6 1", []store.Condition{attribute("At", store.Present), column(store.FieldClosed, store.Present)}},
		{"4 3", []store.Condition{
			attribute("At", store.Less, "2026-01-08T00:00:00Z"), column(store.FieldStarted, store.Between, begin[3], begin[4]),
		}},
		{"6 5 4", []store.Condition{
			attribute("At", store.AtLeast, "2026-01-05T00:00:00Z"), attribute("At", store.Less, "2026-01-08T00:00:00Z"),
		}},
		{"6 4 2 0", []store.Condition{attribute("Odd", store.In, "2026-01-09T00:00:00Z")}},
		{"7 5 3 1", []store.Condition{attribute("Odd", store.In, "never")}},
		{"7 6 5 4 3 2 1 0", []store.Condition{attribute("Odd", store.Present)}},
		{"7 4 1", []store.Condition{attribute("Odd", store.Present), attribute("Who", store.In, "c1")}},
		{"8", []store.Condition{attribute("Odd", store.Absent)}},
		{"7 5 3 1", []store.Condition{attribute("Tags", store.In, "t1")}},
		{"7 6 5 4 3 2 1 0", []store.Condition{attribute("Tags", store.Prefix, "t")}},
		{"7 5 3 1", []store.Condition{attribute("Tags", store.NotIn, "t0")}},
		{"8", []store.Condition{attribute("Who", store.Absent)}},
		{"7 6 5 4 3 2 1 0", []store.Condition{attribute("Who", store.Present)}},
		{"", []store.Condition{attribute("Who", store.More, 1)}},
		{"", []store.Condition{attribute("N", store.Prefix, "c")}},
		{"8", []store.Condition{column(store.FieldType, store.In, "other")}},
		{"8", []store.Condition{column(store.FieldType, store.NotIn, "flow")}},
		{"8", []store.Condition{column(store.FieldBusinessKey, store.Prefix, "k")}},
		{"8", []store.Condition{column(store.FieldBusinessKey, store.In, "key")}},
		{"3", []store.Condition{column(store.FieldWorkflow, store.In, "w3"), column(store.FieldQueue, store.In, Queue)}},
		{"3", []store.Condition{column(store.FieldRun, store.In, ids[3])}},
		{"6 1", []store.Condition{column(store.FieldClosed, store.Present)}},
		{"6 1", []store.Condition{column(store.FieldClosed, store.More, int64(1))}},
		{
			"6 1",
			[]store.Condition{
				column(store.FieldStatus, store.In, string(protocol.RunCancelled), string(protocol.RunTerminated)),
			},
		},
		{
			"7 4",
			[]store.Condition{
				column(store.FieldStatus, store.In, string(protocol.RunRunning)), attribute("Who", store.In, "c1"),
			},
		},
		{"5 4", []store.Condition{column(store.FieldStarted, store.Between, begin[4], begin[5])}},
		{"", []store.Condition{column(store.FieldBuild, store.In, "b1")}},
		{"8 7 4 1", []store.Condition{either(attribute("Who", store.In, "c1"), column(store.FieldType, store.In, "other"))}},
		{
			"8 3",
			[]store.Condition{
				either(column(store.FieldRun, store.In, ids[3]), column(store.FieldBusinessKey, store.Prefix, "k")),
			},
		},
		{
			"4",
			[]store.Condition{
				attribute("Who", store.In, "c1"), either(attribute("Vip", store.In, true), attribute("N", store.More, 100)),
			},
		},
		{"7 6 0", []store.Condition{{Any: [][]store.Condition{
			{attribute("Who", store.In, "c0"), attribute("Vip", store.In, true)},
			{attribute("Who", store.In, "c1"), attribute("N", store.More, 2)},
		}}}},
		{"8 1 0", []store.Condition{{Any: [][]store.Condition{
			{either(attribute("N", store.Less, -2), attribute("N", store.More, 100)), attribute("Who", store.Present)},
			{attribute("Who", store.Absent)},
		}}}},
		{"7 6 5", []store.Condition{attribute("N", store.More, 0), attribute("Half", store.More, 1)}},
		{"", []store.Condition{
			attribute("N", store.More, 0), attribute("Tags", store.Prefix, "t1"), not(attribute("Tags", store.Prefix, "t1")),
		}},
		{"7 6 5 4 3", []store.Condition{not(attribute("N", store.Less, -1))}},
		{"7 6 2 1 0", []store.Condition{not(attribute("N", store.Between, -1, 1))}},
		{"", []store.Condition{not(attribute("Tags", store.Prefix, "t"))}},
		{"7 6 5 4 3 2 1 0", []store.Condition{not(column(store.FieldType, store.Prefix, "oth"))}},
		{"8 7 6 3 2 1 0", []store.Condition{not(column(store.FieldStarted, store.Between, begin[4], begin[5]))}},
		{"", []store.Condition{not(column(store.FieldClosed, store.More, int64(1)))}},
	} {
		got, heads := list(100, nil, c.where...)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v finds %v, want %s", c.where, got, c.want)
		}
		// Page by page the result is the same list.
		var paged []string
		var last *engine.Head
		for range heads {
			page, some := list(2, last, c.where...)
			if len(some) == 0 {
				break
			}
			paged, last = append(paged, page...), &some[len(some)-1]
		}
		if fmt.Sprint(paged) != fmt.Sprint(got) {
			t.Errorf("%+v pages as %v, want %v", c.where, paged, got)
		}
		// The result is also the same search by search, if no search has the time to reach the end.
		if searched := listWithoutTime(w, c.where); fmt.Sprint(searched) != fmt.Sprint(got) {
			t.Errorf("%+v is found in parts as %v, want %v", c.where, searched, got)
		}
	}
	w.Commit(store.Transaction{
		Needs: store.Keys{Runs: []string{ids[1]}, Chain: true},
		Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{DropRuns: []string{ids[1]}}, nil
		},
	})
	if got, _ := list(100, nil, attribute("Who", store.In, "c1")); fmt.Sprint(got) != "[7 4]" {
		t.Errorf("a removed run is found: %v", got)
	}
}

// listWithoutTime lists runs for some conditions in searches whose time budget is zero.
func listWithoutTime(w *Fixture, where []store.Condition) (names []string) {
	q := store.RunQuery{Namespace: Namespace, Where: where, Limit: 100, Budget: 1}
	for searching := true; searching; {
		w.View(func(r store.Reader) error {
			list, err := r.Runs(w.T.Context(), q)
			for _, h := range list.Heads {
				names = append(names, strings.TrimPrefix(h.WorkflowID, "w"))
			}
			searching = list.SearchedTo.Run != ""
			q.AfterStart, q.AfterRun = list.SearchedTo.Start, list.SearchedTo.Run
			return err
		})
	}
	return names
}

// testOddTexts checks that a run is found by its build even if some of its texts are too long for an index.
func testOddTexts(t *testing.T, s Suite) {
	w := s.New(t)
	for i, odd := range []string{`a\u0000b`, `a\ud800b`, `a\\u0000b`, `\ud83d\ude00`, `\u003c`} {
		in := start(w, fmt.Sprint("odd", i))
		in.BuildID = "b<1>"
		in.Request.Memo = json.RawMessage(`{"m":"` + odd + `","build_id":"x"}`)
		in.Request.SearchAttributes = json.RawMessage(`{"s":"` + odd + `"}`)
		w.StartAs(in)
	}
	for build, want := range map[string]int{"b<1>": 5, "x": 0} {
		w.View(func(r store.Reader) error {
			list, err := r.Runs(
				t.Context(),
				store.RunQuery{Namespace: Namespace, Where: []store.Condition{column(store.FieldBuild, store.In, build)}},
			)
			if len(list.Heads) != want {
				t.Errorf("build %s has %d runs, want %d", build, len(list.Heads), want)
			}
			return err
		})
	}
}

// testReindex checks that an upsert replaces the values that filters find, and a run without search attributes causes
// no additional writes.
func testReindex(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w")
	in := start(w, "a")
	in.Request.SearchAttributes = json.RawMessage(`{"K":"old","Stays":1}`)
	w.StartAs(in)
	found := func(name string, v any) bool {
		t.Helper()
		n := 0
		w.View(func(r store.Reader) error {
			list, err := r.Runs(
				t.Context(), store.RunQuery{Namespace: Namespace, Where: []store.Condition{attribute(name, store.In, v)}},
			)
			n = len(list.Heads)
			return err
		})
		return n == 1
	}
	if !found("K", "old") || !found("Stays", 1) {
		t.Fatal("the attributes of the start are not found")
	}
	w.Decide(w.One(protocol.KindWorkflow, worker),
		protocol.Command{Type: protocol.UpsertSearchAttributes, Attributes: json.RawMessage(`{"K":"new","Gone":null}`)},
		protocol.Command{Type: protocol.OpenSignalWait, SignalName: "s"},
	)
	if found("K", "old") || !found("K", "new") || !found("Stays", 1) {
		t.Error("the upsert is not what is found")
	}
}
