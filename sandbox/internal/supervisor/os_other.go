//go:build unix && !linux

package supervisor

import (
	"errors"
	"io/fs"
	"syscall"
)

// Without Linux there is no subreaper and no list of descendants: the supervisor kills the executor's process group,
// and processes that leave the group survive. The worker's report states this.

func closeInherited(int) {}

func becomeSubreaper() error { return nil }

func dropPrivileges(user int) error {
	if user > 0 {
		return errors.New("running an executor as another user needs Linux")
	}
	return nil
}

func asUser(_ int, fn func()) { fn() }

const maxThreads = 0 // not set: without separate users there is no limit

func killUser(int) {}

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func setOOMScoreAdj(int, int) {}

func dup(from, to int) error { return syscall.Dup2(from, to) }

func tasks() int { return 0 }

// descendants returns the executor if it is alive.
func descendants(pid, _ int) []int {
	if syscall.Kill(pid, 0) == nil {
		return []int{pid}
	}
	return nil
}

// End kills a supervisor that does not react, and its process group.
func End(pid int) {
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// Stopped returns false: this system does not show whether a process is stopped.
func Stopped(int) bool { return false }

// KillOrphans does nothing, since the processes of an executor cannot be found.
func KillOrphans(string, int) {}

// EndAll does nothing, since the processes of an executor cannot be found.
func EndAll(string) {}

// ReapOrphans does nothing.
func ReapOrphans() {}

func usageOf(int) usage { return usage{} }

func proportionalBytes(int) (int64, bool) { return 0, false }

func unlinkedFileSizes([]int) (memory, disk int64) { return 0, 0 }

func allocated(info fs.FileInfo) int64 { return info.Size() }
