//go:build !linux

package sandbox

// machineMemory is a guess where there is no common way to ask.
func machineMemory() int64 { return 8 << 30 }
