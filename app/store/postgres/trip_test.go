package postgres_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/postgres"
)

// The committer's messages are encoded by this package and not by the driver: each type of value arrives unchanged; an
// error ends its pipeline but not a later one, and the connection remains usable.
func TestTheCommittersConnection(t *testing.T) {
	at := server(t)
	c, err := postgres.Committer(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	// These statements are not prepared yet, so the server has to prepare them in the middle of the pipeline.
	ask := func(sql string, args ...any) *db.Call { return &db.Call{Stmt: &db.Stmt{SQL: sql}, Args: args} }
	var got [][]any
	rows := func(call *db.Call) *db.Call {
		call.Row = func(v []any) error { got = append(got, slices.Clone(v)); return nil }
		return call
	}
	send := func(calls ...*db.Call) error { got = nil; return c.Send(t.Context(), calls) }
	want := func(t *testing.T, want ...[]any) {
		t.Helper()
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	works := func(t *testing.T) {
		t.Helper()
		if err := send(rows(ask("SELECT $1::bigint + 1", int64(41)))); err != nil {
			t.Fatal(err)
		}
		want(t, []any{int64(42)})
	}

	t.Run("values", func(t *testing.T) {
		texts, numbers := []string{"", "a\\'\"{},NULL", "ü€😀"}, []int64{math.MinInt64, -1, math.MaxInt64}
		if err := send(
			rows(ask("SELECT t, n FROM unnest($1::text[], $2::bigint[]) AS u(t, n)", &texts, &numbers)),
			rows(ask("SELECT t, n FROM unnest($1::text[], $2::bigint[]) AS u(t, n)", texts[:1], []int64{0, 7})),
			rows(ask("SELECT n FROM unnest($1::bigint[]) AS u(n)", []int64(nil))),
			rows(ask("SELECT $1::text, $2::bigint, $3::bigint, $4::bigint", "", int64(math.MinInt64), 5, nil)),
		); err != nil {
			t.Fatal(err)
		}
		want(t, []any{"", int64(math.MinInt64)}, []any{"a\\'\"{},NULL", int64(-1)}, []any{"ü€😀", int64(math.MaxInt64)},
			[]any{"", int64(0)}, []any{nil, int64(7)}, []any{"", int64(math.MinInt64), int64(5), nil})
		if err := send(ask("SELECT $1::bigint", 1.5)); err == nil || !strings.Contains(err.Error(), "float64") {
			t.Errorf("a parameter of another type: %v", err)
		}
		works(t)
	})

	t.Run("counts", func(t *testing.T) {
		table := ask("CREATE TEMP TABLE trip (n BIGINT PRIMARY KEY)")
		add := ask("INSERT INTO trip SELECT * FROM unnest($1::bigint[])", []int64{1, 2, 3})
		if err := errors.Join(send(table), send(add)); err != nil {
			t.Fatal(err)
		}
		read, written := rows(ask("SELECT n FROM trip WHERE n > 2")), rows(ask("UPDATE trip SET n = n + 10 RETURNING n"))
		if err := send(read, written); err != nil {
			t.Fatal(err)
		}
		if add.Affected != 3 || read.Affected != 0 || written.Affected != 3 {
			t.Errorf("%d, %d and %d rows written", add.Affected, read.Affected, written.Affected)
		}
	})

	t.Run("errors", func(t *testing.T) {
		control := func(sql string) *db.Call { return &db.Call{Stmt: &db.Stmt{SQL: sql, Control: true}} }
		begin, commit := control("BEGIN"), control("COMMIT")
		guard := ask("SELECT ('run ' || $1 || ' is another')::bigint", "r1")
		err := send(begin, ask("INSERT INTO trip VALUES (77)"), guard, commit)
		if err == nil || !strings.Contains(err.Error(), "run r1 is another") || postgres.Classify(err) != db.Guilty {
			t.Fatalf("a guard that raises: %v", err)
		}
		if err := send(commit); err == nil || !strings.Contains(err.Error(), "rolled back") {
			t.Errorf("COMMIT of a transaction that failed: %v", err)
		}
		if err := send(begin, ask("SELECT 1/0"), commit); err == nil {
			t.Error("no error of the server")
		}
		if err := c.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := send(rows(ask("SELECT count(*) FROM trip WHERE n = 77"))); err != nil {
			t.Fatal(err)
		}
		want(t, []any{int64(0)})

		own := errors.New("not that")
		first, second := ask("SELECT n FROM trip"), rows(ask("SELECT 8::bigint"))
		first.Row = func([]any) error { return own }
		if err := send(first, second); !errors.Is(err, own) {
			t.Errorf("an error of who reads the rows: %v", err)
		}
		works(t)
	})

	// The server stops reading while the client reads no responses, so a client that only wrote would block.
	t.Run("much in both directions", func(t *testing.T) {
		large := strings.Repeat("x", 1<<20)
		var calls []*db.Call
		echo := &db.Stmt{SQL: "SELECT $1::text"}
		size := 0
		for range 24 {
			calls = append(calls, &db.Call{Stmt: echo, Args: []any{large}, Row: func(v []any) error {
				size += len(db.Str(v[0]))
				return nil
			}})
		}
		if err := send(calls...); err != nil {
			t.Fatal(err)
		}
		if size != 24<<20 {
			t.Errorf("%d bytes came back", size)
		}
		works(t)
	})

	t.Run("other columns", func(t *testing.T) {
		all := &db.Stmt{SQL: "SELECT * FROM trip ORDER BY 1 LIMIT 1"}
		if err := send(rows(&db.Call{Stmt: all}), ask("ALTER TABLE trip ADD COLUMN more TEXT DEFAULT 'm'")); err != nil {
			t.Fatal(err)
		}
		want(t, []any{int64(11)})
		if err := send(rows(&db.Call{Stmt: all})); err == nil {
			t.Error("the plan of before was run")
		}
		if err := send(rows(&db.Call{Stmt: all})); err != nil {
			t.Fatal(err)
		}
		want(t, []any{int64(11), "m"})
	})

	t.Run("a connection that is cut", func(t *testing.T) {
		cut := ask("SELECT pg_terminate_backend(pg_backend_pid())")
		err := send(cut, ask("SELECT 1"))
		if err == nil || postgres.Classify(err) != db.Lost {
			t.Fatalf("%v, of class %d", err, postgres.Classify(err))
		}
		if err := send(ask("SELECT 1")); postgres.Classify(err) != db.Lost {
			t.Errorf("on what is no connection any more: %v", err)
		}
		if err := c.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		works(t)
	})
}
