package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// PrivateDir makes a directory, if missing, and sees to it that nobody but its owner gets in, also when it was there
// before.
func PrivateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("private directory: %w", err)
	}
	return private(path, 0o700)
}

// PrivateFile sees to it that nobody but its owner reads or writes a file, if there is one.
func PrivateFile(path string) error {
	if err := private(path, 0o600); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func private(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("private %s: %w", path, err)
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("others get at %s, and this process cannot change it: %w", path, err)
	}
	return nil
}
