package workerconn

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheSettingsOfWorkers(t *testing.T) {
	w := New(nil, Options{}).WorkerSettings("default")
	const page = "guide/socket-workers.md"
	docnumbers.In(t, page, `"POLL_TIMEOUT_SECONDS": {}, "JOB_LOCK_SECONDS": {}, "JOB_LOCK_EXTEND_SECONDS": {}, `+
		`"WORKER_HEARTBEAT_SECONDS": {}, "WORKER_DRAIN_SECONDS": {}, "MAX_PAYLOAD_BYTES": {}}`,
		w.PollSeconds, w.LockSeconds, w.ExtendSeconds, w.BeatSeconds, w.DrainSeconds, w.MaxPayload)
	lock, extend := time.Duration(w.LockSeconds)*time.Second, time.Duration(w.ExtendSeconds)*time.Second
	docnumbers.In(t, page, "A lock lasts {}; extended every {} it outlives {} misses.", lock, extend, int(lock/extend)-1)
	docnumbers.In(t, page, "how long to wait; {} at most, and when absent", time.Duration(w.PollSeconds)*time.Second)
	docnumbers.In(t, "guide/deploy.md", "and are renewed by heartbeats every {}: two may be lost",
		time.Duration(w.BeatSeconds)*time.Second)
}
