package cli_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// modes lists the files below a directory, including itself, to which other users have access.
func modes(t *testing.T, dir string) (open []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // a file of an executor that was just removed
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && (info.Mode().IsRegular() || d.IsDir()) && info.Mode().Perm()&0o077 != 0 {
			open = append(open, path+" "+info.Mode().String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return open
}

// The data directory contains all workflow data and an administrator token, so other users have no access to it,
// whatever its mode was before.
func TestTheDataDirectoryIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"missing", "open to all"} {
		t.Run(before, func(t *testing.T) {
			dir := t.TempDir()
			data := filepath.Join(dir, "data")
			e := env{"SOJOURN_DATA_DIR": data, "SOJOURN_ADDR": address(t), "SOJOURN_LOG_LEVEL": "info"}
			serve := func() {
				p := launch(t, dir, e)
				client{t: t, base: "http://" + e["SOJOURN_ADDR"]}.up()
				p.line(p.err, `"message":"connected to the app"`)
				if open := modes(t, data); len(open) > 0 {
					t.Errorf("others get at %q", open)
				}
				p.terminate()
			}
			if before == "open to all" {
				serve()
				err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
					mode := fs.FileMode(0o644)
					if err == nil && d.IsDir() {
						mode = 0o755
					}
					return errors.Join(err, os.Chmod(path, mode))
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			serve()
			if open := modes(t, data); len(open) > 0 {
				t.Errorf("after its end others get at %q", open)
			}
		})
	}
}
