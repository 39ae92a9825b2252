package runner

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Files are removed when the app has stored a later snapshot of their session, when they are too old, and a while after
// they were restored. The path of the directory contains the characters of a pattern.
func TestFilesOfSnapshotsAreRemoved(t *testing.T) {
	t.Parallel()
	f := &SnapshotFiles{Dir: filepath.Join(t.TempDir(), "[a]*"), MaxAge: time.Hour}
	write := func(id string, epoch int64) string {
		t.Helper()
		name, err := f.write("n/*", id, epoch, "", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	expect := func(when string, want ...string) {
		t.Helper()
		got, err := fs.Glob(os.DirFS(f.folder("n/*")), "*")
		if slices.Sort(want); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: files %q, want %q, %v", when, got, want, err)
		}
	}
	first, second, other := write("s", 1), write("s", 2), write("t", 1)
	expect("at first", first, second, other)
	f.replaced("n/*", "s", second)
	expect("after the second snapshot was stored", second, other)
	now := time.Now()
	f.discard("n/*", second)
	f.sweep(now)
	expect("after the restore", second, other)
	f.sweep(now.Add(2 * restoredAge))
	expect("a while after the restore", other)
	f.sweep(now.Add(2 * time.Hour))
	expect("after the maximum age")
}
