package cli

import "testing"

func TestTheMemoryOfAnAppIsDividedByWhatItsControlGroupAllows(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ bytes, soft, hard, inFlight int64 }{
		{64 * mib, 64 * mib / 3, 32 * mib, 8 * mib},
		{256 * mib, 256 * mib / 3, 192 * mib, 32 * mib},
		{1024 * mib, 1024 * mib / 3, 1024*mib - 1024*mib/6, 128 * mib},
		{16 << 30, 16 << 30 / 3, 16<<30 - 16<<30/6, 2 << 30},
	} {
		soft, hard := memoryLimits(c.bytes)
		if soft != c.soft || hard != c.hard || inFlight(c.bytes) != c.inFlight {
			t.Errorf("%d MiB: soft limit %d, hard limit %d, in flight %d; want %v", c.bytes/mib, soft, hard,
				inFlight(c.bytes), c)
		}
	}
}
