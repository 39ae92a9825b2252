package store

import "math"

// Budgets contains the remaining bytes of the responses to the polls of a claim. A claim leases at most what fits into
// the responses: a task that does not fit would have to be released, and the next claim would lease it again.
type Budgets struct {
	remaining []int64
	first     []bool // true while the response has no task: its first task always fits
}

// NewBudgets returns the budgets of these polls.
func NewBudgets(pollers []Poller) Budgets {
	b := Budgets{make([]int64, len(pollers)), make([]bool, len(pollers))}
	for i := range pollers {
		b.remaining[i], b.first[i] = pollers[i].Bytes, pollers[i].First
		if b.remaining[i] == 0 && !b.first[i] {
			b.remaining[i] = math.MaxInt64
		}
	}
	return b
}

// Fits reports whether a task of this size fits into a poll's response. If not, the poll must not receive a later task
// either.
func (b *Budgets) Fits(poller int, size int64) bool {
	return b.first[poller] || size <= b.remaining[poller]
}

// Subtract subtracts the size of a task from a poller's budget.
func (b *Budgets) Subtract(poller int, size int64) {
	b.remaining[poller] -= size
	b.first[poller] = false
}
