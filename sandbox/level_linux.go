package sandbox

import (
	"os"

	"golang.org/x/sys/unix"
)

// hold says what level process holds on this kernel.
func hold() Report {
	r := Report{Level: LevelProcess, Memory: "watchdog", Disk: "watchdog", Egress: "open", Missing: []string{
		"code can read any file the worker's user can read, secret files included",
		"code can see and signal other processes of the worker's user",
		"code can connect to anything the worker can reach",
		"code can leave files in /tmp, /var/tmp and /dev/shm",
		"memory is watched, not capped by the kernel",
	}}
	if os.Geteuid() == 0 {
		r.Missing = append(r.Missing, "code runs as root, though without capabilities: it can change root's files and kernel settings")
	}
	const askVersion = 1 // LANDLOCK_CREATE_RULESET_VERSION
	if abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, askVersion); errno == 0 {
		r.LandlockABI = int(abi)
	}
	return r
}

// harden keeps executors of the same user out of this process: its environment, memory and descriptors.
func harden() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
