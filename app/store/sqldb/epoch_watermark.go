package sqldb

import (
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// Clean-up removes the rows of ended sessions. For each namespace, the highest removed epoch stays stored as a
// watermark. A new epoch is higher than the watermark, so that no epoch is used twice, whatever the clock reads. Only
// acquisitions read the watermark; a step in a held session does not.

// EpochWatermark returns the highest removed epoch of the namespace, including removals by this batch. It is read on
// first use: a watermark only rises, so a later value is correct. If it cannot be read, the batch is not committed.
func (b *batch) EpochWatermark(namespace string) int64 {
	if b.watermarks == nil {
		b.loadWatermarks()
	}
	return max(b.watermarks[namespace], b.raisedWatermarks[namespace])
}

// loadWatermarks reads the watermarks of all namespaces.
func (b *batch) loadWatermarks() {
	if !b.s.cfg.Dialect.Shared && b.s.cache.watermarks != nil {
		b.watermarks = b.s.cache.watermarks
		return
	}
	b.watermarks = map[string]int64{}
	err := b.send(&db.Call{Stmt: b.s.st.watermarks, Row: func(v []any) error {
		b.watermarks[db.Str(v[0])] = db.Int(v[1])
		return nil
	}})
	if err != nil {
		b.broken = err
	}
}

// raiseWatermark raises the watermark of a namespace to the epoch of a session whose row this batch removes.
func (b *batch) raiseWatermark(namespace string, epoch int64) {
	b.flush.watermarks[namespace] = max(b.flush.watermarks[namespace], epoch)
	if b.raisedWatermarks == nil {
		b.raisedWatermarks = map[string]int64{}
	}
	b.raisedWatermarks[namespace] = max(b.raisedWatermarks[namespace], epoch)
}
