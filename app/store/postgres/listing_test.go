package postgres_test

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/internal/storetest"
)

// However many runs exist, a listing that an index can serve reads a bounded number of rows in each of its steps.
func TestListingsOfManyRunsReadLittle(t *testing.T) {
	t.Parallel()
	p, c := migrated(t)
	load := func(table string, columns []string, rows pgx.CopyFromSource) {
		if _, err := c.CopyFrom(t.Context(), pgx.Identifier{table}, columns, rows); err != nil {
			t.Fatal(err)
		}
	}
	load("runs", storetest.RunColumns, pgx.CopyFromSlice(storetest.ManyRuns, func(n int) ([]any, error) {
		return storetest.MakeRun(n).Row(), nil
	}))
	var attributes [][]any
	for n := range storetest.ManyRuns {
		attributes = append(attributes, storetest.MakeRun(n).Attributes()...)
	}
	load("run_attributes", storetest.AttributeColumns, pgx.CopyFromRows(attributes))
	load("tasks", storetest.TaskColumns, pgx.CopyFromSlice(storetest.ManyTasks, func(n int) ([]any, error) {
		return storetest.MakeTask(n), nil
	}))
	load("sessions", storetest.SessionColumns, pgx.CopyFromSlice(storetest.ManySessions, func(n int) ([]any, error) {
		return storetest.MakeSession(n), nil
	}))
	if _, err := c.Exec(t.Context(), "VACUUM ANALYZE runs, run_attributes, tasks, sessions"); err != nil {
		t.Fatal(err)
	}
	storetest.FindMany(t, p, func(t *testing.T, l storetest.Listing) {
		queries, err := p.Reads().RunPlans(t.Context(), l.RunQuery)
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range queries {
			reads(t, c, l.Reads, query)
		}
	})
	t.Run("what nobody has", func(t *testing.T) { storetest.FindNothing(t, p) })
	t.Run("numbers", func(t *testing.T) { storetest.Numbers(t, p) })
	for _, namespace := range []string{storetest.Namespace, "strangers"} {
		for _, read := range p.Reads().Counts(namespace) {
			t.Run(read.Name+" of "+namespace, func(t *testing.T) {
				reads(t, c, storetest.MostRead(read.Name, namespace), read.Query, read.Args...)
			})
		}
	}
}

// reads fails the test if one step of a statement reads more rows than most.
func reads(t *testing.T, c *pgx.Conn, most int, query string, args ...any) {
	t.Helper()
	var plan []byte
	if err := c.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) "+query, args...).Scan(&plan); err != nil {
		t.Fatalf("%v\n%s", err, query)
	}
	var steps []struct{ Plan step }
	if err := json.Unmarshal(plan, &steps); err != nil {
		t.Fatal(err)
	}
	if n := steps[0].Plan.reads(); n > float64(most) {
		t.Errorf("a step reads %.0f rows, at most %d\n%s\n%s", n, most, query, plan)
	}
}

// step is one step of a plan that was run.
type step struct {
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Plans     []step
}

// reads returns the largest number of rows that a step of the plan reads.
func (s step) reads() float64 {
	most := (s.Rows + s.Filtered + s.Rechecked) * s.Loops
	for _, sub := range s.Plans {
		most = max(most, sub.reads())
	}
	return most
}
