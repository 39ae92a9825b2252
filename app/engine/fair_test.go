package engine

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Random tasks of a few classes are enqueued and dispatched. Within a class the order is FIFO, no waiting class gets
// less than its share, and a class that was idle gets no extra share afterwards.
func TestRanksAreFair(t *testing.T) {
	type task struct {
		class, number int
		rank          int64
	}
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 3, 10, 1000}), 2, 5).Draw(t, "weights")
		var clock int64
		var ready []task
		tags := make([]int64, len(weights))
		came, went := make([]int, len(weights)), make([]int, len(weights))
		waiting := make([]int, len(weights))
		// for pairs of classes that have waited without a break: what each had received at the beginning
		since := map[[2]int][2]int{}
		arrive := func(c int) {
			var r int64
			r, tags[c] = Rank(clock, tags[c], weights[c])
			ready = append(ready, task{c, came[c], r})
			came[c]++
			waiting[c]++
		}
		pairs := func() {
			for x := range weights {
				for y := range x {
					k := [2]int{x, y}
					switch _, open := since[k]; {
					case waiting[x] == 0 || waiting[y] == 0:
						delete(since, k)
					case !open:
						since[k] = [2]int{went[x], went[y]}
					default:
						got := func(c, from int) float64 { return float64(went[c]-from) / float64(weights[c]) }
						a, b := got(x, since[k][0]), got(y, since[k][1])
						// A class may start one task behind the queue's clock, and each class may be ahead by one task.
						if bound := 2/float64(weights[x]) + 2/float64(weights[y]) + 1e-6; max(a-b, b-a) > bound {
							t.Fatalf(
								"class %d (weight %d) got %.3f rounds, class %d (weight %d) %.3f, both waiting all the time", x, weights[x], a,
								y, weights[y], b,
							)
						}
					}
				}
			}
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if len(ready) > 0 && rapid.Bool().Draw(t, "take") {
				slices.SortStableFunc(ready, func(a, b task) int { return cmp.Compare(a.rank, b.rank) })
				next := ready[0]
				ready = ready[1:]
				clock = max(clock, next.rank)
				if next.number != went[next.class] {
					t.Fatalf("class %d: task %d was dispatched before task %d", next.class, next.number, went[next.class])
				}
				went[next.class]++
				waiting[next.class]--
			} else {
				c := rapid.IntRange(0, len(weights)-1).Draw(t, "class")
				for range rapid.IntRange(1, 40).Draw(t, "burst") {
					arrive(c)
				}
			}
			pairs()
		}
	})
}
