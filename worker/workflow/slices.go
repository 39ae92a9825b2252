package workflow

import (
	"maps"
	"slices"
)

// without removes v from s and keeps the order. It searches from the end, since v usually is the only or the last
// element.
func without[T comparable](s []T, v T) []T {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == v {
			return slices.Delete(s, i, i+1)
		}
	}
	return s
}

func sortedKeys[V any](m map[int64]V) []int64 { return slices.Sorted(maps.Keys(m)) }
