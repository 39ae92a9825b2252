package engine

import (
	"cmp"
	"iter"
	"slices"
)

// Decisions are often computed and discarded: a batch is decided again, an eager workflow task is rejected. Copying a
// run with a thousand open activities each time would cost more than the decision, so a fork contains only its changes.

// Table is a set of open rows of a run by key. A table created by Fork reads its parent's rows and stores its changes
// separately, so that a decision can be tried and discarded. A fork contains exactly the rows that the decision
// changed, which the store writes. Rows are values: Get returns a copy and Put replaces the row.
type Table[K cmp.Ordered, V any] struct {
	rows  map[K]*V // nil: deleted in this table
	under *Table[K, V]
	size  int
}

// Get returns the row of a key.
func (t *Table[K, V]) Get(k K) (V, bool) {
	for l := t; l != nil; l = l.under {
		if v, ok := l.rows[k]; ok {
			if v == nil {
				break
			}
			return *v, true
		}
	}
	var zero V
	return zero, false
}

// Put sets the row of a key.
func (t *Table[K, V]) Put(k K, v V) {
	if _, ok := t.Get(k); !ok {
		t.size++
	}
	if t.rows == nil {
		t.rows = map[K]*V{}
	}
	t.rows[k] = &v
}

// Delete removes the row of a key, if there is one. A fork only marks it as deleted, since the parent must keep its
// row.
func (t *Table[K, V]) Delete(k K) {
	if _, ok := t.Get(k); !ok {
		return
	}
	t.size--
	if t.under == nil {
		delete(t.rows, k)
		return
	}
	if t.rows == nil {
		t.rows = map[K]*V{}
	}
	t.rows[k] = nil
}

// Len returns the number of rows.
func (t *Table[K, V]) Len() int { return t.size }

// All iterates over the rows in the order of their keys, so that deciding twice creates the same events in the same
// order. The loop may change and delete rows.
func (t *Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, k := range t.keys() {
			if v, ok := t.Get(k); ok && !yield(k, v) {
				return
			}
		}
	}
}

// Any reports whether is returns true for a row. It visits rows in no particular order and stops at the first match,
// without sorting keys.
func (t *Table[K, V]) Any(is func(V) bool) bool {
	for l := t; l != nil; l = l.under {
		for k, v := range l.rows {
			if v == nil || !is(*v) {
				continue
			}
			// The fork may have changed or deleted a row of its parent, so check the row as the fork sees it.
			if now, ok := t.Get(k); ok && (l == t || is(now)) {
				return true
			}
		}
	}
	return false
}

// keys returns the keys of all layers, sorted and without duplicates; some of them may be deleted.
func (t *Table[K, V]) keys() []K {
	keys := make([]K, 0, t.size)
	for l := t; l != nil; l = l.under {
		for k := range l.rows {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Fork returns a table that begins with t's rows. Changing it does not change t.
func (t *Table[K, V]) Fork() Table[K, V] { return Table[K, V]{under: t, size: t.size} }

// Changes iterates over the changes of a fork, in no order: the row, or nil if it was deleted.
func (t *Table[K, V]) Changes() iter.Seq2[K, *V] {
	return func(yield func(K, *V) bool) {
		for k, v := range t.rows {
			if !yield(k, v) {
				return
			}
		}
	}
}

// Merge applies the changes of a fork of t.
func (t *Table[K, V]) Merge(fork *Table[K, V]) {
	for k, v := range fork.rows {
		if v == nil {
			t.Delete(k)
		} else {
			t.Put(k, *v)
		}
	}
}
