package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// migrationLockKey is the key of the advisory lock that a process holds while it migrates.
const migrationLockKey = 0x736f6a6f75726e

// migrator is the application_name of the connections of the process that migrates: one holds the lock, the others run
// migrations.
const migrator = "sojourn migration"

const (
	// maxMigrationWait is the maximum time that a process waits for another process to migrate.
	maxMigrationWait = 5 * time.Minute
	// lockRetryInterval is the interval between two tries for the lock; only a process with a pending migration tries.
	lockRetryInterval = 200 * time.Millisecond
)

// migrate migrates the schema and returns the newest version that this binary knows. If the schema is up to date,
// migrate only reads the version and cannot be blocked by a lock. If another process is migrating, migrate waits up to
// maxMigrationWait and terminates that process's lock owner when its connections have been idle for half a minute.
func migrate(ctx context.Context, server *server, db *sql.DB) (known int64, err error) {
	workers, err := server.newPool(func(cfg *pgx.ConnConfig) {
		cfg.RuntimeParams["application_name"] = migrator
		// A migration in Go code computes between two statements.
		cfg.RuntimeParams["idle_in_transaction_session_timeout"] = "30000"
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, workers.Close()) }()
	p, err := provider(workers)
	if err != nil {
		return 0, err
	}
	known = sqldb.Known(p)
	if there, err := migrated(ctx, db, known); there || err != nil {
		return known, err
	}
	c, err := db.Conn(ctx)
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := acquireMigrationLock(ctx, db, c); err != nil {
		return 0, err
	}
	defer func() {
		quiet := context.WithoutCancel(ctx)
		_, _ = c.ExecContext(quiet, "RESET application_name")
		_, _ = c.ExecContext(quiet, "SELECT pg_advisory_unlock($1)", int64(migrationLockKey))
	}()
	return known, up(ctx, workers, c, p)
}

func up(ctx context.Context, workers *sql.DB, c *sql.Conn, p *goose.Provider) error {
	changed, err := sqldb.Migrate(ctx, workers, p, versions)
	if err != nil || !changed {
		return err
	}
	// plans for tables without statistics are three times slower
	if _, err := c.ExecContext(ctx, "ANALYZE"); err != nil {
		return fmt.Errorf("ANALYZE after the migration: %w", err)
	}
	if _, err := c.ExecContext(ctx, "SELECT pg_notify($1, $2)", channel, encode(message{Migrated: true})); err != nil {
		return fmt.Errorf("notify other apps of the new schema: %w", err)
	}
	return nil
}

// migrated reports whether the database has the schema that this binary knows, or a newer schema that it may serve.
func migrated(ctx context.Context, db *sql.DB, known int64) (bool, error) {
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&there); err != nil ||
		!there {
		return false, err
	}
	var found int64
	const version = "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied"
	if err := db.QueryRowContext(ctx, version).Scan(&found); err != nil || found < known {
		return false, err
	}
	return true, sqldb.CheckSchema(ctx, db, known)
}

// acquireMigrationLock locks migrations on a connection.
func acquireMigrationLock(ctx context.Context, db *sql.DB, c *sql.Conn) error {
	for began := time.Now(); ; {
		var mine bool
		if err := c.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", int64(migrationLockKey)).Scan(&mine); err != nil {
			return fmt.Errorf("migration lock: %w", err)
		}
		if mine {
			if _, err := c.ExecContext(ctx, "SET application_name = '"+migrator+"'"); err != nil {
				return fmt.Errorf("migration lock: %w", err)
			}
			return nil
		}
		if time.Since(began) > maxMigrationWait {
			return fmt.Errorf("migration lock: another process has held it for %s; end that process", maxMigrationWait)
		}
		if err := endMigrator(ctx, db); err != nil {
			return fmt.Errorf("migration lock: %w", err)
		}
		select {
		case <-time.After(lockRetryInterval):
		case <-ctx.Done():
			return fmt.Errorf("migration lock: %w", context.Cause(ctx))
		}
	}
}

// idleMigratorTimeout is the time for which a migrating process may be idle.
var idleMigratorTimeout = 30 * time.Second

// endMigrator terminates the backend that holds the migration lock if all of that process's connections have been idle
// for idleMigratorTimeout. PostgreSQL sets no limit on holding an advisory lock. The open transaction of the process is
// rolled back.
func endMigrator(ctx context.Context, db *sql.DB) error {
	const query = "SELECT count(pg_terminate_backend(h.pid)) FROM pg_locks AS h JOIN pg_stat_activity AS a ON a.pid = h.pid" +
		" WHERE h.locktype = 'advisory' AND h.granted AND a.datname = current_database() AND a.application_name = $1" +
		" AND (h.classid::bigint << 32) | h.objid::bigint = $2 AND NOT EXISTS (SELECT 1 FROM pg_stat_activity AS w" +
		" WHERE w.datname = current_database() AND w.application_name = $1 AND (w.state = 'active' AND w.wait_event_type IS DISTINCT FROM 'Client'" +
		" OR greatest(w.state_change, w.query_start) > clock_timestamp() - make_interval(secs => $3)))"
	_, err := db.ExecContext(ctx, query, migrator, int64(migrationLockKey), idleMigratorTimeout.Seconds())
	return err
}
