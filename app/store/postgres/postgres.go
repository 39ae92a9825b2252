// Package postgres opens a store in a PostgreSQL database, which several processes may share.
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/oklog/ulid/v2"
	"github.com/pressly/goose/v3"
	gormpostgres "gorm.io/driver/postgres"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

// others is the number of a store's connections that are not used for reads: of the committer, of the sender of
// notices, and of the listener. A migration uses two of the reading connections.
const (
	otherConnections = 3
	defaultReaders   = 7 // default, if the URL does not limit the pool
)

// Open connects to the database of a postgres:// URL, migrates it and opens the store. The role needs to own the
// schema. A given App must be unique among the processes on the database; without a name it gets a new one. Open waits
// for an unreachable server if opts has a Waiting function.
func Open(ctx context.Context, url string, opts sqldb.Options) (*sqldb.Store, error) {
	return OpenFrom(ctx, func() (string, error) { return url, nil }, opts)
}

// OpenFrom is Open with a URL that is read again for each connection, so that passwords and certificates can be
// replaced. The store becomes unusable when the server has refused the credentials for opts.RefusedFor.
func OpenFrom(ctx context.Context, url func() (string, error), opts sqldb.Options) (*sqldb.Store, error) {
	server := &server{url: url}
	reads, err := server.newPool(nil)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	most := defaultReaders
	if opts.Pool > 0 {
		most = max(1, opts.Pool-otherConnections)
	}
	reads.SetMaxOpenConns(max(2, most)) // a migration uses one connection for its lock and another for its statements
	reads.SetMaxIdleConns(most)
	reads.SetConnMaxIdleTime(5 * time.Minute)
	if err := awaitServer(ctx, reads, opts.Waiting); err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: %w", err), reads.Close())
	}
	s, err := openStore(ctx, server, reads, most, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: %w", err), reads.Close())
	}
	return s, nil
}

func openStore(
	ctx context.Context, server *server, reads *sql.DB, most int, opts sqldb.Options,
) (*sqldb.Store, error) {
	if err := checkServer(ctx, reads); err != nil {
		return nil, err
	}
	known, err := migrate(ctx, server, reads)
	if err != nil {
		return nil, err
	}
	reads.SetMaxOpenConns(most)
	if opts.App == "" {
		opts.App = ulid.Make().String()
	}
	c := &conn{server: server}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	bus := newBus(server, opts.App, opts.Dispatch)
	ear, err := bus.listen(ctx) // before the first read
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx), bus.close())
	}
	// Another process may have migrated the database before the listener connected.
	if err := sqldb.CheckSchema(ctx, reads, known); err != nil {
		return nil, errors.Join(err, c.Close(ctx), ear.Close(ctx), bus.close())
	}
	s, err := sqldb.New(ctx, sqldb.Config{
		Options: opts, Dialect: db.Dialect{Shared: true, Begin: "BEGIN", Classify: classify},
		Conn: c, Reads: reads, Known: known, Gorm: gormpostgres.New(gormpostgres.Config{Conn: reads}), Notify: bus.notify,
		ReceivesNotices: bus.connected.Load, QueuesChanged: bus.queuesChangedCall,
		Release: func() error {
			server.refusals.close()
			return bus.close()
		},
		Unblock: func(ctx context.Context) error { return unblock(ctx, reads) },
	})
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx), ear.Close(ctx), bus.close())
	}
	server.refusals.start(func(ctx context.Context) error {
		c, err := server.connect(ctx, nil)
		closeConn(c)
		return err
	}, opts.Refused, s.GiveUp, opts.RefusedFor)
	bus.start(s, ear)
	return s, nil
}

// configureWriter configures the committer's connection. Its statements read rows by key, so a generic plan is right
// for tables of any size.
func configureWriter(w *pgx.ConnConfig) {
	for _, way := range []string{"seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort"} {
		w.RuntimeParams["enable_"+way] = "off"
	}
	w.RuntimeParams["jit"] = "off" // the planner adds the cost of disabled plan types, and JIT would compile
	w.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	w.RuntimeParams["application_name"] = committer
	w.RuntimeParams["lock_timeout"] = lockTimeout
	w.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
}

// versions creates the table in which each migration records which binaries may serve its schema; see sqldb.Migrate.
const versions = `CREATE TABLE IF NOT EXISTS schema_versions (
    version BIGINT NOT NULL PRIMARY KEY,
    release TEXT COLLATE "C" NOT NULL,
    min_reader BIGINT NOT NULL
)`

// provider returns the migrations; it does not access the database.
func provider(db *sql.DB) (*goose.Provider, error) {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, dir, goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(goose.NewGoMigration(7, &goose.GoFunc{RunTx: sqldb.IndexAttributes}, nil)))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return p, nil
}

// connectionEnds are the codes with which the server ends a connection, or refuses one for now: admin_shutdown,
// crash_shutdown, cannot_connect_now, idle_session_timeout, idle_in_transaction_session_timeout, transaction_timeout.
var connectionEnds = []string{"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"}

// classify distinguishes serialization failures and lost connections from errors of the statement.
func classify(err error) db.Class {
	if errors.As(err, new(connectError)) {
		return db.Unavailable
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		var n net.Error
		switch {
		case errors.As(err, &n), errors.Is(err, net.ErrClosed), errors.Is(err, errLost), pgconn.SafeToRetry(err),
			errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, driver.ErrBadConn),
			errors.Is(err, sql.ErrConnDone):
			return db.Lost
		}
		return db.Guilty
	}
	switch {
	case e.Code == "40001", e.Code == "40P01":
		return db.Retryable
	case e.Code == "55P03":
		return db.Locked
	case e.Code == "25006": // read-only: a standby, or a server about to hand over
		return db.Unavailable
	case len(e.Code) == 5 && (e.Code[:2] == "08" || slices.Contains(connectionEnds, e.Code)):
		return db.Lost
	case len(e.Code) == 5 && (e.Code[:2] == "53" || e.Code[:2] == "58"):
		return db.Unavailable
	}
	return db.Guilty
}
