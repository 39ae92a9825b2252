package db

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

func openPrepared(t *testing.T, conns int) *Prepared {
	t.Helper()
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	pool.SetMaxOpenConns(conns)
	return NewPrepared(pool, conns)
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// returned executes a query that returns its argument.
func returned(ctx context.Context, q querier, query string, arg int) error {
	rows, err := q.QueryContext(ctx, query, arg)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var got int
		if err := rows.Scan(&got); err != nil || got != arg {
			return fmt.Errorf("got %d for %d: %w", got, arg, err)
		}
	}
	return rows.Err()
}

// A text is prepared once, however often and in however many transactions it is executed.
func TestAStatementIsPreparedOnce(t *testing.T) {
	p := openPrepared(t, 2)
	for i := range 1000 {
		if err := returned(t.Context(), p, "SELECT $1", i); err != nil {
			t.Fatal(err)
		}
		var got int
		if err := p.QueryRowContext(t.Context(), "SELECT $1", i).Scan(&got); err != nil || got != i {
			t.Fatal(got, err)
		}
		tx, end, err := p.Begin(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err = returned(t.Context(), tx, "SELECT $1", i); err != nil {
			t.Fatal(err)
		}
		end()
	}
	if n := p.Made(); n != 1 {
		t.Errorf("3,000 executions of a text prepared %d statements", n)
	}
	if err := returned(t.Context(), p, "SELECT $1 FROM nowhere", 1); err == nil {
		t.Error("an invalid statement has no error")
	}
	if err := p.QueryRowContext(t.Context(), "SELECT nothing FROM nowhere").Scan(new(int)); err == nil {
		t.Error("an invalid statement of one row has no error")
	}
}

// Statements are evicted while other goroutines execute them and read their rows. More transactions than connections
// wait for each other and not for a connection that none of them returns.
func TestPreparedStatementsAreEvictedInUse(t *testing.T) {
	p := openPrepared(t, 4)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(g)))
			for i := range 500 {
				query := fmt.Sprintf("SELECT $1 -- %d", random.IntN(2*MaxPrepared))
				var err error
				if g%2 == 0 {
					err = returned(ctx, p, query, i)
				} else {
					var tx *PreparedTx
					var end func()
					if tx, end, err = p.Begin(ctx, nil); err == nil {
						err = returned(ctx, tx, query, i)
						end()
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if n := p.recent.Len(); n > MaxPrepared || n != len(p.known) {
		t.Errorf("%d statements are kept, %d are known by their text", n, len(p.known))
	}
	for e := p.recent.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*prepared); s.uses != 0 || s.evicted {
			t.Errorf("%q: %d uses, evicted: %v", s.text, s.uses, s.evicted)
		}
	}
}
