package engine

import (
	"slices"
	"strconv"
	"strings"
)

// Requirements are the properties that a task needs in a machine (a GPU, a region, a version of a tool). They are
// compared as text, so that operators can define their own, with one exception: versions, where equality would force a
// change of every task at each upgrade.

// Missing returns the requirements that no capability meets. A capability meets a requirement of the same text. A
// requirement of the form NAME>=VERSION (also > < <=, and several separated by commas: "cuda>=12.2,<13") is also met by
// a capability NAME=VERSION whose version is in the range. A version is a list of numbers separated by dots, compared
// one by one; missing numbers count as zero.
func Missing(requirements, capabilities []string) []string {
	return explain(true).missing(requirements, capabilities)
}

// missing names all that is missing, or, for callers that want no words, only the first of it.
func (e explain) missing(requirements, capabilities []string) (missing []string) {
	for i, r := range requirements {
		if slices.Contains(capabilities, r) || slices.ContainsFunc(capabilities, func(c string) bool { return fits(r, c) }) {
			continue
		}
		if !e {
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

// within compares a version with one bound, such as "<13". No version meets an invalid bound, so a mistyped requirement
// causes a wait and does not run a task on the wrong machine.
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

// version reads numbers with dots between them. Zeros at the end are dropped, so that 12 and 12.0 are the same.
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
