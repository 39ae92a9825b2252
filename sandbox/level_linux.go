package sandbox

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// harden keeps executors of the same user out of this process: its environment, memory and descriptors.
func harden() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// minderAttr makes a minder a session leader. It may have been stopped by what it watches: the end of this process sets
// it going, to find that and end all. The end of the thread that started it does so as well, and means nothing.
func minderAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT}
}

// bornIn has a process start in a control group of version 2, of which dir is the folder.
func bornIn(attr *syscall.SysProcAttr, dir int) { attr.UseCgroupFD, attr.CgroupFD = true, dir }
