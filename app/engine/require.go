package engine

import (
	"slices"
	"strconv"
	"strings"
)

// Requirements are properties that a task needs in a machine (a GPU, a region, a version of a tool). They are compared
// as text, so that operators can define their own. The exception is versions: if they had to be equal, every upgrade
// would require a change of all tasks.

// Missing returns the requirements that no capability meets. A capability meets a requirement with the same text. A
// requirement of the form NAME>=VERSION (also > < <=, and several separated by commas: "cuda>=12.2,<13") is also met by
// a capability NAME=VERSION whose version is in the range. A version is a list of numbers separated by dots, compared
// one by one; missing numbers count as zero.
func Missing(requirements, capabilities []string) []string {
	return explain(true).missingRequirements(requirements, capabilities)
}

// missingRequirements returns all missing requirements, or only the first one if the caller needs no explanation.
func (e explain) missingRequirements(requirements, capabilities []string) (missing []string) {
	for i, r := range requirements {
		if strings.HasPrefix(r, resourcePrefix) {
			continue // compared with the amounts in use, and only for acquisitions
		}
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

// fits reports whether a capability has a version that meets a requirement.
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
		if !meetsBound(have, bound) {
			return false
		}
	}
	return true
}

// meetsBound compares a version with one bound, such as "<13". No version meets an invalid bound: with a misspelled
// requirement, a task waits instead of running on the wrong machine.
func meetsBound(have []uint64, bound string) bool {
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

// version parses numbers separated by dots. It drops zeros at the end, so that 12 and 12.0 are equal.
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
