package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/store/sqldb/db"
)

// errLost says that the connection is gone, with what was under way on it.
var errLost = errors.New("connection lost")

// conn is the committer's connection. What is sent together goes out in one round trip.
type conn struct {
	cfg *pgx.ConnConfig
	c   *pgx.Conn
	was session // of c
}

// connectTimeout bounds one attempt to connect.
const connectTimeout = 5 * time.Second

func (c *conn) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	raw, err := pgx.ConnectConfig(ctx, c.cfg)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.c = raw
	if err := c.leave(ctx); err != nil {
		return errors.Join(err, raw.Close(ctx))
	}
	return nil
}

// session is the server's side of a connection.
type session struct {
	pid   uint32
	began string
}

// leave ends the server's side of the connection that was lost, if there was one: it may not have noticed, and then it
// keeps its locks.
func (c *conn) leave(ctx context.Context) error {
	old := c.was
	c.was = session{pid: c.c.PgConn().PID()}
	const begun = "SELECT backend_start::text FROM pg_stat_activity WHERE pid = $1"
	if err := c.c.QueryRow(ctx, begun, c.was.pid).Scan(&c.was.began); errors.Is(err, pgx.ErrNoRows) {
		return errPooler // the process that was named is none of the server's
	} else if err != nil {
		return fmt.Errorf("own session: %w", err)
	}
	if old.pid == 0 {
		return nil
	}
	const end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2"
	if _, err := c.c.Exec(ctx, end, old.pid, old.began); err != nil {
		return fmt.Errorf("end session %d: %w", old.pid, err)
	}
	return nil
}

// longestTrip is how long the server may take for what is sent together. It is for a network that swallows everything,
// which no time-out of the connection itself notices.
const longestTrip = 30 * time.Second

func (c *conn) deadline() { _ = c.c.PgConn().Conn().SetDeadline(time.Now().Add(longestTrip)) }

// Send runs the calls as one pipeline.
func (c *conn) Send(ctx context.Context, calls []*db.Call) error {
	if c.c.IsClosed() {
		return errLost
	}
	c.deadline()
	batch := &pgx.Batch{}
	for _, call := range calls {
		batch.Queue(call.Stmt.SQL, arrays(call.Args)...)
	}
	results := c.c.SendBatch(ctx, batch)
	err := receive(results, calls)
	if e := results.Close(); err == nil && e != nil {
		err = e
	}
	if err != nil && c.c.IsClosed() {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

func receive(results pgx.BatchResults, calls []*db.Call) error {
	for _, call := range calls {
		if call.Row == nil {
			tag, err := results.Exec()
			if err != nil {
				return fmt.Errorf("%s: %w", head(call.Stmt.SQL), err)
			}
			if !call.Stmt.Control {
				call.Affected = tag.RowsAffected()
			} else if tag.String() == "ROLLBACK" { // COMMIT of a transaction that had failed
				return fmt.Errorf("%s: rolled back", call.Stmt.SQL)
			}
			continue
		}
		rows, err := results.Query()
		if err != nil {
			return fmt.Errorf("%s: %w", head(call.Stmt.SQL), err)
		}
		for rows.Next() {
			v, err := rows.Values()
			if err == nil {
				err = call.Row(v)
			}
			if err != nil {
				rows.Close()
				return fmt.Errorf("%s: %w", head(call.Stmt.SQL), err)
			}
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("%s: %w", head(call.Stmt.SQL), err)
		}
		if tag := rows.CommandTag(); !tag.Select() {
			call.Affected = tag.RowsAffected()
		}
	}
	return nil
}

// Reset rolls back, and connects again when the connection is gone.
func (c *conn) Reset(ctx context.Context) error {
	if !c.c.IsClosed() {
		if c.c.PgConn().TxStatus() == 'I' {
			return nil
		}
		c.deadline()
		if _, err := c.c.Exec(ctx, "ROLLBACK"); err == nil {
			return nil
		}
		_ = c.c.Close(ctx)
	}
	return c.connect(ctx)
}

func (c *conn) Close(ctx context.Context) error { return c.c.Close(ctx) }

// head is enough of a statement to know it by.
func head(sql string) string {
	if len(sql) > 60 {
		return sql[:60] + "…"
	}
	return sql
}
