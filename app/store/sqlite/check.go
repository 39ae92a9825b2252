package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/sojourn-run/sojourn/app/store"
)

// checkTime is the maximum time for which Open waits for the check of a file that was not closed. The check of a larger
// file continues while the app serves.
var checkTime = 2 * time.Second

// check reads a whole database file on its own connection.
type check struct {
	db   *sql.DB
	stop context.CancelFunc
	done chan struct{}
	err  error // set before done is closed
}

// verify checks a file that the previous app did not close for missing commits and damage. It writes nothing: a refused
// file stays unchanged. It returns the check if it is still running, else nil.
func (d *file) verify(ctx context.Context) (*check, error) {
	q := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(10000)"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: d.path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if err := d.missingCommits(ctx, db); err != nil {
		return nil, errors.Join(d.explain(err), db.Close())
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &check{db: db, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = d.explain(quickCheck(life, db))
	}()
	limit := time.NewTimer(checkTime)
	defer limit.Stop()
	select {
	case <-c.done:
		return nil, errors.Join(c.err, c.stopCheck())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), c.stopCheck())
	case <-limit.C:
		return c, nil
	}
}

// reportResult waits for the end of the check and reports an error that it found.
func (c *check) reportResult(failed func(error)) {
	if c == nil {
		return
	}
	go func() {
		if <-c.done; errors.Is(c.err, store.ErrDamaged) {
			failed(c.err)
		}
	}()
}

// stopCheck ends the check and waits for it.
func (c *check) stopCheck() error {
	if c == nil {
		return nil
	}
	c.stop()
	<-c.done
	return c.db.Close()
}

// missingCommits compares the counter in the mark with the last batch in the file and its log, to detect missing
// commits.
func (d *file) missingCommits(ctx context.Context, db *sql.DB) error {
	if d.mark.batch == 0 {
		return nil
	}
	last, err := d.lastBatch(ctx, db)
	if err != nil || last >= d.mark.batch {
		return err
	}
	return fmt.Errorf("%w: %d commits were acknowledged and the last one found is number %d: the write-ahead log %s-wal was "+
		"truncated or removed, or belongs to another name of the file; put the log back, or restore the last backup "+
		"(Backup in the guide); to go on without the missing work, copy the file and start with the copy",
		store.ErrDamaged, d.mark.batch, last, d.path)
}

// lastBatch returns the number of the last batch in the file and its log of the app that wrote the mark.
func (d *file) lastBatch(ctx context.Context, db *sql.DB) (last uint64, err error) {
	var tables int
	const made = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'batches'"
	if err := db.QueryRowContext(ctx, made).Scan(&tables); err != nil || tables == 0 {
		return 0, err
	}
	rows, err := db.QueryContext(ctx, "SELECT app, batch FROM batches")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var app string
		var batch uint64
		if err := rows.Scan(&app, &batch); err != nil {
			return 0, err
		}
		if appHash(app) == d.mark.app {
			last = max(last, batch)
		}
	}
	return last, rows.Err()
}

func quickCheck(ctx context.Context, db *sql.DB) error {
	var found string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return malformed(found)
	}
	return nil
}

// malformed returns the error for a damaged file, with instructions.
func malformed(finding string) error {
	return fmt.Errorf("%w: %s; keep a copy of the file and its -wal file, then restore the last backup (Backup in the guide), "+
		"or save what is readable: sqlite3 DAMAGED .recover | sqlite3 NEW", store.ErrDamaged, finding)
}

// damaged reports whether SQLite found the file malformed.
func damaged(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) && (e.Code()&0xff == lib.SQLITE_CORRUPT || e.Code()&0xff == lib.SQLITE_NOTADB)
}

// explain converts an error that means damage to store.ErrDamaged.
func (d *file) explain(err error) error {
	if err != nil && damaged(err) && !errors.Is(err, store.ErrDamaged) {
		return fmt.Errorf("%w (%w)", malformed("SQLite cannot read it"), err)
	}
	return err
}
