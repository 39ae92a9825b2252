// Package suggest finds the known name that is nearest to a misspelled name.
package suggest

// maxLength limits the length of compared names in bytes: the cost of a comparison grows with its square.
const maxLength = 64

// Name returns the nearest known name at a distance of at most two added, dropped or changed bytes; empty if there is
// none. Of several names at the same distance it returns the first.
func Name(name string, known []string) string {
	best, at := "", 3 // a name at distance 3 is too different
	if len(name) > maxLength {
		return ""
	}
	for _, k := range known {
		if len(k) > maxLength {
			continue
		}
		if d := distance(name, k); d < at {
			best, at = k, d
		}
	}
	return best
}

// Ending returns a suggestion as the end of a sentence, such as "; did you mean addr?"; empty if near is empty.
func Ending(near string) string {
	if near == "" {
		return ""
	}
	return "; did you mean " + near + "?"
}

// distance returns the Levenshtein distance of a and b in bytes.
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
