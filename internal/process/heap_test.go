package process

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestTheMemoryLimitFollowsWhatLives(t *testing.T) {
	const soft, hard = 340 << 20, 850 << 20
	for live, want := range map[int64]int64{
		0: soft, 100 << 20: soft, 205 << 20: soft, 300 << 20: 482 << 20, 500 << 20: 782 << 20, 600 << 20: hard, hard: hard,
	} {
		if got := limitFor(live, soft, hard); got != want {
			t.Errorf("%d MiB live: a limit of %d MiB, want %d", live>>20, got>>20, want>>20)
		}
	}
}

// The limit is adjusted after each collection, however many there are.
func TestTheMemoryLimitIsAdjustedAfterACollection(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	l := &limits{soft: 4 << 20, hard: 1 << 40, now: 4 << 20}
	l.afterCollection()
	var kept [][]byte
	for size := 16 << 20; size <= 64<<20; size *= 2 {
		kept = append(kept, make([]byte, size))
		for debug.SetMemoryLimit(-1) < int64(size+size/2) {
			runtime.GC()
			runtime.Gosched()
		}
	}
	runtime.KeepAlive(kept)
	l.soft, l.hard = before, before // later collections do not change the limit
}
