package bench

import (
	"runtime"
	"slices"
	"time"
)

// Two costs that differ by a few percent cannot be compared by measuring one after the other: between the measurements,
// the speed of the machine, the heap or the database may change by more than that.

// inTurns measures the processor time of operations with and without a feature in pairs of short turns. The order
// within a pair alternates. Garbage is collected before each turn, so that no turn pays for another's garbage.
func inTurns(ops, turn int, plain, with func(ops int) (sample, error)) (all sample, err error) {
	began := time.Now()
	sides := []func(int) (sample, error){plain, with}
	for done := 0; done < ops; done += turn {
		var used [2]time.Duration
		for i := range sides {
			k := (i + done/turn) % 2
			one, err := sides[k](min(turn, ops-done))
			if err != nil {
				return all, err
			}
			used[k] = one.used
			if k == 0 {
				all.without = append(all.without, one.each...)
			} else {
				all.each = append(all.each, one.each...)
			}
		}
		all.more = append(all.more, 100*(float64(used[1])/float64(used[0])-1))
	}
	all.elapsed = time.Since(began)
	return all, nil
}

// runManyCounted is like many, and also returns the processor time.
func runManyCounted(ops, atOnce int, do func() error) (sample, error) {
	runtime.GC()
	before := cpuTime()
	s, err := runMany(ops, atOnce, do)
	s.used = cpuTime() - before
	return s, err
}

// spent returns the additional processor time of an operation relative to the baseline in percent. It is the mean of
// the middle half of all pairs of turns, since other processes disturb some pairs.
func spent(s sample) float64 {
	more := slices.Sorted(slices.Values(s.more))
	cut := len(more) / 4
	sum := 0.0
	for _, v := range more[cut : len(more)-cut] {
		sum += v
	}
	return sum / float64(len(more)-2*cut)
}
