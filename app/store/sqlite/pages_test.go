package sqlite

import "testing"

// The five connections keep a 25th of the memory as pages, each at least 1 MiB and at most 32 MiB.
func TestThePagesOfAConnectionFollowTheMemory(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "cache_size(-32768)", 64 << 20: "cache_size(-1024)", 256 << 20: "cache_size(-2048)",
		1 << 30: "cache_size(-8192)", 4 << 30: "cache_size(-32768)", 1 << 40: "cache_size(-32768)",
	} {
		if got := pageCache(bytes); got != want {
			t.Errorf("%d MiB: %s, want %s", bytes>>20, got, want)
		}
	}
}
