//go:build !linux

package sandbox

import "errors"

func mayChangeUsers() error { return errors.New("that needs Linux") }

func ours(string) error { return nil }
