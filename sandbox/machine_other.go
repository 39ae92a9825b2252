//go:build !linux

package sandbox

// machineMemory is a guess where there is no common way to ask.
func machineMemory() int64 { return 8 << 30 }

// flush does nothing where no file system can be told to.
func flush(string) error { return nil }

// Memory is a guess too.
func Memory() (total int64, limited bool) { return machineMemory(), false }
