package cli_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// fencedDatabase names the database outside of Sojourn to which activities write: a URL of PostgreSQL or the path of a
// SQLite file.
const fencedDatabase = "SOJOURN_TEST_FENCED_DATABASE"

func registerFenced(r *worker.Registry) {
	r.Workflow("fence.turns", fenceTurns)
	r.Activity("fence.write", fenceWrite)
}

// fenceTurns writes in a session until a step reports that it was the last.
func fenceTurns(ctx workflow.Context, session string) (writes int, err error) {
	in := workflow.InSession(ctx, session)
	for more := true; more; writes++ {
		if more, err = workflow.Execute[bool](in, fenceWrite); err != nil {
			return writes, err
		}
	}
	return writes, nil
}

// fenceWrite writes a row after a while, in which the test may freeze its process. It ignores its context, as a call to
// a library would.
func fenceWrite(ctx context.Context) (bool, error) {
	more, err := notedStep(ctx, "write", stormStep)
	if err != nil {
		return false, err
	}
	err = fencedInsert(context.WithoutCancel(ctx))
	if errors.Is(err, activity.ErrFenced) {
		return false, errors.Join(err, writeLedger(ctx, "fenced"))
	}
	return more, err
}

func openFenced(database string) (*sql.DB, error) {
	if strings.HasPrefix(database, "postgres") {
		return sql.Open("pgx", database)
	}
	return sql.Open("sqlite", "file:"+database+"?_pragma=busy_timeout(20000)&_txlock=immediate")
}

// locked reports whether a transaction of a stopped process locks the tables of the fence.
func locked(t *testing.T, database string) bool {
	t.Helper()
	db, err := openFenced(strings.Replace(database, "?", "?lock_timeout=500&", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if !strings.HasPrefix(database, "postgres") {
		if _, err := db.ExecContext(t.Context(), "PRAGMA busy_timeout = 500"); err != nil {
			t.Fatal(err)
		}
	}
	_, err = db.ExecContext(t.Context(), "UPDATE sojourn_fences SET epoch = epoch")
	return err != nil
}

// fencedInsert writes a row with the epoch of its session, in a transaction that the fence protects.
func fencedInsert(ctx context.Context) (err error) {
	db, err := openFenced(os.Getenv(fencedDatabase))
	if err != nil {
		return err
	}
	defer db.Close()
	fence, err := activity.Fence(ctx)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fence.Apply(ctx, tx); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO writes (session_id, epoch, worker) VALUES ($1, $2, $3)`,
		fence.SessionID, fence.Epoch, activity.Info(ctx).WorkerID)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// A worker is frozen in the middle of activities until another worker has acquired their sessions and written under
// higher epochs. When it continues, the tables refuse the writes of its former epochs.
func TestTheTableRefusesLateWritesOfAFrozenOwner(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newStorm(t, kind == "postgres")
			database, key := filepath.Join(t.TempDir(), "outside.db"), "integer PRIMARY KEY"
			if kind == "postgres" {
				database, key = apptest.Postgres(t), "bigserial PRIMARY KEY"
			}
			db, err := openFenced(database)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			for _, create := range []string{
				activity.FenceTable,
				"CREATE TABLE writes (id " + key + ", session_id text NOT NULL, epoch bigint NOT NULL, worker text NOT NULL)",
			} {
				if _, err := db.ExecContext(t.Context(), create); err != nil {
					t.Fatal(err)
				}
			}
			s.leases = env{
				"SOJOURN_ATTEMPT_LEASE": "3s", "SOJOURN_SESSION_LEASE": "3s", "SOJOURN_SESSION_BUFFER": "1s",
				fencedDatabase: database,
			}
			s.begins("w1")
			for i := range 4 {
				id := fmt.Sprint("fence-", i)
				s.runs[id] = s.client.start(id, "fence.turns", id).RunID
			}
			frozen := s.stopIn("write", stormStep)
			for locked(t, database) { // another activity of the process was in its transaction, which blocks every writer
				s.signal(frozen, syscall.SIGCONT)
				s.workers = append(s.workers, frozen)
				frozen = s.stopIn("write", stormStep)
			}
			s.begins("w2")
			until(t, "another worker has written in every session", func() bool {
				var n int
				err := db.QueryRowContext(
					t.Context(), "SELECT count(DISTINCT session_id) FROM writes WHERE worker = 'w2'",
				).Scan(&n)
				return err == nil && n == len(s.runs)
			})
			s.signal(frozen, syscall.SIGCONT)
			until(t, "the frozen worker's write is refused", func() bool {
				for _, l := range ledger(t, s.ledger) {
					if l.What == "fenced" && l.Worker == frozen {
						return true
					}
				}
				return false
			})
			s.release()
			for session, run := range s.runs {
				s.client.completed(session, run)
			}
			var late int
			err = db.QueryRowContext(t.Context(), `SELECT count(*) FROM writes AS late JOIN writes AS before
				ON before.session_id = late.session_id AND before.id < late.id AND before.epoch > late.epoch`).Scan(&late)
			if err != nil || late > 0 {
				t.Errorf("%d rows of former owners follow rows of later ones (%v)", late, err)
			}
		})
	}
}
