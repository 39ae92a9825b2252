package broker_test

import (
	"database/sql"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Test case IS-P24: an activity that was stored before sessions existed has no session; workers with and without
// session support may run it.
func TestAnItemStoredBeforeThereWereSessions(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		before := apptest.Start(t, apptest.Options{Database: database})
		a := &app{before.Broker(), before.View(), before.Store(), t}
		a.older("O")
		a.start("wf")
		a.taken(a.decide(a.task("O", protocol.KindWorkflow, "wf"), greet(), greet()))
		before.Stop()
		asBeforeSessions(t, database, 2)
		a = on(t, database)
		a.older("O")
		a.ours("N", "n1", time.Minute, time.Hour, 10)
		for _, worker := range []string{"O", "N"} {
			task := a.task(worker, protocol.KindActivity, "wf")
			if s := task.Activity.Session; s != nil {
				t.Errorf("worker %s received the activity in session %+v", worker, s)
			}
			a.taken(a.result(task, "done"))
		}
	})
}

// separateConnection opens a separate connection to the database of an app.
func separateConnection(t *testing.T, database string) *sql.DB {
	t.Helper()
	driver := "pgx"
	if path, ok := strings.CutPrefix(database, "sqlite:"); ok {
		driver, database = "sqlite", "file:"+path
	}
	db, err := sql.Open(driver, database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// asBeforeSessions rewrites the stored activities to the format of a release without sessions.
func asBeforeSessions(t *testing.T, database string, items int) {
	t.Helper()
	db := separateConnection(t, database)
	rows, err := db.Query("SELECT run_id, seq, body FROM tasks WHERE kind = 'activity'")
	if err != nil {
		t.Fatal(err)
	}
	type item struct {
		run  string
		seq  int64
		body string
	}
	var all []item
	for rows.Next() {
		var i item
		if err := rows.Scan(&i.run, &i.seq, &i.body); err != nil {
			t.Fatal(err)
		}
		all = append(all, i)
	}
	if err := rows.Err(); err != nil || len(all) != items {
		t.Fatalf("%d items are stored, want %d: %v", len(all), items, err)
	}
	for _, i := range all {
		var body map[string]json.RawMessage
		if err := json.Unmarshal([]byte(i.body), &body); err != nil {
			t.Fatal(err)
		}
		old := map[string]json.RawMessage{}
		for _, name := range []string{"type", "queue", "event", "state"} { // members that every release has stored
			if v, ok := body[name]; ok {
				old[name] = v
			}
		}
		raw, err := json.Marshal(old)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(
			"UPDATE tasks SET session_id = NULL, body = $1 WHERE run_id = $2 AND seq = $3", string(raw), i.run, i.seq,
		); err != nil {
			t.Fatal(err)
		}
	}
}
