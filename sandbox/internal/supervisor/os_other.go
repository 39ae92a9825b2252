//go:build unix && !linux

package supervisor

import (
	"errors"
	"io/fs"
	"syscall"
)

// Without Linux there is no subreaper and no list of descendants: what the executor starts is reached by its process
// group, and what leaves the group is not. The worker's report says so.

func closeInherited(int) {}

func adopt() error { return nil }

func confine(user int) error {
	if user > 0 {
		return errors.New("another user needs Linux")
	}
	return nil
}

func asUser(_ int, fn func()) { fn() }

const maxThreads = 0 // not set: without users of their own there is no limit

func killUser(int) {}

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func sacrifice(int, int) {}

func dup(from, to int) error { return syscall.Dup2(from, to) }

func tasks() int { return 0 }

// descendants returns the executor when it still lives.
func descendants(pid, _ int) []int {
	if syscall.Kill(pid, 0) == nil {
		return []int{pid}
	}
	return nil
}

// End kills a minder that no longer does its work, and what is in its process group.
func End(minder int) {
	_ = syscall.Kill(-minder, syscall.SIGKILL)
	_ = syscall.Kill(minder, syscall.SIGKILL)
}

// Stopped does not know.
func Stopped(int) bool { return false }

// EndLeft finds nothing: there is no list of processes that says to whom they belonged.
func EndLeft(string, int) {}

// EndAll finds nothing, for the same reason.
func EndAll(string) {}

// ReapLeft has nothing to collect.
func ReapLeft() {}

func taken(int) usage { return usage{} }

func proportionalBytes(int) (int64, bool) { return 0, false }

func nameless([]int) (memory, disk int64) { return 0, 0 }

func allocated(info fs.FileInfo) int64 { return info.Size() }
