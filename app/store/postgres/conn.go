package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// errLost means that the connection broke while calls were in progress.
var errLost = errors.New("connection lost")

// conn is the committer's connection. It sends several calls in one round trip.
type conn struct {
	server  *server
	c       *pgx.Conn
	session session // the server's session of c

	stmts  map[*db.Stmt]*pgconn.StatementDescription // statements prepared on c
	named  int                                       // how many statements got a name
	params params
	lent   lent
	values []any // values of a row
}

// connectTimeout limits one attempt to connect.
const connectTimeout = 5 * time.Second

func (c *conn) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	raw, err := c.server.connect(ctx, configureWriter)
	if err != nil {
		return err
	}
	c.c, c.stmts = raw, map[*db.Stmt]*pgconn.StatementDescription{}
	c.lent = lent{} // the driver may still use the buffer to close the other connection
	if err := c.endPreviousSession(ctx); err != nil {
		return errors.Join(err, raw.Close(ctx))
	}
	return nil
}

// session is the server's side of a connection.
type session struct {
	pid   uint32
	began string
}

// endPreviousSession ends the server process of a lost connection, if there was one: the server may not have detected
// the loss, and the process then keeps its locks.
func (c *conn) endPreviousSession(ctx context.Context) error {
	old := c.session
	c.session = session{pid: c.c.PgConn().PID()}
	const begun = "SELECT backend_start::text FROM pg_stat_activity WHERE pid = $1"
	if err := c.c.QueryRow(ctx, begun, c.session.pid).Scan(&c.session.began); errors.Is(err, pgx.ErrNoRows) {
		return errPooler // the server does not have the process that was named
	} else if err != nil {
		return fmt.Errorf("read this connection from pg_stat_activity: %w", err)
	}
	if old.pid == 0 {
		return nil
	}
	const end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2"
	if _, err := c.c.Exec(ctx, end, old.pid, old.began); err != nil {
		return fmt.Errorf("terminate the backend of the lost connection (pid %d): %w", old.pid, err)
	}
	return nil
}

// roundTripTimeout is the maximum time of one round trip. It covers a network that drops all packets, which no time-out
// of the connection detects.
const roundTripTimeout = 30 * time.Second

func (c *conn) deadline() { _ = c.c.PgConn().Conn().SetDeadline(time.Now().Add(roundTripTimeout)) }

// Send runs the calls as one pipeline.
func (c *conn) Send(ctx context.Context, calls []*db.Call) error {
	if c.c.IsClosed() {
		return errLost
	}
	c.deadline()
	err := c.pipeline(ctx, calls)
	if err != nil && c.c.IsClosed() {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

func (c *conn) pipeline(ctx context.Context, calls []*db.Call) error {
	for _, call := range calls {
		if err := errors.Join(c.prepare(ctx, call.Stmt), sendable(call.Args)); err != nil {
			return fmt.Errorf("%s: %w", statementHead(call.Stmt.SQL), err)
		}
	}
	to := c.c.PgConn()
	line := to.StartPipeline(ctx)
	c.lent.begin() // before this point the driver may still send data from this buffer
	to.Frontend().Send(&c.lent)
	for _, call := range calls {
		c.params.set(call.Args)
		line.SendQueryStatement(c.stmts[call.Stmt], c.params.values, c.params.formats, nil)
		c.lent.used += len(c.params.room) + callOverhead
	}
	err := line.Sync()
	if err == nil {
		err = c.receive(line, calls)
	}
	if e := line.Close(); err == nil {
		err = e
	}
	// 0A000: the result columns of a cached plan changed. 26000: the prepared statement no longer exists.
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) && (e.Code == "0A000" || e.Code == "26000") {
		clear(c.stmts)
	}
	return err
}

// prepare prepares a statement once on a connection.
func (c *conn) prepare(ctx context.Context, s *db.Stmt) error {
	if c.stmts[s] != nil {
		return nil
	}
	c.named++
	d, err := c.c.PgConn().Prepare(ctx, fmt.Sprint("committer_", c.named), s.SQL, nil)
	if err != nil {
		return err
	}
	c.stmts[s] = d
	return nil
}

// receive reads the server's responses to calls. After an error the server sends no more responses. It reads the rows
// of a call to their end in any case, since the rows of the next call follow.
func (c *conn) receive(line *pgconn.Pipeline, calls []*db.Call) (failed error) {
	fail := func(call *db.Call, err error) {
		if failed == nil && err != nil {
			failed = fmt.Errorf("%s: %w", statementHead(call.Stmt.SQL), err)
		}
	}
	for _, call := range calls {
		got, err := line.GetResults()
		if err != nil {
			fail(call, err)
			return failed
		}
		rows, _ := got.(*pgconn.ResultReader)
		if rows == nil {
			return fmt.Errorf("%s: the driver returned rows of type %T", statementHead(call.Stmt.SQL), got)
		}
		for rows.NextRow() {
			if call.Row != nil && failed == nil {
				fail(call, c.passRow(call, rows))
			}
		}
		tag, err := rows.Close()
		if err != nil {
			fail(call, err)
			return failed
		}
		fail(call, recordAffected(call, tag))
	}
	return failed
}

// passRow passes a row to the call.
func (c *conn) passRow(call *db.Call, rows *pgconn.ResultReader) error {
	c.values = c.values[:0]
	columns := rows.FieldDescriptions()
	for i, raw := range rows.Values() {
		switch {
		case raw == nil:
			c.values = append(c.values, nil)
		case columns[i].DataTypeOID == pgtype.Int8OID:
			n, err := strconv.ParseInt(string(raw), 10, 64)
			if err != nil {
				return err
			}
			c.values = append(c.values, n)
		default:
			c.values = append(c.values, string(raw))
		}
	}
	return call.Row(c.values)
}

// recordAffected stores the number of rows that the server reports at the end of a call.
func recordAffected(call *db.Call, tag pgconn.CommandTag) error {
	switch {
	case call.Stmt.Control:
		if tag.String() == "ROLLBACK" { // COMMIT of a transaction that had failed
			return errors.New("rolled back")
		}
	case call.Row == nil || !tag.Select():
		call.Affected = tag.RowsAffected()
	}
	return nil
}

// Reset rolls back, and reconnects if the connection is lost.
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

// statementHead returns the beginning of a statement, which identifies it in errors.
func statementHead(sql string) string {
	if len(sql) > 60 {
		return sql[:60] + "…"
	}
	return sql
}
