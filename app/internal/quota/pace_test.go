package quota_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/quota"
)

func TestLargePayloadsArePacedWhileOthersWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const megabyte = 1 << 20
		l := quota.New()
		step := engine.Usage{StoredBytes: 100}
		for range 100 {
			l.Add("flood", step)
			if wait, ok := l.Pace("flood", 2*megabyte); wait != 0 || !ok {
				t.Fatalf("a namespace that works alone waits for %v, %t", wait, ok)
			}
		}
		began := time.Now()
		for range 24 { // 8 MiB at once, then 2 MiB per second
			l.Add("calm", step)
			l.Add("flood", step)
			wait, ok := l.Pace("flood", 2*megabyte)
			if !ok {
				t.Fatal("refused")
			}
			for _, other := range []struct {
				namespace string
				bytes     int
			}{{"calm", megabyte / 2}, {"flood", 10_000}} {
				if wait, ok := l.Pace(other.namespace, other.bytes); wait != 0 || !ok {
					t.Fatalf("%d bytes of %s wait for %v, %t", other.bytes, other.namespace, wait, ok)
				}
			}
			time.Sleep(wait)
		}
		if took := time.Since(began); took < 19*time.Second || took > 21*time.Second {
			t.Errorf("48 MiB took %v, want 20 s", took)
		}
		// Of many concurrent requests, requests that would wait too long are rejected and do not count.
		refused := 0
		for range 20 {
			l.Add("calm", step)
			if _, ok := l.Pace("flood", 2*megabyte); !ok {
				refused++
			}
		}
		if refused < 14 || refused > 16 {
			t.Errorf("%d of 20 are refused", refused)
		}
		time.Sleep(2 * time.Second) // the other namespaces are inactive
		if wait, ok := l.Pace("flood", 2*megabyte); wait != 0 || !ok {
			t.Errorf("alone again: %v, %t", wait, ok)
		}
	})
}
