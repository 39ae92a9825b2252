package broker

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestGuideStatesTheNumbersOfTheBroker(t *testing.T) {
	o := Options{}.defaults()
	docnumbers.In(t, "guide/http-api.md", "a `poll_request_id` sent again within {} gets the same lease again", pollRetention)
	docnumbers.In(t, "guide/runs.md", "and then removed with all their data, a {} at a time", deleteBatchSize)
	if readyTimeout >= 2*time.Second {
		t.Errorf("whether an app is ready may take %s", readyTimeout)
	}
	docnumbers.In(t, "guide/monitor.md", "503 if not, within {}, and from the moment", 2*time.Second)
	docnumbers.In(t, "guide/workers-in-any-language.md", "A worker is `stale` after {} seconds without a request.", int(o.Alive.Seconds()))
	docnumbers.In(t, "guide/workers-in-any-language.md", `"heartbeat_interval_seconds": {},`, int(o.Heartbeat.Seconds()))
	docnumbers.In(t, "guide/schedules.md", "both included, up to {} at once", maxBackfill)
	docnumbers.In(t, "guide/fleets.md", "It is `stale` {} after its last heartbeat or other request.", o.Alive)
	docnumbers.In(t, "guide/batch-jobs.md", "({}; at most {}), `--rate` the runs per second ({}; at most {})",
		protocol.DefaultBatchRuns, protocol.MaxBatchRuns, protocol.DefaultBatchRate, protocol.MaxBatchRate)
	docnumbers.In(t, "guide/batch-jobs.md", "when the lease of {} seconds has expired and it has noticed the end of the app",
		int(batchLease.Seconds()))
	docnumbers.In(t, "guide/batch-jobs.md", "small background transactions, at most {} runs at a time", batchGroup)
	docnumbers.In(t, "guide/batch-jobs.md", "A namespace has at most {} open jobs", protocol.MaxBatchJobs)
	docnumbers.In(t, "guide/batch-jobs.md", "`input` (at most {} KiB)", protocol.MaxBatchInput>>10)
	docnumbers.In(
		t, "guide/workflows-in-go.md", "Without any the caller receives an error after {}, or {} for an update", queryDeadline, validationDeadline,
	)
}
