package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// Inspect returns the schema of the file at path, and changes nothing. If another process has the file open, it returns
// the schema together with store.ErrBusy.
func Inspect(ctx context.Context, path string) (store.Schema, error) {
	s, err := inspect(ctx, path)
	if busy := inUse(path); busy != nil { // under another name SQLite finds no log
		return s, busy
	}
	if err != nil {
		return s, fmt.Errorf("sqlite %s: %w", path, err)
	}
	return s, nil
}

func inspect(ctx context.Context, path string) (s store.Schema, err error) {
	q := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)"}}
	if wal, err := os.Stat(path + "-wal"); (err != nil || wal.Size() == 0) && inUse(path) == nil {
		q.Set("immutable", "1") // SQLite reads and creates no other file
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := provider(db)
	if err != nil {
		return s, err
	}
	s.Required = sqldb.Known(p)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	const tables = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'goose_db_version'"
	var n int
	if err := db.QueryRowContext(ctx, tables).Scan(&n); err != nil || n == 0 {
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
