package engine

// Fair order. Tasks of one queue, kind and priority are in classes, by their fairness key. Each class has a tag: where
// its next task would stand if every task took 1/weight of a round, and the queue has a clock: the rank of the latest
// task that was taken. A task's rank, given when it becomes ready, is the larger of the two, and moves the tag on by
// its share. So a burst of one class stands one behind another in rank, not in time, a class that comes later stands
// next to its first tasks and not behind its last, and a class that was idle has saved nothing up. Ranks never fall
// within a class, so its own order is kept; and between two classes that both have tasks waiting, what was taken never
// differs by more than one task of each, counted by weight.

// DefaultClass holds the tasks without a fairness key.
const DefaultClass = "__default__"

// round is what one task of weight 1 costs. It is large so that the share of the heaviest class is still a
// whole number.
const round = 1_000_000

// MaxWeight is the largest weight of a class. A limit keeps one class from starving the others by its number
// alone.
const MaxWeight = 1000

// Rank is the place of a task that becomes ready: its rank, and the class's tag after it.
func Rank(clock, tag int64, weight int) (rank, next int64) {
	rank = max(clock, tag)
	return rank, rank + round/int64(min(max(weight, 1), MaxWeight))
}

// Fairness is the class of a run's workflow tasks and its weight; the key is empty when none was given.
func (h *Head) Fairness() (key string, weight int) { return h.FairnessKey, max(h.FairnessWeight, 1) }

// FairnessIn is the class of an activity: its own, else its run's.
func (a *Activity) FairnessIn(h *Head) (key string, weight int) {
	if a.FairnessKey == "" {
		return h.Fairness()
	}
	return a.FairnessKey, max(a.FairnessWeight, 1)
}
