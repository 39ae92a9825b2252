package store

import "math"

// Budgets are the remaining bytes of the responses to a claim's pollers. A claim leases at most what fits into the
// responses: a task that does not fit would have to be returned, and the next claim would lease the same task again.
type Budgets struct {
	left  []int64
	first []bool // the response has no task yet: its first task always fits
}

// NewBudgets returns the budgets of these pollers.
func NewBudgets(pollers []Poller) Budgets {
	b := Budgets{make([]int64, len(pollers)), make([]bool, len(pollers))}
	for i := range pollers {
		b.left[i], b.first[i] = pollers[i].Bytes, pollers[i].First
		if b.left[i] == 0 && !b.first[i] {
			b.left[i] = math.MaxInt64
		}
	}
	return b
}

// Fits says whether a poller may be given a task of this size. One that may not must be given no other task that comes
// behind it.
func (b *Budgets) Fits(poller int, size int64) bool { return b.first[poller] || size <= b.left[poller] }

// Take subtracts the size of a task that a poller is given.
func (b *Budgets) Take(poller int, size int64) {
	b.left[poller] -= size
	b.first[poller] = false
}
