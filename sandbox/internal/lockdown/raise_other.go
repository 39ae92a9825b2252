//go:build !linux

package lockdown

import "errors"

// Offered returns no features.
func Offered() Kernel { return Kernel{} }

// Raise refuses rules that cannot be kept here.
func Raise(r Rules) error {
	if r.Landlock > 0 || r.Filter || len(r.Ports) > 0 {
		return errors.New("this system has neither Landlock nor seccomp")
	}
	return nil
}

// OnOwnThread runs fn.
func OnOwnThread(fn func()) { fn() }
