package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// Inspect returns the schema of the database at a postgres:// URL, and changes nothing.
func Inspect(ctx context.Context, url string) (store.Schema, error) {
	s, err := inspect(ctx, url)
	if err != nil {
		return s, fmt.Errorf("postgres: %w", err)
	}
	return s, nil
}

func inspect(ctx context.Context, url string) (s store.Schema, err error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return s, err
	}
	// Make the session read-only only after it was opened: a session that is read-only from its start does not satisfy
	// target_session_attrs=read-write.
	db := stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET default_transaction_read_only = on")
		return err
	}))
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := provider(db)
	if err != nil {
		return s, err
	}
	s.Required = sqldb.Known(p)
	const durability = "SELECT current_setting('fsync'), current_setting('synchronous_commit')," +
		" current_setting('full_page_writes')"
	d := &store.Durability{}
	if err := db.QueryRowContext(ctx, durability).Scan(&d.Fsync, &d.SynchronousCommit, &d.FullPageWrites); err != nil {
		return s, err
	}
	s.Durability = d
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&there); err != nil ||
		!there {
		return s, err
	}
	const version = "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied"
	if err := db.QueryRowContext(ctx, version).Scan(&s.Found); err != nil || s.Found <= s.Required {
		return s, err
	}
	if err := sqldb.CheckSchema(ctx, db, s.Required); errors.Is(err, store.ErrSchema) {
		s.Refused = err
	} else {
		return s, err
	}
	return s, nil
}
