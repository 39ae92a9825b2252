package lockdown

import (
	"testing"
	"time"
)

// Measures the time that a lockdown adds to the start of an executor. Each iteration leaves a thread, so there are few.
func BenchmarkRaise(b *testing.B) {
	k := Offered()
	if k.Landlock == 0 || !k.Filter {
		b.Skipf("this kernel offers %+v to this process", k)
	}
	r := Rules{Write: []string{b.TempDir()}, Inet: true, Landlock: k.Landlock, Filter: true}
	for range 30 {
		r.Read = append(r.Read, "/usr/lib", "/usr/bin", "/etc/hosts", "/nowhere")
	}
	var spent time.Duration
	const n = 20
	for range n {
		OnOwnThread(func() {
			start := time.Now()
			if err := Raise(r); err != nil {
				b.Error(err)
			}
			spent += time.Since(start)
		})
	}
	b.ReportMetric(float64(spent.Microseconds())/n, "µs/lockdown")
	b.ReportMetric(0, "ns/op")
}
