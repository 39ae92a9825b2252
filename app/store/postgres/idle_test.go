package postgres_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/postgres"
)

// The server ends a transaction of a paused app after two seconds (idle_in_transaction_session_timeout), also if no
// other app meets its locks.
func TestIdleTransactionIsTerminated(t *testing.T) {
	t.Parallel()
	at := server(t)
	still, err := postgres.Committer(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer still.Close(t.Context())
	var own any
	begin, pid := &db.Stmt{SQL: "BEGIN", Control: true}, &db.Stmt{SQL: "SELECT pg_backend_pid()::bigint"}
	if err := still.Send(t.Context(), []*db.Call{
		{Stmt: begin}, {Stmt: pid, Row: func(v []any) error { own = v[0]; return nil }},
	}); err != nil {
		t.Fatal(err)
	}
	other, err := postgres.Committer(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	there := &db.Stmt{SQL: "SELECT count(*) FROM pg_stat_activity WHERE pid = $1"}
	begun, n := time.Now(), any(int64(1))
	for n != int64(0) && time.Since(begun) < 20*time.Second {
		time.Sleep(100 * time.Millisecond)
		if err := other.Send(t.Context(), []*db.Call{
			{Stmt: there, Args: []any{own}, Row: func(v []any) error { n = v[0]; return nil }},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if n != int64(0) {
		t.Fatalf("it is there still after %s", time.Since(begun))
	}
	if err := still.Send(t.Context(), []*db.Call{{Stmt: pid}}); postgres.Classify(err) != db.Lost {
		t.Errorf("its next statement: %v", err)
	}
}
