//go:build !unix

package connlimit

// descriptorLimit returns 0: the limit of this system is unknown, so nothing is reserved.
func descriptorLimit() int { return 0 }
