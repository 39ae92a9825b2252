package postgres_test

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/store/storetest"
)

// However many runs there are, a listing that an index can answer reads a bounded number of rows in each of its steps.
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
	if _, err := c.Exec(t.Context(), "VACUUM ANALYZE runs, run_attributes"); err != nil {
		t.Fatal(err)
	}
	storetest.FindMany(t, p, func(t *testing.T, l storetest.Listing) {
		queries, err := p.RunPlans(t.Context(), l.RunQuery)
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range queries {
			var plan []byte
			if err := c.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) "+query).Scan(&plan); err != nil {
				t.Fatalf("%v\n%s", err, query)
			}
			var steps []struct{ Plan step }
			if err := json.Unmarshal(plan, &steps); err != nil {
				t.Fatal(err)
			}
			if n := steps[0].Plan.reads(); n > float64(l.Reads) {
				t.Errorf("a step reads %.0f rows, at most %d\n%s\n%s", n, l.Reads, query, plan)
			}
		}
	})
	t.Run("what nobody has", func(t *testing.T) { storetest.FindNothing(t, p) })
}

// step is one step of a plan that was run.
type step struct {
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Plans     []step
}

// reads is the most rows that a step of the plan reads.
func (s step) reads() float64 {
	most := (s.Rows + s.Filtered + s.Rechecked) * s.Loops
	for _, sub := range s.Plans {
		most = max(most, sub.reads())
	}
	return most
}
