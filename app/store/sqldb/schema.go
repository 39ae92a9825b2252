package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/pressly/goose/v3"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/release"
)

// A database records for each of its migrations which release added it, and the oldest schema that a binary must know
// to use the database. So an older binary, which does not know the migration, can check whether it may continue during
// a rolling upgrade. The migrations write these rows in their transactions; therefore the table is created before the
// first of them. Migrations up to schema 9 have no rows, since no older binary reads them.

// noted is one row of schema_versions.
type noted struct {
	version, minReader int64
	release            string
}

// Migrate migrates a database to the newest schema that p knows and reports whether anything changed. It does not
// change a newer schema; the error is then store.ErrSchema if this binary does not support that schema. makeTable is
// the statement that creates schema_versions.
func Migrate(ctx context.Context, db *sql.DB, p *goose.Provider, makeTable string) (bool, error) {
	found, err := p.GetDBVersion(ctx)
	if err != nil {
		return false, fmt.Errorf("schema: %w", err)
	}
	known := Known(p)
	if found > known {
		return false, CheckSchema(ctx, db, known)
	}
	if found < known {
		if _, err := db.ExecContext(ctx, makeTable); err != nil {
			return false, fmt.Errorf("migrate: %w", err)
		}
	}
	done, err := p.Up(ctx)
	if err != nil {
		return false, fmt.Errorf("migrate: %w", err)
	}
	return len(done) > 0, nil
}

// Known returns the newest schema among the migrations of p.
func Known(p *goose.Provider) (newest int64) {
	for _, m := range p.ListSources() {
		newest = max(newest, m.Version)
	}
	return newest
}

// CheckSchema returns store.ErrSchema if the schema of the database is newer than known, and a binary that knows the
// migrations up to known does not support it.
func CheckSchema(ctx context.Context, db *sql.DB, known int64) error {
	applied, rows, err := readSchema(ctx, db, known)
	if err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	return isSupported(known, release.Embedded, applied, rows)
}

// readSchema returns the migrations above known that a database has, and their rows in schema_versions.
func readSchema(ctx context.Context, db *sql.DB, known int64) (applied []int64, rows []noted, err error) {
	err = each(ctx, db,
		"SELECT DISTINCT version_id FROM goose_db_version WHERE is_applied AND version_id > $1 ORDER BY version_id", known,
		func(r *sql.Rows) error {
			var v int64
			err := r.Scan(&v)
			applied = append(applied, v)
			return err
		})
	if err != nil || len(applied) == 0 {
		return applied, nil, err
	}
	err = each(ctx, db, "SELECT version, release, min_reader FROM schema_versions WHERE version > $1", known, func(
		r *sql.Rows,
	) error {
		var n noted
		err := r.Scan(&n.version, &n.release, &n.minReader)
		rows = append(rows, n)
		return err
	})
	return applied, rows, err
}

func each(ctx context.Context, db *sql.DB, query string, arg any, row func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query, arg)
	if err != nil {
		return err
	}
	for err == nil && rows.Next() {
		err = row(rows)
	}
	return errors.Join(err, rows.Err(), rows.Close()) //nolint:sqlclosecheck // what it says is part of the answer
}

// isSupported reports whether a binary of a release, which knows the migrations up to known, may use a database that
// has others: they must all be of one later release, and each must support this binary.
func isSupported(known int64, own string, applied []int64, rows []noted) error {
	if len(applied) == 0 {
		return nil
	}
	refuse := func(format string, args ...any) error {
		newest := applied[len(applied)-1]
		brought := "a release that does not say"
		if i := slices.IndexFunc(rows, func(n noted) bool { return n.version == newest }); i >= 0 {
			brought = "release " + rows[i].release
		}
		return fmt.Errorf("%w: the database has schema %d of %s; this is release %s with schema %d, and %s",
			store.ErrSchema, newest, brought, own, known, fmt.Sprintf(format, args...))
	}
	ahead := map[string]bool{}
	for _, v := range applied {
		i := slices.IndexFunc(rows, func(n noted) bool { return n.version == v })
		switch {
		case i < 0:
			return refuse("schema %d does not record which releases may serve it", v)
		case rows[i].minReader > known:
			return refuse("schema %d needs a release with schema %d or newer", v, rows[i].minReader)
		case rows[i].release != own:
			ahead[rows[i].release] = true
		}
	}
	if len(ahead) > 1 {
		return refuse("the database may be at most one release ahead, not %d", len(ahead))
	}
	return nil
}
