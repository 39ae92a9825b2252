package sandbox_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// record returns a typical record of a payload: short names, numbers, a nested list.
func record(i int) map[string]any {
	return map[string]any{
		"id": fmt.Sprintf("01JD3V9Q%06d", i), "path": "corpus/alice.txt", "tries": i, "score": 0.875, "final": i%2 == 0,
		"tags": []string{"index", "words"}, "title": "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich",
	}
}

// BenchmarkWorkerCPU measures the processor time of a call in the worker's process, without the executor's: for text of
// each size, and for records of the same size.
func BenchmarkWorkerCPU(b *testing.B) {
	records := func(size int) any {
		all := make([]any, size/170)
		for i := range all {
			all[i] = record(i)
		}
		return all
	}
	for _, arg := range []struct {
		name  string
		value any
	}{
		{"warm", strings.Repeat("x", 100)},
		{"text64K", strings.Repeat("x", 64<<10)},
		{"text1M", strings.Repeat("x", 1<<20)},
		{"records64K", records(64 << 10)},
		{"records1M", records(1 << 20)},
	} {
		for _, target := range sandboxtest.Targets {
			b.Run(arg.name+"/"+target.Runtime, func(b *testing.B) {
				bench := sandboxtest.Open(b, target, sandbox.Options{Blank: -1})
				call := sandboxtest.In("s", 1, bench.Call("main", arg.value))
				for range 5 { // until the executor's code is compiled
					bench.Run(call)
				}
				before := processorTime(b)
				for b.Loop() {
					bench.Run(call)
				}
				b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/1e3, "worker-cpu-µs/op")
			})
		}
	}
}

// processorTime returns the processor time of this process without its children.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
