package store

import "github.com/sojourn-run/sojourn/shared/protocol"

// AttemptKey names one delivery of an activity to a worker.
type AttemptKey struct {
	Run           string
	Seq, Delivery int64
}

// LogKey names lines that came together. Parts of an attempt are numbered from 1, in their order; some may be missing.
type LogKey struct {
	AttemptKey
	Part int64
}

// LogBatch is lines that an attempt's code logged. No decision reads them: they are written for people.
type LogBatch struct {
	LogKey
	Lines []protocol.LogLine
}

// LogSum is the stored size of an attempt's log lines.
type LogSum struct {
	Delivery int64
	Size     int64 // see protocol.LogSize
	Last     int64 // number of the last part
}
