package admission

import (
	"math"
	"runtime/metrics"
	"time"
)

// schedulerDelay reads how long goroutines that were ready to run waited for a processor.
type schedulerDelay struct {
	sample [1]metrics.Sample
	before []uint64 // counts at the last call
}

// read returns the 90th percentile since the last call, and 0 at the first.
func (d *schedulerDelay) read() time.Duration {
	d.sample[0].Name = "/sched/latencies:seconds"
	metrics.Read(d.sample[:])
	h := d.sample[0].Value.Float64Histogram()
	if d.before == nil {
		d.before = append(d.before, h.Counts...)
		return 0
	}
	var total, seen uint64
	for i, n := range h.Counts {
		total += n - d.before[i]
	}
	at := 0.0
	for i, n := range h.Counts {
		if seen += n - d.before[i]; total > 0 && seen*10 >= total*9 {
			at = h.Buckets[i+1]
			break
		}
	}
	copy(d.before, h.Counts)
	if math.IsInf(at, 1) { // the last bucket has no upper bound
		return time.Second
	}
	return time.Duration(at * float64(time.Second))
}
