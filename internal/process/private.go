package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// PrivateDir creates a directory if it is missing, and restricts its permissions to its owner in either case.
func PrivateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("private directory: %w", err)
	}
	return private(path, 0o700)
}

// PrivateFile restricts the permissions of a file to its owner, if the file exists.
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
		return fmt.Errorf("%s is accessible to other users, and its mode cannot be changed: %w", path, err)
	}
	return nil
}
