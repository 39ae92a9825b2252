package engine

import (
	"slices"
	"strconv"
	"strings"
)

// Missing lists the requirements that no capability meets. A capability meets a requirement of the same text. A
// requirement of the form NAME>=VERSION (also > < <=, and several with commas between them: "cuda>=12.2,<13") is met by
// a capability NAME=VERSION as well, when that version fits. A version is numbers with dots between them, compared one
// by one; those it lacks are zero.
func Missing(requirements, capabilities []string) []string {
	return worded(true).missing(requirements, capabilities)
}

// missing names all that is missing, or for who wants no words the first of it.
func (asked worded) missing(requirements, capabilities []string) (missing []string) {
	for i, r := range requirements {
		if slices.Contains(capabilities, r) || slices.ContainsFunc(capabilities, func(c string) bool { return fits(r, c) }) {
			continue
		}
		if !asked {
			return requirements[i : i+1]
		}
		missing = append(missing, r)
	}
	return missing
}

// fits reports whether a capability has a version that a requirement asks for.
func fits(requirement, capability string) bool {
	at := strings.IndexAny(requirement, "<>")
	if at <= 0 || !strings.HasPrefix(capability, requirement[:at]+"=") {
		return false
	}
	have, ok := version(capability[at+1:])
	if !ok {
		return false
	}
	for bound := range strings.SplitSeq(requirement[at:], ",") {
		if !within(have, bound) {
			return false
		}
	}
	return true
}

// within compares a version with one bound, "<13"; what is no bound holds of nothing.
func within(have []uint64, bound string) bool {
	than := strings.TrimLeft(bound, "<>=")
	want, ok := version(than)
	if !ok {
		return false
	}
	order := slices.Compare(have, want)
	switch strings.TrimSuffix(bound, than) {
	case ">=":
		return order >= 0
	case ">":
		return order > 0
	case "<=":
		return order <= 0
	case "<":
		return order < 0
	}
	return false
}

// version reads numbers with dots between them; zeros at the end say nothing.
func version(text string) (v []uint64, ok bool) {
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return nil, false
		}
		v = append(v, n)
	}
	for len(v) > 0 && v[len(v)-1] == 0 {
		v = v[:len(v)-1]
	}
	return v, true
}
