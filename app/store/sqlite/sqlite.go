// Package sqlite opens a store in one SQLite file, which a single process locks.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"
	gormsqlite "gorm.io/driver/sqlite"
	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

// pragmas are the pragmas of every connection. synchronous(FULL) syncs the log at every commit, so that an acknowledged
// commit survives a power failure.
var pragmas = []string{
	"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(0)",
	fmt.Sprintf("wal_autocheckpoint(%d)", autocheckpointPages),
}

// maxPageCacheKiB is the maximum size of a connection's page cache in KiB. The Go runtime does not count this memory.
const maxPageCacheKiB = 32 << 10

// pageCache returns the pragma for the page cache of one of five connections. memory is the number of bytes that the
// process may use; 0: no limit. All five caches together use a 25th of it.
func pageCache(bytes int64) string {
	kib := int64(maxPageCacheKiB)
	if bytes > 0 {
		kib = min(kib, max(1<<10, bytes/128>>10))
	}
	return fmt.Sprintf("cache_size(-%d)", kib)
}

// tempStoreInMemory is an additional parameter of the committer's connection: it keeps the pages for the rollback of a
// statement in memory, where SQLite would otherwise write them to a temporary file from 64 KiB on.
const tempStoreInMemory = "temp_store(MEMORY)"

// readers is the maximum number of connections for reading.
const readers = 4

// Open opens the file at path, creates it if it is missing, and migrates it. Until the store is closed, no other
// process can open the file under any name; a second Open returns store.ErrBusy. If the previous app did not close the
// file, Open checks it first, and returns store.ErrDamaged if it is malformed or acknowledged work is missing. A long
// check continues while the store serves; if it finds damage, the store fails.
func Open(ctx context.Context, path string, opts sqldb.Options) (*sqldb.Store, error) {
	d, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite %s: %w", path, err)
	}
	s, err := openStore(ctx, d, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite %s: %w", path, d.explain(err)), d.close())
	}
	return s, nil
}

func openStore(ctx context.Context, d *file, opts sqldb.Options) (_ *sqldb.Store, err error) {
	var rest *check
	if d.unclean() {
		if rest, err = d.verify(ctx); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, rest.stopCheck())
		}
	}()
	reads, err := sql.Open("sqlite", dsn(d.path, pageCache(opts.Memory)))
	if err != nil {
		return nil, err
	}
	reads.SetMaxOpenConns(readers)
	reads.SetMaxIdleConns(readers)
	reads.SetConnMaxIdleTime(time.Minute) // each connection may hold as many pages as its cache has
	known, err := migrate(ctx, reads)
	if err != nil {
		return nil, errors.Join(err, reads.Close())
	}
	c := &conn{dsn: dsn(d.path, pageCache(opts.Memory), tempStoreInMemory), check: rest}
	if err := c.openFile(); err != nil {
		return nil, errors.Join(err, reads.Close())
	}
	checkpoints, err := newCheckpointer(d.path, d.checkpointed)
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx), reads.Close())
	}
	prepared := db.NewPrepared(reads, readers)
	var store atomic.Pointer[sqldb.Store]
	s, err := sqldb.New(ctx, sqldb.Config{
		Options: opts, Dialect: db.Dialect{Begin: "BEGIN IMMEDIATE", Classify: func(err error) db.Class {
			if s := store.Load(); s != nil && damaged(err) {
				s.Fail(fmt.Errorf("sqlite %s: %w", d.path, d.explain(err)))
			}
			return classify(err)
		}},
		Conn: c, Reads: reads, Prepared: prepared, Known: known, Gorm: gormsqlite.New(gormsqlite.Config{Conn: prepared}),
		Release: func() error { return errors.Join(checkpoints.close(), d.markClosed(), d.close()) },
		Room:    func() error { return room(d.path) },
		Unclean: d.unclean(),
		Opened:  d.markOpen,
		Committed: func(batch int64) {
			d.committed(batch)
			checkpoints.committed(c.c)
		},
	})
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx), reads.Close(), checkpoints.close())
	}
	store.Store(s)
	rest.reportResult(func(err error) { s.Fail(fmt.Errorf("sqlite %s: %w", d.path, err)) })
	return s, nil
}

func dsn(path string, more ...string) string {
	q := url.Values{"_pragma": slices.Concat(pragmas, more)}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// provider returns the migrations; it does not access the database.
func provider(db *sql.DB) (*goose.Provider, error) {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, dir, goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(goose.NewGoMigration(7, &goose.GoFunc{RunTx: sqldb.IndexAttributes}, nil)))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return p, nil
}

// migrate migrates the schema, and returns the newest schema that this binary knows.
func migrate(ctx context.Context, db *sql.DB) (known int64, err error) {
	p, err := provider(db)
	if err != nil {
		return 0, err
	}
	_, err = sqldb.Migrate(ctx, db, p, versions)
	return sqldb.Known(p), err
}

// versions creates the table in which each migration records which binaries may serve its schema; see sqldb.Migrate.
const versions = `CREATE TABLE IF NOT EXISTS schema_versions (
    version INTEGER NOT NULL PRIMARY KEY,
    release TEXT NOT NULL,
    min_reader INTEGER NOT NULL
) WITHOUT ROWID`

// classify distinguishes a disk that accepts no writes from an error of the statement.
func classify(err error) db.Class {
	var e *driver.Error
	if !errors.As(err, &e) {
		return db.Guilty
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return db.Retryable
	case lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_NOTADB,
		lib.SQLITE_CORRUPT, lib.SQLITE_NOMEM:
		return db.Unavailable
	}
	return db.Guilty
}
