package link

import "github.com/sojourn-run/sojourn/shared/protocol"

// An app notifies a worker when runs in its sticky cache end. After a new connection the app does not know the cached
// runs, so the next heartbeats list them in parts.

// untold are the kept runs that the app of a connection does not know of yet. The heartbeat alone uses it.
type untold struct {
	generation uint64 // of the connection
	runs       []protocol.KeptRun
}

// kept are the runs that the next heartbeat names.
func (l *Link) kept() []protocol.KeptRun {
	if l.opt.Kept == nil {
		return nil
	}
	l.mu.Lock()
	generation := uint64(0)
	if l.live != nil {
		generation = l.live.generation
	}
	l.mu.Unlock()
	if generation == 0 {
		return nil
	}
	if l.untold.generation != generation {
		l.untold = untold{generation, l.opt.Kept()}
	}
	return l.untold.runs[:min(len(l.untold.runs), protocol.MostKeptRuns)]
}

// keptTold records that an app received n of them.
func (l *Link) keptTold(n int) { l.untold.runs = l.untold.runs[min(n, len(l.untold.runs)):] }

// ended passes on which runs have ended.
func (l *Link) ended(runs []string) {
	if len(runs) > 0 && l.opt.OnEnded != nil {
		l.opt.OnEnded(runs)
	}
}
