//go:build !linux

package cgroup

import "errors"

// Tree has no function on this system, which has no control groups.
type Tree struct{}

// Open returns an error, since control groups need Linux.
func Open() (*Tree, error) { return nil, errors.New("control groups need Linux") }

// Close does nothing.
func (*Tree) Close() {}

// Holds returns no mechanism.
func (*Tree) Holds() (memory, processes, cpu string) { return "", "", "" }

// ProcsFile returns "", because this system has no cgroups.
func (*Tree) ProcsFile() string { return "" }

// Make returns no group.
func (*Tree) Make(string, Limits) (*Group, error) { return nil, nil }

// SetProcessors does nothing.
func (*Group) SetProcessors(float64) error { return nil }

// Second returns "".
func (*Group) Second() string { return "" }

// Enter does nothing.
func (*Group) Enter() error { return nil }

// Return does nothing.
func (*Group) Return() error { return nil }

// Kill does nothing.
func (*Group) Kill() {}

// Remove does nothing.
func (*Group) Remove() {}

// Use returns false: this system has no cgroups.
func (*Group) Use() (int64, bool) { return 0, false }

// OutOfMemory returns no kills: this system has no cgroups.
func (*Group) OutOfMemory() Killed { return Killed{} }

// Count returns 0: this system has no cgroups.
func (*Group) Count() int64 { return 0 }

// Throttled returns 0: this system has no cgroups.
func (*Group) Throttled() int64 { return 0 }

// MemoryLimit returns no limit: this system has no cgroups.
func MemoryLimit() (int64, bool) { return 0, false }
