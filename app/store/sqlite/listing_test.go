package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store/internal/read"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// However many runs exist, a listing that an index can serve reads only the index entries of its page, and no listing
// reads a whole table.
func TestListingsOfManyRunsGoByAnIndex(t *testing.T) {
	if testing.Short() {
		t.Skip("stores a large number of runs")
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "many.db")
	s := open(t, path, sqldb.Options{})
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(off)&_pragma=cache_size(-200000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	insert := func(table string, columns []string) *sql.Stmt {
		places := strings.Repeat(",?", len(columns))[1:]
		st, err := tx.PrepareContext(t.Context(),
			"INSERT INTO "+table+" ("+strings.Join(columns, ",")+") VALUES ("+places+")")
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	runs, attributes := insert("runs", storetest.RunColumns), insert("run_attributes", storetest.AttributeColumns)
	for n := range storetest.ManyRuns {
		r := storetest.MakeRun(n)
		if _, err := runs.Exec(r.Row()...); err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Attributes() {
			if _, err := attributes.Exec(row...); err != nil {
				t.Fatal(err)
			}
		}
	}
	tasks := insert("tasks", storetest.TaskColumns)
	for n := range storetest.ManyTasks {
		if _, err := tasks.Exec(storetest.MakeTask(n)...); err != nil {
			t.Fatal(err)
		}
	}
	sessions := insert("sessions", storetest.SessionColumns)
	for n := range storetest.ManySessions {
		if _, err := sessions.Exec(storetest.MakeSession(n)...); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	storetest.FindMany(t, s, func(t *testing.T, l storetest.Listing) {
		queries, err := s.Reads().RunPlans(t.Context(), l.RunQuery)
		if err != nil {
			t.Fatal(err)
		}
		index := ""
		for _, query := range queries {
			index = "" // index of the last statement, which reads the page
			rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query)
			if err != nil {
				t.Fatalf("%v\n%s", err, query)
			}
			for rows.Next() {
				var id, parent, unused int
				var detail string
				if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
					t.Fatal(err)
				}
				index += detail + "\n"
				of, scan := strings.CutPrefix(detail, "SCAN ")
				if scan && !slices.Contains([]string{"a", "b", "y", "s", "CONSTANT ROW"}, of) { // results of subqueries
					t.Errorf("%s\n%.2000s", detail, query)
				}
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			rows.Close()
		}
		// By the entries of one attribute, no row is read of a run that another leaves out.
		other, row := strings.Index(index, "SEARCH y "), strings.Index(index, "SEARCH r ")
		if strings.Contains(index, "INDEX run_attributes_") && other > row {
			t.Errorf("reads the run first:\n%s", index)
		}
		if !strings.Contains(index, l.Index) {
			t.Errorf("not by %s:\n%s%s", l.Index, index, queries)
		}
	})
	t.Run("what nobody has", func(t *testing.T) { storetest.FindNothing(t, s) })
	t.Run("numbers", func(t *testing.T) { storetest.Numbers(t, s) })
	for _, read := range s.Reads().Counts(storetest.Namespace) {
		t.Run(read.Name, func(t *testing.T) {
			plan := explain(t, db, read)
			for detail := range strings.Lines(plan) {
				table, scans := strings.CutPrefix(detail, "SCAN ")
				// The result of a subquery is not a table, and neither is a list of words.
				table, _, _ = strings.Cut(strings.TrimSpace(table), " ")
				if scans && !slices.Contains([]string{"few", "q", "names", "n", "k", "s", "CONSTANT"}, table) {
					t.Errorf("reads all of a table: %s%s", detail, read.Query)
				}
			}
			for _, index := range map[string][]string{
				"runs":   {"USING COVERING INDEX runs_status"},
				"queues": {"USING COVERING INDEX tasks_waiting (namespace=?)", "INDEX tasks_owner", "INDEX runs_owner"},
				"queues up to": {
					"USING COVERING INDEX tasks_waiting (namespace=? AND queue>?)",
					"USING COVERING INDEX tasks_waiting (namespace=? AND queue=? AND kind=? AND state=?)",
				},
				"sessions":       {"namespace=?"},
				"sessions up to": {"INDEX sessions_due (due_at>?)", "COVERING INDEX sessions_unheld (namespace=? AND status=?"},
				"due activities": {"INDEX tasks_due"},
				"quarantined":    {"INDEX runs_quarantined (namespace=? AND status=?)"},
				"oldest ready":   {"USING COVERING INDEX tasks_waiting (namespace=? AND queue=? AND kind=? AND state=?)"},
				"order":          {"USING COVERING INDEX tasks_waiting (namespace=? AND queue=?)"},
			}[read.Name] {
				if !strings.Contains(plan, index) {
					t.Errorf("not by %s:\n%s%s", index, plan, read.Query)
				}
			}
		})
	}
}

func explain(t *testing.T, db *sql.DB, read read.Read) (plan string) {
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+read.Query, read.Args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, read.Query)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan += detail + "\n"
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan
}
