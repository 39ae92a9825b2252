//go:build !linux

package sandbox

import "syscall"

func harden() error { return nil }

func supervisorAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func startInCgroup(*syscall.SysProcAttr, int) {}
