package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sojourn-run/sojourn/internal/filelock"
)

// PackagesState is the state of the packages that handlers need.
type PackagesState string

// These are the values of PackagesState.
const (
	PackagesInstalled  PackagesState = "installed"  // installed in the folder of packages
	PackagesInstalling PackagesState = "installing" // being installed now
	PackagesFailed     PackagesState = "failed"     // the last attempt failed; RetryAt is the time of the next one
	PackagesPending    PackagesState = "pending"    // not tried yet
	PackagesOthers     PackagesState = "others"     // not installed by this worker; see Detail
)

// PackagesInfo describes for people the packages that the handlers of one runtime need.
type PackagesInfo struct {
	Runtime string
	Files   []string // manifests in the handlers' folder, the main one first
	State   PackagesState
	Detail  string    // last line or error of the installer; for PackagesOthers the reason
	Path    string    // folder of the packages, also before their installation; empty: PackagesOthers
	Bytes   int64     // total size; 0: unknown
	Since   time.Time // time since which the state is current; zero: unknown
	RetryAt time.Time // time of the next attempt after a failure; zero: unknown
}

// Packages returns the state of the packages of handlers that were called, or that [Pool.Install] checked.
func (p *Pool) Packages() (all []PackagesInfo) {
	k := p.packages
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range []string{RuntimeNode, RuntimePython} {
		m := k.latest[name]
		if m == nil || m.hash == "" {
			continue
		}
		i := PackagesInfo{Runtime: name, Files: m.files, State: PackagesPending}
		if why := k.installedElsewhere(p.languages[name], m); why != "" {
			i.State, i.Detail = PackagesOthers, why
		} else if s := k.sets[name+m.hash]; s != nil {
			s.describe(&i)
		}
		all = append(all, i)
	}
	return all
}

// describe sets the state of the packages. The caller must hold the mutex.
func (s *packageSet) describe(i *PackagesInfo) {
	i.Path, i.Bytes, i.Since = s.dir, s.record.Bytes, s.record.At
	switch {
	case s.there && s.dir == "":
		i.State, i.Detail = PackagesOthers, allThere
	case s.there:
		i.State = PackagesInstalled
	case s.running:
		i.State, i.Detail, i.Since = PackagesInstalling, s.lastLine, s.began
	case s.err != nil:
		i.State, i.Detail, i.Since, i.RetryAt = PackagesFailed, errors.Unwrap(s.err).Error(), s.failed, s.retryAt
	}
}

// FindPackages returns the state of the packages that this pool's handlers need, in the package folder of the
// workers whose Options.Dir is dir. It installs nothing.
func (p *Pool) FindPackages(ctx context.Context, dir string) (all []PackagesInfo, err error) {
	if p.opt.Handlers == "" {
		return nil, nil
	}
	base, err := p.base(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{RuntimeNode, RuntimePython} {
		l := p.languages[name]
		if l == nil {
			continue
		}
		m, err := readManifest(p.catalog.dir, name)
		if err != nil {
			return all, err
		}
		if m.hash == "" {
			continue
		}
		i := PackagesInfo{Runtime: name, Files: m.files, State: PackagesPending}
		if i.Detail = p.packages.installedElsewhere(l, &m); i.Detail != "" {
			i.State = PackagesOthers
			all = append(all, i)
			continue
		}
		if m.err != nil {
			i.State, i.Detail = PackagesFailed, m.err.Error()
			all = append(all, i)
			continue
		}
		key, err := p.packages.key(ctx, l, m)
		if err != nil {
			return all, err
		}
		i.Path = filepath.Join(base, packagesDir, name+"-"+key)
		record := readRecord(i.Path)
		i.Bytes, i.Since = record.Bytes, record.At
		switch {
		case isFolder(i.Path):
			i.State = PackagesInstalled
		case filelock.Held(i.Path + lockSuffix):
			i.State, i.Since = PackagesInstalling, time.Time{}
		case record.Error != "":
			i.State, i.Detail = PackagesFailed, record.Error
		case p.packages.present(ctx, l, m):
			i.State, i.Detail, i.Path = PackagesOthers, allThere, ""
		}
		all = append(all, i)
	}
	return all, nil
}

// allThere is the detail of packages that need no installation.
const allThere = "the interpreter has them all"

// installRecord is information for people in the lock file of packages. The worker does not derive from it which
// packages are installed.
type installRecord struct {
	At    time.Time `json:"at"`
	Bytes int64     `json:"bytes,omitempty"`
	Error string    `json:"error,omitempty"`
}

// lockSuffix is appended to the name of a folder of packages to form the name of its lock file.
const lockSuffix = ".lock"

// readRecord reads the record; it returns a zero record if it does not exist or is invalid.
func readRecord(dir string) (n installRecord) {
	raw, err := os.ReadFile(dir + lockSuffix)
	if err != nil || json.Unmarshal(raw, &n) != nil {
		return installRecord{}
	}
	return n
}

// write writes the record into the open lock file. It ignores errors, since the record is only informational.
func (n installRecord) write(lock *os.File) {
	raw, err := json.Marshal(n)
	if err == nil && lock.Truncate(0) == nil {
		_, _ = lock.WriteAt(raw, 0)
	}
}

// sizeOf returns the size of the files in a folder.
func sizeOf(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be looked at counts nothing
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// installedElsewhere returns why this worker does not install the packages of a manifest: a user installed them, or
// installation is disabled. It returns "" if this worker installs them.
func (k *packages) installedElsewhere(l *language, m *manifest) string {
	switch {
	case k.pool.opt.Packages == PackagesNone:
		return "handler-packages is none"
	case m.own:
		return "they stand beside the handlers or above"
	case l.name == RuntimePython && isFile(filepath.Join(filepath.Dir(filepath.Dir(l.program)), "pyvenv.cfg")):
		return "they are those of the virtual environment " + filepath.Dir(filepath.Dir(l.program))
	}
	return ""
}
