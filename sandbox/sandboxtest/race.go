//go:build race

package sandboxtest

// Race reports whether this binary has the race detector.
const Race = true
