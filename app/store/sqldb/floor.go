package sqldb

import (
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// Clean-up removes the rows of sessions that have ended. What stays of them is a floor a namespace: the highest epoch
// that was removed. A claim goes above it, so that no epoch is given twice, whatever the clock says. Claims alone ask
// for it; a step in a session that is held costs no read.

// EpochFloor is the highest epoch that was removed in the namespace, by this batch too. It is read when first asked
// for: a floor only rises, so later is never wrong. When it cannot be read, the batch will not be written.
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
