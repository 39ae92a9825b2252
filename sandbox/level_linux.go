package sandbox

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// harden prevents executors of the same user from reading this process: its environment, memory and descriptors.
func harden() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// supervisorAttr makes a supervisor a session leader. The code that it watches may have stopped it: SIGCONT at the end
// of this process continues it, so that it notices the end and kills the executor. The kernel also sends the signal
// when the thread that started the supervisor ends, which has no effect.
func supervisorAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT}
}

// startInCgroup makes a process start in the cgroup v2 group with the folder dir.
func startInCgroup(attr *syscall.SysProcAttr, dir int) { attr.UseCgroupFD, attr.CgroupFD = true, dir }
