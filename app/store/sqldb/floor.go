package sqldb

import (
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// Clean-up removes the rows of ended sessions. For each namespace, the highest removed epoch stays stored as a floor. A
// new epoch is above it, so that no epoch is used twice, whatever the clock reads. Only acquisitions read the floor; a
// step in a held session does not.

// EpochFloor returns the highest removed epoch of the namespace, including removals by this batch. It is read on first
// use: a floor only rises, so a later value is correct. If it cannot be read, the batch is not committed.
func (b *batch) EpochFloor(namespace string) int64 {
	if b.floors == nil {
		b.loadFloors()
	}
	return max(b.floors[namespace], b.risen[namespace])
}

// loadFloors reads all floors, a row a namespace.
func (b *batch) loadFloors() {
	if !b.s.cfg.Dialect.Shared && b.s.cache.floors != nil {
		b.floors = b.s.cache.floors
		return
	}
	b.floors = map[string]int64{}
	err := b.send(&db.Call{Stmt: b.s.st.floors, Row: func(v []any) error {
		b.floors[db.Str(v[0])] = db.Int(v[1])
		return nil
	}})
	if err != nil {
		b.broken = err
	}
}

// raise raises the floor of a namespace, as to the epoch of a session whose row this batch removes.
func (b *batch) raise(namespace string, epoch int64) {
	b.flush.floors[namespace] = max(b.flush.floors[namespace], epoch)
	if b.risen == nil {
		b.risen = map[string]int64{}
	}
	b.risen[namespace] = max(b.risen[namespace], epoch)
}
