package supervisor

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Wipe removes dir and its content, including unreadable folders, without following links.
func Wipe(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // WalkDir calls this function before it reads the folder
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}
