package sandbox_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// benchmarks runs fn for every runtime and reports the median and the 99th percentile in addition to the mean.
func benchmarks(b *testing.B, o sandbox.Options, fn func(bench *sandboxtest.Bench, i int)) {
	for _, target := range sandboxtest.Targets {
		b.Run(target.Runtime, func(b *testing.B) {
			bench := sandboxtest.Open(b, target, o)
			fn(bench, -1)
			took := make([]time.Duration, 0, b.N)
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				fn(bench, i)
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkWarm measures one call of 100 bytes in an existing session.
func BenchmarkWarm(b *testing.B) {
	arg := strings.Repeat("x", 100)
	benchmarks(b, sandbox.Options{Blank: -1}, func(bench *sandboxtest.Bench, _ int) {
		bench.Run(sandboxtest.In("s", 1, bench.Call("main", arg)))
	})
}

// BenchmarkEcho64K sends 64 KiB there and back.
func BenchmarkEcho64K(b *testing.B) {
	arg := strings.Repeat("x", 64<<10)
	benchmarks(b, sandbox.Options{Blank: -1}, func(bench *sandboxtest.Bench, _ int) {
		bench.Run(sandboxtest.In("s", 1, bench.Call("main", arg)))
	})
}

// BenchmarkCold starts an executor for each call: no reserve, a new session every time.
func BenchmarkCold(b *testing.B) {
	benchmarks(b, sandbox.Options{Blank: -1}, func(bench *sandboxtest.Bench, i int) {
		bench.Run(sandboxtest.In("s", int64(i+2), bench.Call("pid")))
	})
}

// BenchmarkNewSession claims the executor that waits in reserve; the next one boots outside the measurement.
func BenchmarkNewSession(b *testing.B) {
	for _, target := range sandboxtest.Targets {
		b.Run(target.Runtime, func(b *testing.B) {
			bench := sandboxtest.Open(b, target, sandbox.Options{})
			ready := func() bool {
				return slices.ContainsFunc(bench.Snapshot(), func(e sandbox.ExecutorInfo) bool { return e.SessionID == "" })
			}
			bench.Run(sandboxtest.In("s", 1, bench.Call("pid")))
			for i := 0; i < b.N; i++ {
				b.StopTimer()
				_ = bench.CloseSession(context.Background(), sandbox.Session{ID: "s"}, "next")
				sandboxtest.Eventually(b, "an executor in reserve", ready)
				b.StartTimer()
				bench.Run(sandboxtest.In("s", int64(i+2), bench.Call("pid")))
			}
		})
	}
}

// BenchmarkGone measures the time from the kill of a process to the tombstone of its session.
func BenchmarkGone(b *testing.B) {
	benchmarks(b, sandbox.Options{}, func(bench *sandboxtest.Bench, i int) {
		res := bench.Run(sandboxtest.In("s", int64(i+2), bench.Call("pid")))
		process, err := os.FindProcess(sandboxtest.Got[int](b, res))
		if err != nil {
			b.Fatal(err)
		}
		_ = process.Kill()
		<-bench.Lost
	})
}
