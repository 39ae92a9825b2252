// Package postgres opens a store in a PostgreSQL database, which any number of processes may share.
package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/oklog/ulid/v2"
	"github.com/pressly/goose/v3"
	gormpostgres "gorm.io/driver/postgres"

	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

// readers is the most connections that read; idle ones are kept for a while.
const readers = 8

// Open connects to the database of a postgres:// URL, migrates it and opens the store. The role needs to own the schema it works in. An App that is
// named has to be one of a kind among the processes on the database; without a name it gets a new one.
func Open(ctx context.Context, url string, opts sqldb.Options) (*sqldb.Store, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	reads := stdlib.OpenDB(*cfg)
	reads.SetMaxOpenConns(readers)
	reads.SetMaxIdleConns(readers)
	reads.SetConnMaxIdleTime(5 * time.Minute)
	s, err := open(ctx, cfg, reads, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: %w", err), reads.Close())
	}
	return s, nil
}

func open(ctx context.Context, cfg *pgx.ConnConfig, reads *sql.DB, opts sqldb.Options) (*sqldb.Store, error) {
	if err := migrate(ctx, reads); err != nil {
		return nil, err
	}
	if opts.App == "" {
		opts.App = ulid.Make().String()
	}
	c := &conn{cfg: writing(cfg)}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	bus := newBus(cfg, opts.App, opts.Dispatch)
	ear, err := bus.listen(ctx) // before anybody looks what there is
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx), bus.close())
	}
	s, err := sqldb.New(ctx, sqldb.Config{
		Options: opts, Dialect: sqldb.Dialect{Shared: true, Begin: "BEGIN", Classify: classify},
		Conn: c, Reads: reads, Gorm: gormpostgres.New(gormpostgres.Config{Conn: reads}), Notify: bus.notify, Release: bus.close,
	})
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx), ear.Close(ctx), bus.close())
	}
	bus.start(s, ear)
	return s, nil
}

// writing is the committer's connection: every statement goes by keys, so that plans made once for tables of any size are right.
func writing(cfg *pgx.ConnConfig) *pgx.ConnConfig {
	w := cfg.Copy()
	for _, way := range []string{"seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort"} {
		w.RuntimeParams["enable_"+way] = "off"
	}
	w.RuntimeParams["jit"] = "off" // it takes what is switched off for costly, and compiles
	w.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	w.RuntimeParams["application_name"] = "sojourn committer"
	w.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	return w
}

// migrating is the advisory lock under which one process at a time migrates.
const migrating = 0x736f6a6f75726e

// migrate brings the schema up to date. Who finds another process at it waits.
func migrate(ctx context.Context, db *sql.DB) error {
	c, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer c.Close()
	if _, err := c.ExecContext(ctx, "SELECT pg_advisory_lock($1)", int64(migrating)); err != nil {
		return fmt.Errorf("migration lock: %w", err)
	}
	defer func() {
		_, _ = c.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(migrating))
	}()
	p, err := provider(db)
	if err != nil {
		return err
	}
	done, err := p.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if len(done) == 0 {
		return nil
	}
	if _, err := c.ExecContext(ctx, "ANALYZE"); err != nil { // plans made on tables nobody counted are three times slower
		return fmt.Errorf("analyze: %w", err)
	}
	return nil
}

// provider knows the migrations; making it does nothing to the database.
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

// classify tells a lost race or connection from a statement that is at fault.
func classify(err error) sqldb.Class {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		var n net.Error
		if errors.As(err, &n) || errors.Is(err, net.ErrClosed) || errors.Is(err, errLost) || pgconn.SafeToRetry(err) {
			return sqldb.Lost
		}
		return sqldb.Guilty
	}
	switch {
	case e.Code == "40001", e.Code == "40P01", e.Code == "55P03":
		return sqldb.Again
	case e.Code == "25006": // read-only: a standby, or a server about to hand over
		return sqldb.Unavailable
	case len(e.Code) == 5 && (e.Code[:2] == "08" || e.Code == "57P01" || e.Code == "57P02" || e.Code == "57P03" || e.Code == "25P03"):
		return sqldb.Lost
	case len(e.Code) == 5 && (e.Code[:2] == "53" || e.Code[:2] == "58"):
		return sqldb.Unavailable
	}
	return sqldb.Guilty
}
