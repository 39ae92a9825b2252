package process

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A collector that lets the heap grow to five times what lives in it runs seldom, and a process that does little fills
// that room all the same: a thousand workers that only say that they live are 150 MB of garbage in two minutes, which
// the collector keeps from the machine. While little happens one more collection costs nothing that anybody waits for.

// tidyEvery is how often it is looked whether it is time to. Who makes at most little meanwhile is at rest, and it is
// worth it from lot on.
const (
	tidyEvery = 15 * time.Second
	little    = 48 << 20
	lot       = 16 << 20
)

// made is how many bytes were allocated, now and when it was looked and tidied last.
type made struct{ looked, tidied uint64 }

// due says whether it is time to tidy up.
func (m *made) due(now uint64) bool {
	since := now - m.looked
	m.looked = now
	if since > little || now-m.tidied < lot {
		return false
	}
	m.tidied = now
	return true
}

// tidyUp gives memory back while little happens.
func tidyUp() {
	var m made
	all := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	for range time.Tick(tidyEvery) {
		metrics.Read(all)
		if m.due(all[0].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	}
}
