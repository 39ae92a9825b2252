package process

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// overhead is the memory that the limit allows for in addition to the heap: stacks and free blocks of the Go
// runtime.
const overhead = 32 << 20

// limitFor returns the memory limit of the Go runtime for a live heap of live bytes.
func limitFor(live, soft, hard int64) int64 { return min(max(soft, live+live/2+overhead), hard) }

// LimitMemory sets the memory limit of the Go runtime to soft, and raises it up to hard while more than about two
// thirds of soft are live heap. The collector then runs often enough to keep the process small, but not continuously,
// as it would with a fixed limit close to the live heap.
func LimitMemory(soft, hard int64) {
	l := &limits{soft: soft, hard: hard, now: soft}
	debug.SetMemoryLimit(soft)
	l.afterCollection()
}

// limits is the state of [LimitMemory]; its methods do not run concurrently.
type limits struct{ soft, hard, now int64 }

func (l *limits) adjust() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if want := limitFor(int64(sample[0].Value.Uint64()), l.soft, l.hard); want != l.now {
		l.now = want
		debug.SetMemoryLimit(want)
	}
}

// afterCollection adjusts the limit when the collector frees an unused object, and allocates the next such object.
func (l *limits) afterCollection() {
	mark := new([64]byte) // large enough that the allocator does not put it into a block with other objects
	runtime.AddCleanup(mark, func(l *limits) {
		l.adjust()
		l.afterCollection()
	}, l)
}
