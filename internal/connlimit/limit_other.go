//go:build !unix

package connlimit

// descriptorLimit is not known here: nothing is reserved.
func descriptorLimit() int { return 0 }
