package postgres

import (
	"testing"
	"time"
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
