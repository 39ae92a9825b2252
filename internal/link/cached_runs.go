package link

import "github.com/sojourn-run/sojourn/shared/protocol"

// An app notifies a worker when runs in its sticky cache end. After a new connection the app does not know the cached
// runs, so the next heartbeats list them in parts.

// unreportedRuns are the cached runs that the app of a connection does not know of yet. The heartbeat alone uses it.
type unreportedRuns struct {
	generation uint64 // number of the connection
	runs       []protocol.CachedRun
}

// nextCachedRuns returns the runs that the next heartbeat lists.
func (l *Link) nextCachedRuns() []protocol.CachedRun {
	if l.opt.CachedRuns == nil {
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
	if l.unreported.generation != generation {
		l.unreported = unreportedRuns{generation, l.opt.CachedRuns()}
	}
	return l.unreported.runs[:min(len(l.unreported.runs), protocol.MaxCachedRuns)]
}

// cachedRunsReported records that an app received n of the unreported runs.
func (l *Link) cachedRunsReported(n int) {
	l.unreported.runs = l.unreported.runs[min(n, len(l.unreported.runs)):]
}

// notifyEnded reports which runs have ended.
func (l *Link) notifyEnded(runs []string) {
	if len(runs) > 0 && l.opt.OnEnded != nil {
		l.opt.OnEnded(runs)
	}
}
