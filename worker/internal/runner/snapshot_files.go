package runner

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// SnapshotFiles are the files with snapshots that exceed the app's limit, in a directory that all workers reach. Only
// the user of the workers can read them. The zero value stores none.
type SnapshotFiles struct {
	Dir    string        // empty: no files
	MaxAge time.Duration // files are removed after this time

	mu       sync.Mutex
	restored map[string]time.Time // guarded by mu; restored files, with the time of the restore
}

// sweepEvery is the interval at which old files are removed. restoredAge is how long a restored file stays, in case the
// worker ends before it has reported the restore.
const (
	sweepEvery  = time.Minute
	restoredAge = time.Minute
)

// folder returns the directory of a namespace.
func (f *SnapshotFiles) folder(namespace string) string {
	return filepath.Join(f.Dir, "ns-"+url.PathEscape(namespace))
}

// prefixOf returns the beginning of the names of a session's files.
func prefixOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16]) + "-"
}

// write stores a snapshot of a session. Each snapshot has its own file: the app may refuse it and keep an earlier one.
func (f *SnapshotFiles) write(namespace, id string, epoch int64, suffix string, data []byte) (name string, err error) {
	folder := f.folder(namespace)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	name = prefixOf(id) + strconv.FormatInt(epoch, 10) + "-" + strings.ToLower(rand.Text()) + suffix
	temporary, err := os.CreateTemp(folder, name+".*.tmp") // mode 0600
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	_, err = temporary.Write(data)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err != nil {
		return "", err
	}
	return name, os.Rename(temporary.Name(), filepath.Join(folder, name))
}

// replaced removes the other files of a session after the app has stored its snapshot; name is its file, or empty.
func (f *SnapshotFiles) replaced(namespace, id, name string) {
	if f.Dir == "" {
		return
	}
	folder := f.folder(namespace)
	others, _ := fs.Glob(os.DirFS(folder), prefixOf(id)+"*")
	for _, other := range others {
		if other != name {
			_ = os.Remove(filepath.Join(folder, other))
		}
	}
}

// read returns the contents of a file.
func (f *SnapshotFiles) read(namespace, name string) ([]byte, error) {
	if f.Dir == "" {
		return nil, errors.New("the snapshot is in a file, and this worker has no snapshot-dir")
	}
	if name != filepath.Base(name) {
		return nil, fmt.Errorf("invalid file name %q", name)
	}
	return os.ReadFile(filepath.Join(f.folder(namespace), name))
}

// discard removes a restored file after a while; an empty name: none.
func (f *SnapshotFiles) discard(namespace, name string) {
	if name == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.restored == nil {
		f.restored = map[string]time.Time{}
	}
	f.restored[filepath.Join(f.folder(namespace), name)] = time.Now()
}

// remove removes a file that the app does not know.
func (f *SnapshotFiles) remove(namespace, name string) {
	if name != "" {
		_ = os.Remove(filepath.Join(f.folder(namespace), name))
	}
}

// KeepClean removes restored files and files older than MaxAge until ctx ends.
func (f *SnapshotFiles) KeepClean(ctx context.Context) {
	if f.Dir == "" {
		return
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		f.sweep(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (f *SnapshotFiles) sweep(now time.Time) {
	f.mu.Lock()
	for path, at := range f.restored {
		if now.Sub(at) >= restoredAge {
			delete(f.restored, path)
			_ = os.Remove(path)
		}
	}
	f.mu.Unlock()
	files, _ := fs.Glob(os.DirFS(f.Dir), "ns-*/*") // the path of the directory may contain the characters of patterns
	for _, name := range files {
		path := filepath.Join(f.Dir, name)
		if info, err := os.Lstat(path); err == nil && !info.IsDir() && now.Sub(info.ModTime()) > f.MaxAge {
			_ = os.Remove(path)
		}
	}
}
