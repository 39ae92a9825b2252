//go:build !linux

package wall

import "errors"

// Offered says that there is nothing.
func Offered() Kernel { return Kernel{} }

// Raise refuses rules that cannot be kept here.
func Raise(r Rules) error {
	if r.Landlock > 0 || r.Filter || len(r.Ports) > 0 {
		return errors.New("this system has neither Landlock nor seccomp")
	}
	return nil
}

// Births has nobody who asks.
type Births struct{}

// RaiseAsking is Raise.
func RaiseAsking(r Rules) (*Births, error) { return nil, Raise(r) }

// Answer returns.
func (*Births) Answer(func() bool) {}

// Apart runs fn.
func Apart(fn func()) { fn() }
