package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/filelock"
	"github.com/sojourn-run/sojourn/internal/process"
)

// lockedByte is the byte of the database file that an app locks while it has the file open. SQLite locks 512 bytes from
// 1 GiB on; this byte follows them. The file may be shorter.
const lockedByte = 1<<30 + 4096

// file is the database file, opened once in addition to SQLite's own descriptors. It stays open until the store is
// closed: closing any descriptor of a file drops all POSIX locks that the process has on it, including SQLite's.
type file struct {
	f     *os.File
	path  string // without symbolic links, so that SQLite uses the files next to it
	lock  *lock
	wal   int64 // size of the write-ahead log when the file was opened
	inode uint64

	marking sync.Mutex // guards mark and its bytes in the file
	mark    mark       // the counter of commits
}

// openFiles contains the database files that this process has open. The process must not open a second descriptor of
// such a file, because closing it would drop SQLite's locks.
var openFiles struct {
	sync.Mutex
	files []*file
}

// openFile opens the database file, creates it if it is missing, and locks it under all of its names. The error is
// store.ErrBusy if another store has it open.
func openFile(path string) (_ *file, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	switch real, err := filepath.EvalSymlinks(path); {
	case err == nil:
		path = real
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	d := &file{path: path}
	if d.lock, err = acquire(path + ".lock"); err != nil {
		return nil, err
	}
	if err := d.openLocked(); err != nil {
		return nil, errors.Join(err, d.lock.release())
	}
	if err := errors.Join(private(path), d.read()); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *file) openLocked() error {
	openFiles.Lock()
	defer openFiles.Unlock()
	if openHere(d.path) {
		return byAnotherName()
	}
	f, err := os.OpenFile(d.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	switch err := filelock.TakeByte(f, lockedByte); {
	case errors.Is(err, filelock.ErrHeld):
		return errors.Join(byAnotherName(), f.Close())
	case errors.Is(err, errors.ErrUnsupported):
		if err := checkOnlyName(f); err != nil {
			return errors.Join(err, f.Close())
		}
	case err != nil:
		return errors.Join(fmt.Errorf("lock the database file: %w", err), f.Close())
	}
	d.f = f
	openFiles.files = append(openFiles.files, d)
	return nil
}

// openHere reports whether this process has the file open, under any name. It opens nothing.
func openHere(path string) bool {
	named, err := os.Stat(path)
	if err != nil {
		return false
	}
	for _, d := range openFiles.files {
		if opened, err := d.f.Stat(); err == nil && os.SameFile(opened, named) {
			return true
		}
	}
	return false
}

// inUse returns an ErrBusy if a store has the file open, under any name. It changes nothing.
func inUse(path string) error {
	if err := held(path + ".lock"); err != nil {
		return err
	}
	openFiles.Lock()
	defer openFiles.Unlock()
	if openHere(path) {
		return byAnotherName()
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // it does not exist, or this process may not read it
	}
	defer f.Close()
	if filelock.ByteHeld(f, lockedByte) {
		return byAnotherName()
	}
	return nil
}

func byAnotherName() error {
	return fmt.Errorf("%w: another app has this file open by another name (a hard link, a bind mount); stop one of them",
		store.ErrBusy)
}

// checkOnlyName rejects a file with several hard links on systems where only the lock file next to the database
// excludes a second app.
func checkOnlyName(f *os.File) error {
	n, err := links(f)
	if err == nil && n > 1 {
		err = fmt.Errorf("the database file has %d names (hard links), and this system cannot lock a file under all of "+
			"them; remove the others", n)
	}
	return err
}

// private restricts the database file and the files next to it to its owner. SQLite creates the latter with the
// permissions of the database file.
func private(path string) (err error) {
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		err = errors.Join(err, process.PrivateFile(path+suffix))
	}
	return err
}

// close releases the locks. SQLite has closed its descriptors by then.
func (d *file) close() error {
	openFiles.Lock()
	for i, o := range openFiles.files {
		if o == d {
			openFiles.files = append(openFiles.files[:i:i], openFiles.files[i+1:]...)
			break
		}
	}
	openFiles.Unlock()
	return errors.Join(d.f.Close(), d.lock.release())
}
