package engine

// This is start-time fair queueing. Tasks of one queue, kind and priority are divided into classes by their fairness
// key. Each class has a tag: the rank of its next task if every task took 1/weight of a round. The queue has a clock:
// the rank of the latest dispatched task. When a task becomes ready, its rank is the larger of the two, and the tag
// advances by the task's share.
//
// So the ranks of a burst in one class spread over later rounds; a class that arrives later ranks next to the burst's
// first tasks and not behind its last; and an idle class gains no credit. Ranks never decrease within a class, so its
// order is FIFO. For two classes that both have waiting tasks, the numbers of dispatched tasks, divided by the weights,
// never differ by more than one task of each.

// DefaultClass is the class of tasks without a fairness key.
const DefaultClass = "__default__"

// round is the cost of one task of weight 1. It is large so that the share of the heaviest class is still a
// whole number.
const round = 1_000_000

// MaxWeight is the largest weight of a class. Without a limit, one class could starve the others by its weight alone.
const MaxWeight = 1000

// Rank returns the rank of a task that becomes ready, and the tag of the class after it.
func Rank(clock, tag int64, weight int) (rank, next int64) {
	rank = max(clock, tag)
	return rank, rank + round/int64(min(max(weight, 1), MaxWeight))
}

// Fairness returns the fairness class of a run's workflow tasks and its weight; the key is empty if the run has none.
func (h *Head) Fairness() (key string, weight int) { return h.FairnessKey, max(h.FairnessWeight, 1) }

// FairnessIn returns the fairness class of an activity: the activity's own class, or else the run's.
func (a *Activity) FairnessIn(h *Head) (key string, weight int) {
	if a.FairnessKey == "" {
		return h.Fairness()
	}
	return a.FairnessKey, max(a.FairnessWeight, 1)
}
