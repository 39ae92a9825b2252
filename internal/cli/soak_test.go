package cli_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// rows counts the rows of every table.
func rows(t *testing.T, driver, source string) map[string]int64 {
	t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	list := "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '%goose%'"
	if driver == "pgx" {
		list = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename NOT LIKE '%goose%'"
	}
	names, err := db.Query(list)
	if err != nil {
		t.Fatal(err)
	}
	defer names.Close()
	counts := map[string]int64{}
	for names.Next() {
		var name string
		if err := names.Scan(&name); err != nil {
			t.Fatal(err)
		}
		counts[name] = 0
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
	for name := range counts {
		var n int64
		if err := db.QueryRow("SELECT count(*) FROM " + name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		counts[name] = n
	}
	return counts
}

// kept are the tables that keep closed runs and ended sessions for the retention of their namespace.
var kept = []string{"workflows", "runs", "events", "session_events", "receipts"}

// kinds are the tables with a row for each kind of object, created when it is first used: here two routing keys, ten
// session names, and one namespace, whose epochs start above those of deleted sessions.
var kinds = map[string]int64{"lanes": 2, "sessions": 10, "epochs": 1}

// Workers start, stop, and lose connections and tasks for a while, each with at least four open polls. At the end the
// app has as much memory, as many goroutines and connections, and as many rows in all tables, except those of closed
// runs, as after the first quarter. The test runs 50 workers for 20 seconds. SOJOURN_TEST_SOAK sets another duration,
// with 500 workers; "make soak" runs ten minutes.
func TestAFleetThatChurnsLeavesNothingBehind(t *testing.T) {
	many, length, databases := 50, 20*time.Second, []string{"sqlite"}
	if text := os.Getenv("SOJOURN_TEST_SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		many, databases = 500, []string{"sqlite", "postgres"}
	}
	for _, kind := range databases {
		t.Run(kind, func(t *testing.T) {
			dir, at := t.TempDir(), address(t)
			e := env{
				"SOJOURN_ADDR": at, "SOJOURN_TOKEN": "sjn_bootstrap_of_this_test_and_long_enough", "SOJOURN_DATA_DIR": dir,
				"GOGC": "25", // so that the measured memory is in use and not uncollected garbage
			}
			driver, source := "sqlite", "file:"+filepath.Join(dir, "sojourn.db")+"?mode=ro"
			if kind == "postgres" {
				driver, source = "pgx", apptest.Postgres(t)
				e["SOJOURN_DATABASE_URL"] = source
			}
			launch(t, dir, e, "app")
			c := client{t: t, base: "http://" + at, token: e["SOJOURN_TOKEN"]}
			c.up()
			s := &soak{crowd: &crowd{t: t, url: c.base, token: c.token, reg: worker.NewRegistry()}, client: c, many: many}
			s.reg.Workflow("soak.turn", soakTurn)
			s.reg.Activity("soak.step", func(context.Context, int) (int, error) { return 1, nil })
			t.Cleanup(s.disperse)
			for range many {
				s.join()
			}
			s.churn(length / 4)
			before := s.rests(driver, source)
			s.churn(length * 3 / 4)
			after := s.rests(driver, source)
			t.Logf("%d workers, %d turns in %s: %d runs, %d joined, %d dropped", many, s.turns, length, s.runs, s.joined, s.dropped)
			for _, what := range slices.Sorted(maps.Keys(after.gauges)) {
				was, is := before.gauges[what], after.gauges[what]
				t.Logf("%-32s %14.0f %14.0f", what, was, is)
				if most := was*1.2 + restless[what]; is > most {
					t.Errorf("%s rose from %.0f to %.0f, over %.0f", what, was, is, most)
				}
			}
			for _, table := range slices.Sorted(maps.Keys(after.rows)) {
				was, is := before.rows[table], after.rows[table]
				if was != is {
					t.Logf("%-32s %14d %14d", table, was, is)
				}
				if is > max(was, kinds[table]) && !slices.Contains(kept, table) {
					t.Errorf("table %s rose from %d to %d rows", table, was, is)
				}
			}
		})
	}
}

// Allowed differences of gauges beyond a fifth, since they are read while the app is active.
var restless = map[string]float64{
	"go_goroutines": 20, "go_memstats_heap_inuse_bytes": 2 << 20, "process_resident_memory_bytes": 16 << 20,
	"process_open_fds": 20,
}

func soakTurn(ctx workflow.Context, session string) error {
	_, err := workflow.Execute[int](workflow.InSession(ctx, session), "soak.step", 1)
	return err
}

// soak is a crowd whose workers start, stop and lose connections at random.
type soak struct {
	*crowd
	client               client
	many                 int
	turns, runs, dropped int
	open                 map[string]string // runs that were not seen to have closed
}

// churn causes a random event every fiftieth of a second for a duration.
func (s *soak) churn(length time.Duration) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); s.turns++ {
		<-tick.C
		one := s.turns % len(s.members)
		switch s.turns % 10 {
		case 0:
			s.leaves(one)
			s.join()
		case 1, 2:
			s.dropped += min(1, s.members[one].drop())
		case 3:
			if s.open == nil {
				s.open = map[string]string{}
			}
			id := fmt.Sprint("turn-", s.runs)
			s.open[id] = s.client.start(id, "soak.turn", fmt.Sprint("session-", s.runs%10)).RunID
			s.runs++
		}
	}
}

// rest holds the gauges and rows of an idle app.
type rest struct {
	gauges map[string]float64
	rows   map[string]int64
}

// rests waits until all workers are connected and no runs are open, and then returns the lowest values over some time,
// since memory is released late.
func (s *soak) rests(driver, source string) rest {
	s.t.Helper()
	for id, run := range s.open {
		s.client.completed(id, run)
	}
	clear(s.open)
	for _, m := range s.members {
		until(s.t, m.id+" is connected", func() bool { return m.w.Ready() == nil })
	}
	until(s.t, "all are there", func() bool {
		active := 0
		for _, w := range s.client.workers() {
			if w.Status == protocol.WorkerActive {
				active++
			}
		}
		return active == s.many
	})
	names := slices.Sorted(maps.Keys(restless))
	r := rest{gauges: s.client.metrics(names...)}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 50 {
		<-tick.C
		for name, is := range s.client.metrics(names...) {
			r.gauges[name] = min(r.gauges[name], is)
		}
		s.client.must(http.MethodGet, "/api/workers", nil, nil) // this allocates enough for garbage collections
	}
	r.rows = rows(s.t, driver, source)
	return r
}
