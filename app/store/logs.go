package store

import "github.com/sojourn-run/sojourn/shared/protocol"

// AttemptKey identifies one delivery of an activity.
type AttemptKey struct {
	Run           string
	Seq, Delivery int64
}

// LogKey identifies one batch of log lines. The batches of an attempt are numbered from 1, in order; some may be
// missing.
type LogKey struct {
	AttemptKey
	Part int64
}

// LogBatch contains lines that an attempt's code logged. Decisions do not read them.
type LogBatch struct {
	LogKey
	Lines []protocol.LogLine
}

// LogSum is the stored size of an attempt's log lines.
type LogSum struct {
	Delivery int64
	Size     int64 // see protocol.LogSize
	Last     int64 // number of the last batch
}
