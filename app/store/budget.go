package store

import "math"

// Budgets are what is left of the responses of a claim's pollers. Every response has a budget of bytes, and a claim
// leases at most fits into it: what a worker cannot be sent would have to be returned, and the next claim would lease
// the same tasks again.
type Budgets struct {
	left  []int64
	first []bool // nothing was given yet: the first task always fits, however large it is
}

// NewBudgets are the budgets of these pollers.
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
