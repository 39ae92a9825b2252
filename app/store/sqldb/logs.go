package sqldb

import (
	"encoding/json"
	"fmt"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Log lines are many and of little value, and decisions do not read them. Therefore they are written with the next
// batch and cost its other transactions no lock and no read.

// logRun is the key of all log lines of a run.
var logRun = record.Logs.Columns[:1]

// applyLogs collects log lines to insert, with the time of the batch, and log lines to delete.
func (b *batch) applyLogs(w *store.Writes) error {
	bodies := make([]string, len(w.Logs))
	for i := range w.Logs {
		p := &w.Logs[i]
		body, err := json.Marshal(p.Lines)
		if err != nil {
			return fmt.Errorf("log lines of %s: %w", engine.AttemptID(p.Run, p.Seq, p.Delivery), err)
		}
		bodies[i] = string(body)
	}
	for i := range w.Logs {
		p := &w.Logs[i]
		size := int64(protocol.LogSize(p.Lines))
		b.flush.logs.S(p.Run).I(p.Seq).I(p.Delivery).I(p.Part).I(b.now.UnixMicro()).I(size).S(bodies[i])
	}
	for _, k := range w.DropLogs {
		b.flush.goneLogs.S(k.Run).I(k.Seq).I(k.Delivery).I(k.Part)
	}
	return nil
}
