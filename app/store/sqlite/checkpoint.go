package sqlite

import (
	"context"
	"database/sql"
	"sync"

	sqlite "modernc.org/sqlite"
)

// A checkpoint copies committed pages from the write-ahead log to the database file and syncs both files. SQLite would
// run it within the commit that exceeds wal_autocheckpoint, where every caller waits for it: up to 100 ms after a large
// commit. The checkpointer runs it earlier on another connection. SQLite's own limit remains for a checkpointer that
// fails or is too slow.
const (
	checkpointPages     = 1_000 // pages written since the last checkpoint began: 4 MB
	autocheckpointPages = 4_000 // pages of the log: 16 MB
)

type checkpointer struct {
	db    *sql.DB
	due   chan struct{}
	group sync.WaitGroup
	pages int // pages that the committer wrote since it requested a checkpoint
}

// newCheckpointer returns a checkpointer of the file at path, which calls after each checkpoint.
func newCheckpointer(path string, after func()) (*checkpointer, error) {
	db, err := sql.Open("sqlite", dsn(path, "cache_size(-256)"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	c := &checkpointer{db: db, due: make(chan struct{}, 1)}
	c.group.Go(func() {
		for range c.due {
			// The committer also detects a failure here: its next write or its own checkpoint fails.
			_, _ = db.ExecContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)")
			after()
		}
	})
	return c, nil
}

// committed requests a checkpoint once enough pages were written. It is called by the committer after each commit, with
// the committer's connection.
func (c *checkpointer) committed(conn any) {
	s, ok := conn.(sqlite.DBStatus)
	if !ok {
		return
	}
	pages, _, err := s.Status(sqlite.DBStatusCacheWrite, true)
	if err != nil {
		return
	}
	if c.pages += pages; c.pages < checkpointPages {
		return
	}
	select {
	case c.due <- struct{}{}:
		c.pages = 0
	default: // a checkpoint is already requested
	}
}

func (c *checkpointer) close() error {
	close(c.due)
	c.group.Wait()
	return c.db.Close()
}
