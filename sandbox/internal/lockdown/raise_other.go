//go:build !linux

package lockdown

import "errors"

// Offered returns no features.
func Offered() Kernel { return Kernel{} }

// Raise returns an error for rules that this system cannot enforce.
func Raise(r Rules) error {
	if r.Landlock > 0 || r.Filter || len(r.Ports) > 0 {
		return errors.New("this system has neither Landlock nor seccomp")
	}
	return nil
}

// OnOwnThread runs fn on the current thread.
func OnOwnThread(fn func()) { fn() }
