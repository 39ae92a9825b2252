package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store/sqldb/db"
)

// Migrating is the number of the migration lock, and Migrator the name of who has it.
const (
	Migrating = migrating
	Migrator  = migrator
)

// StillFor sets how long a process that migrates may do nothing.
func StillFor(t *testing.T, d time.Duration) {
	had := stillFor
	stillFor = d
	t.Cleanup(func() { stillFor = had })
}

// Committer is a committer's connection of its own.
func Committer(ctx context.Context, url string) (db.Conn, error) {
	cfg, err := parse(url)
	if err != nil {
		return nil, err
	}
	c := &conn{cfg: writing(cfg)}
	return c, c.connect(ctx)
}

// Classify is how the store judges an error of that connection.
func Classify(err error) db.Class { return classify(err) }
