package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// otherProgram opens a connection of another program, which sends no notices, and executes statements on it, such as
// BEGIN.
func otherProgram(t *testing.T, at string, statements ...string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	for _, s := range statements {
		if _, err := c.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func opened(t *testing.T, at string, o sqldb.Options) *storetest.Fixture {
	t.Helper()
	s, err := postgres.Open(t.Context(), at, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &storetest.Fixture{T: t, S: s, Queue: storetest.Queue}
}

// A row locked by another transaction is neither waited for nor treated as missing. A change that needs the row is
// answered when the lock is released, and all other changes continue.
func TestLockedRowsAreNotTreatedAsMissing(t *testing.T) {
	at := database(t)
	w := opened(t, at, sqldb.Options{})
	run := w.Start("flow")
	w.Worker("w")
	for _, lock := range []struct {
		what string
		c    store.Transaction
		want error
	}{
		{"SELECT FROM runs FOR UPDATE", storetest.Step(run, engine.SignalRun{Name: "s"}, store.Keys{}), nil},
		{
			"SELECT FROM runs FOR UPDATE",
			storetest.Step(run, engine.SignalRun{Name: "s"}, store.Keys{Chain: true, AllTasks: true}), nil,
		},
		{
			"SELECT FROM workflows FOR UPDATE",
			storetest.StartChange(engine.Start{RunID: w.ID(), Number: 1, Request: protocol.StartRequest{
				Namespace: storetest.Namespace, WorkflowID: "flow", WorkflowType: "flow", TaskQueue: storetest.Queue,
			}}), storetest.ErrExists,
		},
		{"SELECT FROM workers FOR UPDATE", store.Transaction{
			Needs: store.Keys{Workers: []engine.WorkerKey{{Namespace: storetest.Namespace, ID: "w"}}},
			Decide: func(r store.Rows, _ time.Time) (store.Writes, error) {
				if r.Worker(engine.WorkerKey{Namespace: storetest.Namespace, ID: "w"}) == nil {
					return store.Writes{}, errors.New("the worker is missing")
				}
				return store.Writes{}, nil
			},
		}, nil},
	} {
		c := otherProgram(t, at, "BEGIN", lock.what)
		done := make(chan error, 1)
		go func() {
			_, err := w.S.Commit(context.Background(), lock.c)
			done <- err
		}()
		for range 3 { // unrelated work, in later batches
			w.Start(w.ID())
		}
		select {
		case err := <-done:
			t.Fatalf("beside %q it was answered: %v", lock.what, err)
		default:
		}
		if _, err := c.Exec(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, lock.want) {
			t.Errorf("after %q: %v, want %v", lock.what, err, lock.want)
		}
	}
}

// A claim skips locked tasks, and their lock may be released without a notice. The store must claim again nevertheless.
func TestSkippedTasksAreSearchedAgain(t *testing.T) {
	at := database(t)
	line := &storetest.Line{}
	w := opened(t, at, sqldb.Options{Dispatch: line})
	worker := w.Worker("w")
	w.Start("flow")
	c := otherProgram(t, at, "BEGIN", "SELECT FROM runs FOR UPDATE")
	line.Forget()
	w.None(protocol.KindWorkflow, worker)
	for end := time.Now().Add(time.Minute); len(line.Forget()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody was told that it is worth another look")
		}
	}
	w.None(protocol.KindWorkflow, worker)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; {
		if len(line.Forget()) > 0 && len(w.LeaseTasks(protocol.KindWorkflow, worker, 1)) == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the task was never found")
		}
		time.Sleep(time.Millisecond)
	}
}

// An app with no pending migration does not take the migration lock. An app with one terminates a paused process that
// holds the lock.
func TestMigrationLockTimesOut(t *testing.T) {
	at := database(t)
	c := otherProgram(t, at, "SET application_name = '"+postgres.Migrator+"'")
	if _, err := c.Exec(t.Context(), "SELECT pg_advisory_lock($1)", int64(postgres.Migrating)); err != nil {
		t.Fatal(err)
	}
	opened(t, at, sqldb.Options{}).Start("beside the lock")
	postgres.StillFor(t, 100*time.Millisecond)
	otherProgram(t, at, "DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)")
	// The repeated migration finds its objects, so it fails, but only after it has the lock.
	_, err := postgres.Open(t.Context(), at, sqldb.Options{})
	if err == nil {
		t.Error("a database that lies about its schema was opened")
	}
	if _, err := c.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("the process that stood still has its lock")
	}
}

// Apps and their database may be started in any order.
func TestOpenWaitsForAStartingServer(t *testing.T) {
	at := database(t)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	gate := storetest.NewGate(t, server)
	u.Host = gate.Addr()
	gate.End() // the listener has ended
	if _, err := postgres.Open(t.Context(), u.String(), sqldb.Options{}); err == nil {
		t.Fatal("a server that is not there was opened")
	}
	result := make(chan error, 1)
	done := make(chan error, 1)
	go func() {
		s, err := postgres.Open(context.Background(), u.String(), sqldb.Options{Waiting: func(err error) { result <- err }})
		if err == nil {
			err = s.Close()
		}
		done <- err
	}()
	if err := <-result; err == nil {
		t.Error("told without a reason")
	}
	select {
	case err := <-done:
		t.Fatalf("the app did not wait: %v", err)
	default:
	}
	storetest.NewGateAt(t, u.Host, server)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := postgres.Open(t.Context(), named(at, "there-is-no-such-database"), sqldb.Options{
		Waiting: func(error) {},
	}); err == nil {
		t.Error("a database that does not exist was opened")
	}
}
