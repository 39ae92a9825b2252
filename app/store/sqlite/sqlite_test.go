package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func suite(t testing.TB) storetest.Suite {
	dir := t.TempDir()
	// a task's row in the place of another is a statement, which costs less than one for many
	return storetest.Suite{Statements: 8 + 64, Open: func(t testing.TB, name string, o storetest.Options) store.Store {
		t.Helper()
		return open(t, filepath.Join(dir, name+".db"), sqldb.Options{
			App: o.App, Dispatch: o.Dispatch, Shift: o.Shift, FewRuns: o.FewRuns,
		})
	}}
}

func open(t testing.TB, path string, o sqldb.Options) *sqldb.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) { storetest.Run(t, suite(t)) }

func TestSecondOpenFailsWithTheNameOfTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one.db")
	first := open(t, path, sqldb.Options{})
	_, err := sqlite.Open(t.Context(), path, sqldb.Options{})
	if !errors.Is(err, store.ErrBusy) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Fatalf("second opener: %v, want busy with process %d", err, os.Getpid())
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path, sqldb.Options{})
}

// A synctest bubble has its own time and ends only when all goroutines in it have ended: the store starts none that
// outlives it, and waits for none outside.
func TestStoreLivesInABubble(t *testing.T) {
	s := suite(t)
	synctest.Test(t, func(t *testing.T) {
		w := s.New(t)
		a, b := w.Worker("a"), w.Worker("b")
		w.Begun("flow", storetest.Activity("x", "s"))
		w.One(protocol.KindActivity, a)
		time.Sleep(119 * time.Second)
		if got := w.Sweep(); fmt.Sprint(got) != "[session]" {
			t.Fatalf("swept %v, want the session", got)
		}
		w.None(protocol.KindActivity, b)
		time.Sleep(time.Second)
		w.Sweep()
		if l := w.One(protocol.KindActivity, b); l.Activity.Attempt != 2 || !l.IsNew {
			t.Fatalf("leased %+v", l.Activity)
		}
	})
}

func TestIdleStoreSendsNothing(t *testing.T) {
	s := suite(t)
	synctest.Test(t, func(t *testing.T) {
		w := s.New(t)
		w.Worker("a")
		w.Begun("flow", protocol.Command{Type: protocol.StartTimer, Delay: new(int64(100))})
		before := w.S.Stats()
		time.Sleep(10 * time.Second)
		if after := w.S.Stats(); after != before {
			t.Fatalf("ten idle seconds went from %+v to %+v", before, after)
		}
	})
}

// Cached state of a run without steps is evicted after a minute at most, and read when the run wakes up. A run with
// steps stays cached.
func TestSleepingRunsAreEvicted(t *testing.T) {
	s := suite(t)
	synctest.Test(t, func(t *testing.T) {
		w := s.New(t)
		sleeper, other := w.Begun("sleeper", storetest.Activity("x", "")), w.Begun("other", storetest.Activity("x", ""))
		step := func(run string) int64 {
			before := w.S.Stats()
			w.Do(run, engine.SignalRun{Name: "go"})
			after := w.S.Stats()
			return after.Statements + after.Reads - before.Statements - before.Reads
		}
		step(sleeper)
		warm := step(sleeper)
		for range 7 {
			time.Sleep(10 * time.Second)
			if n := step(other); n > warm {
				t.Fatalf("a step of a run that goes on took %d statements, %d at first", n, warm)
			}
		}
		if n := step(sleeper); n <= warm {
			t.Errorf("a step after a minute of sleep took %d statements, as many as one before it", n)
		}
		if n := step(sleeper); n != warm {
			t.Errorf("the next took %d statements, and %d before", n, warm)
		}
		before := w.S.Stats()
		time.Sleep(24 * time.Hour)
		if after := w.S.Stats(); after != before {
			t.Errorf("a day at rest went from %+v to %+v", before, after)
		}
	})
}

// A batch for a cached run reads nothing: it inserts the events, writes each table once, and writes the batch's row.
func TestWarmCompletionReadsNothing(t *testing.T) {
	w := suite(t).New(t)
	worker := w.Worker("w")
	w.Begun("flow", storetest.Activity("x", ""), storetest.Activity("y", ""))
	first, second := w.One(protocol.KindActivity, worker), w.One(protocol.KindActivity, worker)
	w.Finish(first)
	before := w.S.Stats()
	w.Finish(second)
	if got := w.S.Stats().Statements - before.Statements; got != 4 {
		t.Fatalf("a warm completion took %d statements, want batch, event, run and task", got)
	}
}

// A full disk is reported as unavailable, acknowledged work is still stored, and writes succeed when there is room
// again.
func TestFullDiskIsUnavailableAndPasses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "full.db")
	if err := open(t, path, sqldb.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	restore := sqlite.LimitPages(120)
	defer restore()
	w := &storetest.Fixture{T: t, S: open(t, path, sqldb.Options{}), Queue: storetest.Queue}
	big := strings.Repeat("x", 100_000)
	var stored []string
	var failed error
	for i := 0; failed == nil && i < 100; i++ {
		in := engine.Start{RunID: w.ID(), Number: 1, Arguments: big, Request: protocol.StartRequest{
			Namespace: storetest.Namespace, WorkflowID: fmt.Sprint("w", i), WorkflowType: "flow", TaskQueue: storetest.Queue,
		}}
		if _, failed = w.S.Commit(t.Context(), storetest.StartChange(in)); failed == nil {
			stored = append(stored, in.RunID)
		}
	}
	if !errors.Is(failed, store.ErrUnavailable) {
		t.Fatalf("after %d runs: %v, want unavailable", len(stored), failed)
	}
	for _, id := range stored {
		w.Run(id)
	}
	restore()
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	w.S = open(t, path, sqldb.Options{})
	w.Do(stored[0], engine.EndRun{})
}

func TestEveryStatementGoesByAnIndex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plans.db")
	s := open(t, path, sqldb.Options{})
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	args := make([]any, 128)
	for i := range args {
		args[i] = "[]"
	}
	for _, q := range s.Plans() {
		rows, err := db.QueryContext(context.Background(), "EXPLAIN QUERY PLAN "+q, args...)
		if err != nil {
			t.Errorf("%s: %v", q, err)
			continue
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			for _, table := range []string{
				"runs", "events", "tasks", "items", "sessions", "workflows", "workers", "receipts", "run_attributes", "t", "r",
			} {
				if detail == "SCAN "+table || strings.HasPrefix(detail, "SCAN "+table+" ") {
					t.Errorf("%s\nreads all of a table: %s", q, detail)
				}
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestRunsFromBeforeTheIndexAreFoundByTheirAttributes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	s := storetest.Suite{Open: func(t testing.TB, _ string, o storetest.Options) store.Store {
		return open(t, path, sqldb.Options{Shift: o.Shift})
	}}
	storetest.FoundAfterMigration(t, s, func(t *testing.T) {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, q := range []string{
			"DROP TABLE session_arguments", "DROP TABLE session_snapshots", "DROP TABLE batch_jobs", "DROP TABLE batch_runs",
			"DROP INDEX runs_stuck", "DROP INDEX runs_unserved", "ALTER TABLE runs DROP COLUMN failing",
			"ALTER TABLE runs DROP COLUMN unserved", "ALTER TABLE runs DROP COLUMN unserved_at",
			"ALTER TABLE runs DROP COLUMN unserved_why",
			"DROP INDEX sessions_prepare", "ALTER TABLE sessions DROP COLUMN prepare_for",
			"ALTER TABLE sessions DROP COLUMN prepare_until",
			"ALTER TABLE sessions DROP COLUMN units", "ALTER TABLE sessions DROP COLUMN prepare_units",
			"DROP TABLE signal_inbox", "DROP INDEX runs_inbox", "ALTER TABLE runs DROP COLUMN inbox",
			"ALTER TABLE runs DROP COLUMN inbox_from",
			"DROP INDEX runs_held", "ALTER TABLE runs DROP COLUMN held",
			"DROP INDEX tasks_suspect", "DROP INDEX runs_suspect", "ALTER TABLE tasks DROP COLUMN suspect",
			"ALTER TABLE runs DROP COLUMN suspect",
			"DROP INDEX run_attributes_time", "DROP INDEX runs_build", "ALTER TABLE runs DROP COLUMN build_id",
			"DELETE FROM run_attributes", "DROP INDEX session_events_at", "DROP INDEX sessions_open",
			"DROP INDEX tasks_waiting", "DROP INDEX runs_quarantined", "DROP INDEX sessions_unheld",
			"DROP TABLE former_children", "DROP TABLE activity_logs",
			"DROP INDEX events_session", "CREATE INDEX events_session ON events (at)", "ALTER TABLE events DROP COLUMN last",
			"ALTER TABLE events DROP COLUMN follows", "ALTER TABLE sessions DROP COLUMN behind",
			"ALTER TABLE events DROP COLUMN ended", "ALTER TABLE events DROP COLUMN heads", "ALTER TABLE lanes DROP COLUMN used_at",
			"DELETE FROM schema_versions", "DELETE FROM goose_db_version WHERE version_id >= 7",
		} {
			if _, err := db.Exec(q); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestRowsOfALaterBuildAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "later.db")
	s := storetest.Suite{Open: func(t testing.TB, _ string, o storetest.Options) store.Store {
		return open(t, path, sqldb.Options{Shift: o.Shift})
	}}
	storetest.KeptOfALaterBuild(t, s, func(t *testing.T, statement string) {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	})
}

// storesWithConnection is a suite whose stores share one file, with a separate connection of the test to the file.
func storesWithConnection(t *testing.T) (storetest.Suite, *sql.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return storetest.Suite{Open: func(t testing.TB, _ string, o storetest.Options) store.Store {
		return open(t, path, sqldb.Options{Shift: o.Shift})
	}}, db
}

func TestRoutingKeysWithoutATaskForADayAreDeleted(t *testing.T) {
	s, db := storesWithConnection(t)
	storetest.UnusedRoutingKeys(t, s, func(t *testing.T) (n int) {
		t.Helper()
		if err := db.QueryRow("SELECT count(*) FROM lanes").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	})
}

func TestOldAppendConflictsWithThePackedHistory(t *testing.T) {
	s, db := storesWithConnection(t)
	storetest.FencedByKeys(t, s, func(run string, seq int64) bool {
		_, err := db.Exec("INSERT INTO events (run_id, seq, at, type, payload) VALUES (?, ?, 0, 'x', '{}')", run, seq)
		if err != nil && !strings.Contains(err.Error(), "UNIQUE") {
			t.Fatal(err)
		}
		return err != nil
	})
}

func TestAStartAndACloseWriteFewEntriesMore(t *testing.T) {
	s, db := storesWithConnection(t)
	storetest.IndexEntries(t, s, func() (all []string) {
		rows, err := db.Query("SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return all
	}, func(query string) (n int) {
		if err := db.QueryRow(query).Scan(&n); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return n
	})
}

const counted = "SELECT count(CASE WHEN follows IS NULL THEN 1 END), count(follows) FROM events WHERE session IS NOT NULL"

func TestNextTaskOfASessionIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "follows.db")
	s := storetest.Suite{Open: func(t testing.TB, _ string, o storetest.Options) store.Store {
		return open(t, path, sqldb.Options{Shift: o.Shift})
	}}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	storetest.FollowsInSessions(t, s, func() (lead, follow int) {
		if err := db.QueryRow(counted).Scan(&lead, &follow); err != nil {
			t.Fatal(err)
		}
		return lead, follow
	})
}

// A thousand rounds of reads, listings among them, prepare no statement that an earlier round prepared.
func TestReadsPrepareNoStatementTwice(t *testing.T) {
	w := suite(t).New(t)
	w.Worker("a")
	timer := protocol.Command{Type: protocol.StartTimer, Delay: new(int64(100))}
	runs := []string{w.Begun("one", storetest.Activity("x", "s")), w.Begun("two", timer)}
	round := func(i int) {
		t.Helper()
		run := runs[i%2]
		err := w.S.View(t.Context(), func(r store.Reader) error {
			_, errRun := r.Run(t.Context(), run)
			_, errHead := r.Step(t.Context(), run, 0)
			_, errEvents := r.Events(t.Context(), run, int64(i%3), 10, 1+i%100, 1<<20)
			_, errLast := r.LastEvent(t.Context(), run)
			_, errList := r.Runs(t.Context(), store.RunQuery{Namespace: storetest.Namespace, Limit: 50})
			q := store.RunQuery{Namespace: storetest.Namespace, Type: fmt.Sprint("t", i), Limit: 50}
			_, errType := r.Runs(t.Context(), q)
			_, errSessions := r.Sessions(t.Context(), store.SessionQuery{Namespace: storetest.Namespace, Limit: 50})
			return errors.Join(errRun, errHead, errEvents, errLast, errList, errType, errSessions)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	round(0)
	first := w.S.Stats()
	for i := range 1000 {
		round(i)
	}
	after := w.S.Stats()
	if n := after.Prepared - first.Prepared; n != 0 || first.Prepared == 0 {
		t.Errorf("%d reads prepared %d statements, after %d in the first round", after.Reads-first.Reads, n, first.Prepared)
	}
}
