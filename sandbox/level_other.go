//go:build !linux

package sandbox

// hold says what level process holds where there is no Linux: little beyond the clean environment.
func hold() Report {
	return Report{Level: LevelProcess, Memory: "none", Disk: "watchdog", Egress: "open", Missing: []string{
		"code can read any file the worker's user can read, secret files included",
		"code can see and signal other processes of the worker's user",
		"code can connect to anything the worker can reach",
		"code can leave files outside its scratch folder",
		"memory is not watched; only the limit of each process holds",
		"a daemon that leaves the executor's process group outlives it",
	}}
}

func harden() error { return nil }
