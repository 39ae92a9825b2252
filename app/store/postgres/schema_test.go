package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
)

// The two schemas are written separately and must be equivalent: tables, columns with type and nullability, keys, and
// indexes with their conditions.
func TestBothDatabasesHaveTheSameSchema(t *testing.T) {
	url := database(t)
	p, err := postgres.Open(t.Context(), url, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	path := filepath.Join(t.TempDir(), "schema.db")
	s, err := sqlite.Open(t.Context(), path, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lite, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer lite.Close()
	big, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer big.Close()
	got, want := describePostgres(t, big), describeSQLite(t, lite)
	if len(want) < 60 {
		t.Fatalf("only %d lines of schema: %v", len(want), want)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("SQLite (-) and PostgreSQL (+) differ:\n%s", diff)
	}
}

func query(t *testing.T, db *sql.DB, q string, args ...any) [][]string {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), q, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for rows.Next() {
		row := make([]string, len(names))
		into := make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func describeSQLite(t *testing.T, db *sql.DB) (lines []string) {
	const tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%'"
	for _, table := range query(t, db, tables) {
		const columns = "SELECT name, type, \"notnull\", pk FROM pragma_table_info(?)"
		for _, c := range query(t, db, columns, table[0]) {
			lines = append(lines, fmt.Sprintf("%s.%s %s notnull=%s key=%s", table[0], c[0], strings.ToLower(c[1]), c[2], c[3]))
		}
		for _, i := range query(
			t, db, "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", table[0],
		) {
			lines = append(lines, i[0]+" "+indexed(i[1]))
		}
	}
	slices.Sort(lines)
	return lines
}

func describePostgres(t *testing.T, db *sql.DB) (lines []string) {
	const columns = `SELECT c.relname, a.attname, format_type(a.atttypid, NULL), CASE WHEN a.attnotnull THEN 1 ELSE 0 END,
		coalesce(array_position(i.indkey::int[], a.attnum::int) + 1, 0)
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
		WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE 'goose_%'`
	for _, c := range query(t, db, columns) {
		kind := map[string]string{"text": "text", "bigint": "integer"}[c[2]]
		lines = append(lines, fmt.Sprintf("%s.%s %s notnull=%s key=%s", c[0], c[1], kind, c[3], c[4]))
	}
	const indexes = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND indexname NOT LIKE '%_pkey' AND tablename NOT LIKE 'goose_%'"
	for _, i := range query(t, db, indexes) {
		lines = append(lines, i[0]+" "+indexed(i[1]))
	}
	slices.Sort(lines)
	return lines
}

var index = regexp.MustCompile(`\((.*?)\)(?: WHERE \(?(.*?)\)?)?$`)

// condition normalizes the two spellings of a condition: PostgreSQL adds the types of constants and brackets, and calls
// instr strpos.
var condition = strings.NewReplacer("::text", "", "(", "", ")", "", "strpos", "instr")

// indexed describes the table, columns and condition of an index.
func indexed(definition string) string {
	m := index.FindStringSubmatch(definition)
	if m == nil {
		return definition
	}
	// PostgreSQL adds brackets around an expression.
	return "(" + strings.NewReplacer("((", "(", "))", ")").Replace(m[1]) + ") " + condition.Replace(m[2])
}

// Several apps that start at once on an empty database migrate it once, and all of them start.
func TestAppsThatStartTogetherMigrateOnce(t *testing.T) {
	url := apptest.EmptyPostgres(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := postgres.Open(context.Background(), url, sqldb.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// migrated opens a store on a new database, and a separate connection to inspect the result.
func migrated(t *testing.T) (*sqldb.Store, *pgx.Conn) {
	t.Helper()
	url := database(t)
	p, err := postgres.Open(t.Context(), url, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return p, c
}

// Ids compare byte by byte, whatever the locale of the database: else pages and orders differ between installations.
func TestIdsCompareByteByByte(t *testing.T) {
	_, c := migrated(t)
	rows, err := c.Query(t.Context(),
		`SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
		JOIN pg_collation l ON l.oid = a.attcollation WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
		AND c.relname NOT LIKE 'goose_%' AND l.collname <> 'C' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range got {
		if _, column, _ := strings.Cut(name, "."); !slices.Contains([]string{"body", "state", "payload", "detail"}, column) {
			t.Errorf("%s compares by locale", name)
		}
	}
}

// ofURL opens the same database repeatedly.
func ofURL(url string) storetest.Suite {
	return storetest.Suite{Open: func(t testing.TB, _ string, o storetest.Options) store.Store {
		s, err := postgres.Open(t.Context(), url, sqldb.Options{Shift: o.Shift})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() }) // it is already closed if the test passes
		return s
	}}
}

// execute runs a statement on a separate connection.
func execute(t *testing.T, url, statement string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if _, err := c.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func TestRunsFromBeforeTheIndexAreFoundByTheirAttributes(t *testing.T) {
	url := database(t)
	storetest.FoundAfterMigration(t, ofURL(url), func(t *testing.T) {
		execute(t, url,
			"DROP TABLE batch_jobs; DROP TABLE batch_runs; DROP TABLE session_arguments; DROP TABLE session_snapshots; DROP INDEX run_attributes_time; ALTER TABLE tasks DROP COLUMN suspect; ALTER TABLE runs DROP COLUMN suspect; ALTER TABLE runs DROP COLUMN held; "+
				"ALTER TABLE sessions DROP COLUMN prepare_for, DROP COLUMN prepare_until, DROP COLUMN units, DROP COLUMN prepare_units; "+
				"DROP TABLE signal_inbox; ALTER TABLE runs DROP COLUMN inbox, DROP COLUMN inbox_from; "+
				"ALTER TABLE runs DROP COLUMN failing, DROP COLUMN unserved, DROP COLUMN unserved_at, DROP COLUMN unserved_why; "+
				"ALTER TABLE runs DROP COLUMN build_id; DELETE FROM run_attributes; DROP INDEX session_events_at; DROP INDEX sessions_open; DROP INDEX tasks_waiting; DROP INDEX runs_quarantined; DROP INDEX sessions_unheld; DROP TABLE former_children; DROP TABLE activity_logs; "+
				"DROP INDEX events_session; CREATE INDEX events_session ON events (at); ALTER TABLE events DROP COLUMN last, DROP COLUMN ended, DROP COLUMN heads, DROP COLUMN follows; ALTER TABLE sessions DROP COLUMN behind; ALTER TABLE lanes DROP COLUMN used_at; DELETE FROM schema_versions; DELETE FROM goose_db_version WHERE version_id >= 7",
		)
	})
}

func TestRowsOfALaterBuildAreKept(t *testing.T) {
	url := database(t)
	storetest.KeptOfALaterBuild(t, ofURL(url), func(t *testing.T, statement string) { execute(t, url, statement) })
}

func TestRoutingKeysWithoutATaskForADayAreDeleted(t *testing.T) {
	url := database(t)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	storetest.UnusedRoutingKeys(t, ofURL(url), func(t *testing.T) (n int) {
		t.Helper()
		if err := c.QueryRow(t.Context(), "SELECT count(*) FROM lanes").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	})
}

func TestOldAppendConflictsWithThePackedHistory(t *testing.T) {
	url := database(t)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	storetest.FencedByKeys(t, ofURL(url), func(run string, seq int64) bool {
		_, err := c.Exec(
			t.Context(), "INSERT INTO events (run_id, seq, at, type, payload) VALUES ($1, $2, 0, 'x', '{}')", run, seq,
		)
		if err != nil && !strings.Contains(err.Error(), "23505") {
			t.Fatal(err)
		}
		return err != nil
	})
}

func TestAStartAndACloseWriteFewEntriesMore(t *testing.T) {
	url := database(t)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	storetest.IndexEntries(t, ofURL(url), func() []string {
		rows, err := c.Query(t.Context(),
			"SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND indexname NOT LIKE '%_pkey' AND tablename NOT LIKE 'goose_%'")
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return all
	}, func(query string) (n int) {
		if err := c.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return n
	})
}

func TestNextTaskOfASessionIsFound(t *testing.T) {
	url := database(t)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	s := ofURL(url)
	s.Shared = true
	storetest.FollowsInSessions(t, s, func() (lead, follow int) {
		err := c.QueryRow(
			t.Context(), "SELECT count(*) FILTER (WHERE follows IS NULL), count(follows) FROM events WHERE session IS NOT NULL",
		).Scan(&lead, &follow)
		if err != nil {
			t.Fatal(err)
		}
		return lead, follow
	})
}
