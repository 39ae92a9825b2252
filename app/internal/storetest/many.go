package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ManyRuns is the number of runs in tests of listings: enough to detect a listing that reads all of them.
const ManyRuns = 100_000

// ListedRun is one of many generated runs; a test can compute which of them a filter finds.
type ListedRun struct {
	N           int
	ID          string
	Status      protocol.RunStatus
	Start, End  int64 // microseconds; End is 0 while the run is open
	Customer    string
	When        int64 // microseconds
	Rare        bool
	BusinessKey string
}

// first is when the first of them started.
var first = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// MakeRun returns the run with a number.
func MakeRun(n int) ListedRun {
	r := ListedRun{
		N: n, ID: fmt.Sprintf("R%025d", n), Status: protocol.RunCompleted, Start: first + int64(n)*1e6,
		Customer: fmt.Sprint("c", n%40), Rare: n%9973 == 5,
	}
	r.End, r.When = r.Start+int64(n%3600)*1e6+1, r.Start+int64(n%100)*1e6
	switch {
	case n >= oldestOpen:
		r.Status, r.End = protocol.RunRunning, 0
	case n%1000 == 7:
		r.Status = protocol.RunFailed
	case n%5003 == 9:
		r.Status = protocol.RunTimedOut
	}
	if n%2 == 1 {
		r.BusinessKey = fmt.Sprint("k", n/2)
	}
	return r
}

// RunColumns and AttributeColumns are the columns of the values that Row and Attributes return, in the tables runs and
// run_attributes.
var (
	RunColumns = []string{
		"run_id", "namespace", "workflow_id", "type", "number", "status", "queue", "started_at", "closed_at", "last_seq",
		"business_key", "state", "build_id",
	}
	AttributeColumns = []string{"run_id", "name", "value", "namespace", "started_at"}
)

// Row returns the run's row.
func (r ListedRun) Row() []any {
	var end, key any
	if r.End > 0 {
		end = r.End
	}
	if r.BusinessKey != "" {
		key = r.BusinessKey
	}
	return []any{
		r.ID, Namespace, fmt.Sprint("w", r.N), fmt.Sprint("t", r.N%30), 1, string(r.Status), fmt.Sprint("q", r.N%8), r.Start,
		end, 9, key, r.state(), r.build(),
	}
}

// oldestOpen is the number of the open run that started first.
const oldestOpen = ManyRuns - 500

// state returns the state of the run: two open runs have a quarantined workflow task, and a neighbour of one of them
// has the same words in another place.
func (r ListedRun) state() string {
	switch ManyRuns - r.N {
	case 100, ManyRuns - oldestOpen:
		return `{"priority":5,"task":{"n":1,"state":"quarantined"}}`
	case 101:
		return `{"priority":5,"note":{"n":1,"state":"quarantined"}}`
	}
	return `{"priority":5}`
}

// build returns the build that the run is pinned to, as two of three runs are.
func (r ListedRun) build() any {
	if r.N%3 == 0 {
		return nil
	}
	return fmt.Sprint("v", r.N/10_000)
}

// due returns two times for each tenth run, months from the first run's to the last's, and the second long after the
// first.
func (r ListedRun) due() []int64 {
	if r.N%10 != 0 {
		return nil
	}
	at := first + int64(r.N)*100e6
	return []int64{at, at + 25*3600e6}
}

// weight returns a number that is different for each run and independent of its position.
func (r ListedRun) weight() int { return r.N * 7919 % ManyRuns }

// Attributes returns the run's rows in the index of search attributes.
func (r ListedRun) Attributes() [][]any {
	list := [][]any{
		{r.ID, "Who", "t" + r.Customer, Namespace, r.Start},
		{r.ID, "When", engine.TimeKey(time.UnixMicro(r.When)), Namespace, r.Start},
	}
	for name, n := range map[string]int{"Size": r.N, "Weight": r.weight()} {
		key, _ := engine.NumberKey(json.Number(fmt.Sprint(n)))
		list = append(list, []any{r.ID, name, key, Namespace, r.Start})
	}
	for _, at := range r.due() {
		list = append(list, []any{r.ID, "Due", engine.TimeKey(time.UnixMicro(at)), Namespace, r.Start})
	}
	if r.Rare {
		list = append(list, []any{r.ID, "Rare", "tyes", Namespace, r.Start})
	}
	return list
}

// Listing is a filter on the generated runs, with its expected result.
type Listing struct {
	Name string
	store.RunQuery
	Finds func(ListedRun) bool
	// Index is the index of its first page; Next of later pages, if it is a different one.
	Index, Next string
	// Reads is the most rows that one step of a plan may read.
	Reads int
}

// Limits of one step of a listing: index entries, or runs that it reads.
const (
	pageful = 600
	// entries of a condition that are counted until it is known to match many runs: fewer than the runs with one value
	// of Who
	counted = 2_010
	someOf  = 2_500
	rangeOf = 52_000
	// timePartition are the times of the runs that start within 71 minutes, one in each second, and some more.
	timePartition = 5_000
)

// Listings returns the listings that must be fast for any number of runs.
func Listings() []Listing {
	at := func(n int) int64 { return first + int64(n)*1e6 }
	when := func(test store.Comparison, n int) store.Condition {
		key := engine.TimeKey(time.UnixMicro(at(n)))
		return store.Condition{Field: store.FieldAttribute, Name: "When", Test: test, Values: []any{key}}
	}
	of := func(name, index string, reads int, finds func(ListedRun) bool, where ...store.Condition) Listing {
		return Listing{
			Name: name, RunQuery: store.RunQuery{Namespace: Namespace, Limit: 50, Where: where}, Finds: finds, Index: index,
			Reads: reads,
		}
	}
	heldBy := func(r ListedRun, of ...string) bool { return slices.Contains(of, r.Customer) }
	bad := func(r ListedRun) bool { return r.Status == protocol.RunFailed || r.Status == protocol.RunTimedOut }
	text := func(part string) Listing {
		l := of("a part of an id", "runs_start", pageful, func(r ListedRun) bool {
			return strings.Contains(fmt.Sprint("w", r.N), part)
		})
		l.Text = part
		return l
	}
	// Many other runs are newer, so the search among the newest runs does not find their first page.
	old := of(
		"old times", "run_attributes_time", timePartition, func(r ListedRun) bool { return r.When < at(40_000) },
		when(store.Less, 40_000),
	)
	due := func(n int) any { return engine.TimeKey(time.UnixMicro(first + int64(n)*100e6)) }
	between := func(from, to int) func(ListedRun) bool {
		return func(r ListedRun) bool {
			return slices.ContainsFunc(r.due(), func(at int64) bool {
				return at >= first+int64(from)*100e6 && at <= first+int64(to)*100e6
			})
		}
	}
	dues := store.Condition{
		Field: store.FieldAttribute, Name: "Due", Test: store.Between, Values: []any{due(11_000), due(60_000)},
	}
	numbers := of(
		"old numbers", "run_attributes_value", rangeOf, func(r ListedRun) bool { return r.N < 40_000 },
		attribute("Size", store.Less, 40_000),
	)
	numbers.Next = "runs_start"
	two := of(
		"two ranges", "INDEX", 9_000, // by index entries, with the condition that advances further
		func(r ListedRun) bool { return between(60_000, ManyRuns)(r) && r.Customer == "c10" },
		store.Condition{Field: store.FieldAttribute, Name: "Due", Test: store.AtLeast, Values: []any{due(60_000)}},
		attribute("Who", store.Prefix, "c10"),
	)
	return []Listing{
		of("all", "runs_start", pageful, func(ListedRun) bool { return true }),
		of(
			"id", "runs_workflow", pageful, func(r ListedRun) bool { return r.N == 500 },
			column(store.FieldWorkflow, store.In, "w500"),
		),
		of(
			"ids", "runs_workflow", pageful, func(r ListedRun) bool { return r.N == 500 || r.N == 7 },
			column(store.FieldWorkflow, store.In, "w500", "w7"),
		),
		of(
			"beginning of an id", "runs_workflow", someOf,
			func(r ListedRun) bool { return strings.HasPrefix(fmt.Sprint("w", r.N), "w991") },
			column(store.FieldWorkflow, store.Prefix, "w991"),
		),
		of(
			"run", "PRIMARY KEY", pageful, func(r ListedRun) bool { return r.N == 3 },
			column(store.FieldRun, store.In, MakeRun(3).ID),
		),
		of(
			"business key", "runs_business_key", pageful, func(r ListedRun) bool { return r.BusinessKey == "k30000" },
			column(store.FieldBusinessKey, store.In, "k30000"),
		),
		of(
			"type", "runs_type", pageful, func(r ListedRun) bool { return r.N%30 == 7 },
			column(store.FieldType, store.In, "t7"),
		),
		of(
			"queue", "runs_queue", pageful, func(r ListedRun) bool { return r.N%8 == 3 },
			column(store.FieldQueue, store.In, "q3"),
		),
		of(
			"statuses", "runs_status", pageful, bad,
			column(store.FieldStatus, store.In, "failed", "timed_out"),
		),
		of(
			"all but a status", "runs_status", pageful, func(r ListedRun) bool { return r.Status != protocol.RunCompleted },
			column(store.FieldStatus, store.NotIn, "completed"),
		),
		of(
			"rare status of a type", "runs_status", someOf,
			func(r ListedRun) bool { return r.Status == protocol.RunTimedOut && r.N%30 == 7 },
			column(store.FieldStatus, store.In, "timed_out"), column(store.FieldType, store.In, "t7"),
		),
		of(
			"attribute", "run_attributes_value", pageful, func(r ListedRun) bool { return heldBy(r, "c17") },
			attribute("Who", store.In, "c17"),
		),
		of(
			"attributes", "run_attributes_value", pageful, func(r ListedRun) bool { return heldBy(r, "c17", "c3") },
			attribute("Who", store.In, "c17", "c3"),
		),
		of(
			"rare status of an attribute", "runs_status", counted, func(r ListedRun) bool { return bad(r) && heldBy(r, "c9") },
			attribute("Who", store.In, "c9"), column(store.FieldStatus, store.In, "failed", "timed_out"),
		),
		of(
			"the rarer of two", "runs_type", rangeOf, func(r ListedRun) bool { return r.N%8 == 3 && r.N%30 == 7 },
			column(store.FieldQueue, store.In, "q3"), column(store.FieldType, store.In, "t7"),
		),
		of(
			"rare attribute", "run_attributes_value", pageful, func(r ListedRun) bool { return r.Rare },
			attribute("Rare", store.Present),
		),
		of(
			"beginning of an attribute", "run_attributes_value", someOf,
			func(r ListedRun) bool { return strings.HasPrefix(r.Customer, "c1") },
			attribute("Who", store.Prefix, "c1"),
		),
		of(
			"new times", "run_attributes_time", timePartition, func(r ListedRun) bool { return r.When > at(ManyRuns-300) },
			when(store.More, ManyRuns-300),
		),
		of(
			"nearly all times", "run_attributes_time", timePartition, func(r ListedRun) bool { return r.When > at(300) },
			when(store.More, 300),
		),
		old,
		of(
			"a time", "run_attributes_time", pageful, func(r ListedRun) bool { return r.When == at(70_050) },
			when(store.In, 70_050),
		),
		of(
			"one of times", "run_attributes_time", pageful,
			func(r ListedRun) bool { return r.When == at(70_050) || r.When == at(1_006) },
			store.Condition{Field: store.FieldAttribute, Name: "When", Test: store.In, Values: []any{
				when(store.In, 70_050).Values[0], when(store.In, 1_006).Values[0], when(store.In, 2*ManyRuns).Values[0],
			}},
		),
		of(
			"any time", "run_attributes_time", timePartition, func(r ListedRun) bool { return len(r.due()) > 0 },
			attribute("Due", store.Present),
		),
		of(
			"times, and a rare status", "INDEX run", timePartition,
			func(r ListedRun) bool { return r.When < at(40_000) && bad(r) },
			when(store.Less, 40_000), column(store.FieldStatus, store.In, "failed", "timed_out"),
		),
		of(
			"new numbers", "run_attributes_value", rangeOf, func(r ListedRun) bool { return r.N > ManyRuns-300 },
			attribute("Size", store.More, ManyRuns-300),
		),
		of(
			"nearly all numbers", "runs_start", someOf, func(r ListedRun) bool { return r.N > 300 },
			attribute("Size", store.More, 300),
		),
		numbers,
		of(
			"two ranges of numbers", "run_attributes_value", 7_000,
			func(r ListedRun) bool { return r.N >= 40_000 && r.N < 46_000 && r.weight() < 6_500 },
			attribute("Size", store.Between, 40_000, 45_999), attribute("Weight", store.Less, 6_500),
		),
		two,
		of("times of months", "run_attributes_time", timePartition, between(11_000, 60_000), dues),
		of(
			"times of months, and a queue", "INDEX run", timePartition, // with the condition that advances further
			func(r ListedRun) bool { return between(11_000, 60_000)(r) && r.N%8 == 4 },
			column(store.FieldQueue, store.In, "q4"), dues,
		),
		of(
			"build", "runs_build", pageful, func(r ListedRun) bool { return r.build() == "v3" },
			column(store.FieldBuild, store.In, "v3"),
		),
		of(
			"builds", "runs_build", pageful, func(r ListedRun) bool { return r.build() == "v3" || r.build() == "v7" },
			column(store.FieldBuild, store.In, "v3", "v7"),
		),
		of(
			"beginning of a build", "runs_build", counted, func(r ListedRun) bool { return r.build() == "v3" },
			column(store.FieldBuild, store.Prefix, "v3"),
		),
		of(
			"closed of an old build", "runs_build", 45_000,
			func(r ListedRun) bool { return r.build() == "v3" && r.Status == protocol.RunCompleted },
			column(store.FieldBuild, store.In, "v3"), column(store.FieldStatus, store.In, "completed"),
		),
		of(
			"open of a build", "runs_status", counted,
			func(r ListedRun) bool { return r.build() == "v9" && r.End == 0 },
			column(store.FieldBuild, store.In, "v9"), column(store.FieldStatus, store.In, "running"),
		),
		of(
			"started before", "runs_start", pageful, func(r ListedRun) bool { return r.Start <= at(9000) },
			column(store.FieldStarted, store.AtMost, at(9000)),
		),
		of(
			"started between", "runs_start", pageful,
			func(r ListedRun) bool { return r.Start >= at(500) && r.Start <= at(9000) },
			column(store.FieldStarted, store.Between, at(500), at(9000)),
		),
		of(
			"closed after", "runs_start", rangeOf, func(r ListedRun) bool { return r.End > at(20_000) },
			column(store.FieldClosed, store.More, at(20_000)),
		),
		of(
			"closed before", "runs_start", rangeOf, func(r ListedRun) bool { return r.End > 0 && r.End < at(60_000) },
			column(store.FieldClosed, store.Less, at(60_000)),
		),
		of(
			"open", "runs_status", pageful, func(r ListedRun) bool { return r.End == 0 },
			column(store.FieldClosed, store.Absent),
		),
		of(
			"one or the other", "runs_business_key", someOf,
			func(r ListedRun) bool { return r.Rare || r.BusinessKey == "k30000" },
			either(attribute("Rare", store.In, "yes"), column(store.FieldBusinessKey, store.In, "k30000")),
		),
		of(
			"without an attribute", "runs_start", pageful, func(r ListedRun) bool { return !r.Rare },
			attribute("Rare", store.Absent),
		),
		of(
			"turned around", "runs_start", pageful, func(r ListedRun) bool { return !heldBy(r, "c3") },
			not(attribute("Who", store.In, "c3")),
		),
		text("w9"),
	}
}

// FindMany checks three pages of each listing against the expected runs. It calls plans for each page to check the
// query plan.
func FindMany(t *testing.T, s store.Store, plans func(t *testing.T, l Listing)) {
	for _, l := range Listings() {
		t.Run(l.Name, func(t *testing.T) {
			var want []string
			for n := ManyRuns - 1; n >= 0 && len(want) < 3*l.Limit; n-- {
				if r := MakeRun(n); l.Finds(r) {
					want = append(want, r.ID)
				}
			}
			var got []string
			for range 3 {
				plans(t, l)
				err := s.View(t.Context(), func(r store.Reader) error {
					list, err := r.Runs(t.Context(), l.RunQuery)
					for _, h := range list.Heads {
						got = append(got, h.ID)
						l.AfterStart, l.AfterRun = h.StartedAt, h.ID
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if l.Next != "" {
					l.Index = l.Next
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("finds %d runs, want %d:\n%v\n%v", len(got), len(want), got, want)
			}
		})
	}
}

// FindNothing searches many runs for a text that no run contains and that has no index. The search budget is exhausted
// at once, so each response states how far the search came, and the next request continues there.
func FindNothing(t *testing.T, s store.Store) {
	q := store.RunQuery{Namespace: Namespace, Text: "nobody", Limit: 50, Budget: 1}
	last := history.Micros(first + ManyRuns*1e6)
	searches := 0
	for searching := true; searching; searches++ {
		err := s.View(t.Context(), func(r store.Reader) error {
			list, err := r.Runs(t.Context(), q)
			to := list.SearchedTo
			if searching = to.Run != ""; searching && to.Start.Micros() >= last.Micros() {
				t.Fatalf("searched to %v, after %v", to.Start, last)
			}
			if len(list.Heads) > 0 {
				t.Errorf("finds %d", len(list.Heads))
			}
			q.AfterStart, q.AfterRun, last = to.Start, to.Run, to.Start
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if most := ManyRuns/500 + 1; searches < 2 || searches > most {
		t.Errorf("%d searches, want 2 to %d", searches, most)
	}
}
