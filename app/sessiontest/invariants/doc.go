// Package invariants holds the tests of what is always true of worker sessions, whatever happens in whatever order: who
// owns one, who may have its work, and that it stands in nobody else's way.
package invariants
