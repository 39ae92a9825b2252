package process

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// With a high GOGC the heap may grow to five times the live heap before a collection, even in an idle process: the
// heartbeats of a thousand workers produce 150 MB of garbage in two minutes, and this memory is not returned to the
// operating system. An idle process can afford an additional collection, because no request waits for it.

// tidyEvery is the interval of checks. The process is idle if it allocated at most little bytes since the last check.
// It then returns memory to the system if it allocated at least lot bytes since it last did so.
const (
	tidyEvery       = 15 * time.Second
	idleThreshold   = 48 << 20
	returnThreshold = 16 << 20
)

// allocationTotals contains the total of allocated bytes at the last check, and at the last return of memory.
type allocationTotals struct{ looked, tidied uint64 }

// due reports whether to return memory to the operating system now.
func (m *allocationTotals) due(now uint64) bool {
	since := now - m.looked
	m.looked = now
	if since > idleThreshold || now-m.tidied < returnThreshold {
		return false
	}
	m.tidied = now
	return true
}

// tidyUp returns memory to the operating system while the process is idle. It never returns.
func tidyUp() {
	var m allocationTotals
	all := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	for range time.Tick(tidyEvery) {
		metrics.Read(all)
		if m.due(all[0].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	}
}
