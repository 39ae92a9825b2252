//go:build !race

package sandboxtest

// Race says whether this binary has the race detector.
const Race = false
