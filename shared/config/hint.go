package config

import (
	"maps"
	"slices"
)

// hint suggests the known name that an unknown one was probably meant to be, as the end of a sentence; nothing when
// none is near.
func hint(name string, known map[string]string) string {
	best, at := "", 3 // more than two slips is another word
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if d := distance(name, k); d < at {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// distance counts the letters to add, drop or change to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
