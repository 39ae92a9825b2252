package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// Migrating is the key of the migration lock, and Migrator the application_name of its holder.
const (
	Migrating = migrationLockKey
	Migrator  = migrator
)

// StillFor sets how long a process that migrates may do nothing.
func StillFor(t *testing.T, d time.Duration) {
	had := idleMigratorTimeout
	idleMigratorTimeout = d
	t.Cleanup(func() { idleMigratorTimeout = had })
}

// Committer returns a new connection of the kind that the committer uses.
func Committer(ctx context.Context, url string) (db.Conn, error) {
	c := &conn{server: &server{url: func() (string, error) { return url, nil }}}
	return c, c.connect(ctx)
}

// Classify classifies an error of that connection as the store does.
func Classify(err error) db.Class { return classify(err) }

// Refusals is refusals with a probe that the test supplies.
type Refusals struct{ r refusals }

// Start sets the functions. Each result of the probe is recorded.
func (r *Refusals) Start(probe func(context.Context) error, report, fail func(error)) {
	r.r.start(func(ctx context.Context) error {
		err := probe(ctx)
		r.r.record(err)
		return err
	}, report, fail, 0)
}

// Record receives the result of a connect.
func (r *Refusals) Record(err error) { r.r.record(err) }

// Close ends the watch.
func (r *Refusals) Close() { r.r.close() }
