package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/filelock"
	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// Packages is the setting for the installation of packages that handlers need.
type Packages string

// These are the values of the setting.
const (
	// without running code of packages: no scripts of npm packages, only wheels for Python
	PackagesInstall Packages = "install"
	PackagesScripts Packages = "scripts" // including the scripts that packages run during installation
	PackagesNone    Packages = "none"    // no installation
)

// These are classes of Unavailable errors: the packages of a handler are being installed, or their installation failed.
const (
	ClassInstalling   = "packages_installing"
	ClassNotInstalled = "packages_failed"
)

// These are times and sizes of an installation.
const (
	maxLastLine       = 200 // maximum bytes of the installer's last line in errors of waiting calls
	installTime       = 15 * time.Minute
	installRetry      = 5 * time.Second // pause after a failure; it doubles with each further failure
	maxInstallRetry   = 5 * time.Minute // maximum pause between two tries
	lockPoll          = 250 * time.Millisecond
	installMemory     = 1 << 30
	installDisk       = 16 << 30
	packagesRetention = 30 * 24 * time.Hour // after the last use
	packagesTouch     = time.Hour           // interval between two updates of the time of last use
)

// packages installs and tracks the packages that the handlers of a pool need. Workers share its folder:
// CACHE/RUNTIME-KEY exists only if its installation is complete.
type packages struct {
	pool  *Pool
	cache string

	mu   sync.Mutex // guards the fields below
	sets map[string]*packageSet
	// last manifest of each runtime
	latest map[string]*manifest
	made   map[string]string // by runtime: the parts of its version that packages depend on
}

// packageSet are the packages of one manifest.
type packageSet struct {
	there    bool
	dir      string // empty if the worker did not install them
	record   installRecord
	touched  time.Time
	running  bool
	began    time.Time     // start of the try that is running
	lastLine string        // last line of the installer; empty before the first
	err      error         // error of the last attempt; nil while the first attempt runs
	failed   time.Time     // end of the last attempt
	retryAt  time.Time     // earliest time of the next attempt
	wait     time.Duration // pause after the next attempt if it fails
}

// need returns the folder of a handler's packages, or an empty string if it needs none. If they are not installed, need
// starts the installation and returns an Unavailable error with its state.
func (k *packages) need(l *language, b *bundle) (string, error) {
	if b == nil {
		return "", nil
	}
	return k.requireManifest(l, &b.packages)
}

// ready makes the packages of a handler available to executors that start from now on.
func (k *packages) ready(l *language, b *bundle) error {
	if b == nil {
		return nil
	}
	dir, err := k.need(l, b)
	if err == nil && dir != l.installed() {
		changed := dir
		l.packages.Store(&changed)
	}
	return err
}

// requireManifest is like need, for a manifest.
func (k *packages) requireManifest(l *language, m *manifest) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.latest[l.name] = m
	if m.hash == "" || k.installedElsewhere(l, m) != "" {
		return "", nil
	}
	s := k.sets[l.name+m.hash]
	if s == nil {
		s = &packageSet{wait: cmp.Or(k.pool.opt.installRetry, installRetry)}
		k.sets[l.name+m.hash] = s
	}
	if s.there {
		if s.dir != "" && time.Since(s.touched) > packagesTouch {
			s.touched = time.Now()
			_ = os.Chtimes(s.dir, s.touched, s.touched)
		}
		return s.dir, nil
	}
	if !s.running && !time.Now().Before(s.retryAt) {
		s.running, s.began, s.lastLine = true, time.Now(), ""
		k.pool.background(func() { k.provide(l, *m, s) })
	}
	return "", s.stateError(*m)
}

// stateError returns an error with the state of the installation. The caller must hold the mutex.
func (s *packageSet) stateError(m manifest) *Error {
	e := &Error{Type: Unavailable, Class: ClassInstalling, Retryable: true}
	e.Message = "the handlers' " + m.files[0] + " is being installed"
	if s.running && time.Since(s.began) >= time.Second {
		e.Message += fmt.Sprintf(" since %s", time.Since(s.began).Truncate(time.Second))
	}
	if s.err != nil {
		e.Class, e.Message = ClassNotInstalled, s.err.Error()
		if s.running {
			e.Message += "; the installation is being retried"
		}
	}
	if s.running && s.lastLine != "" {
		e.Message += ": " + s.lastLine
	}
	return e
}

// provide tries to install the packages once and records the result.
func (k *packages) provide(l *language, m manifest, s *packageSet) {
	ctx, cancel := context.WithTimeoutCause(k.pool.life, installTime, fmt.Errorf("the installation took more than %s", installTime))
	defer cancel()
	began := time.Now()
	dir, err := k.install(ctx, l, m, func(line string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		s.lastLine = strings.ToValidUTF8(line[:min(len(line), maxLastLine)], "")
	})
	log := k.pool.opt.Logger.With().Str("runtime", l.name).Dur("took", time.Since(began)).Logger()
	k.mu.Lock()
	defer k.mu.Unlock()
	s.running = false
	if err == nil {
		s.there, s.dir = true, dir
		if dir != "" {
			s.record = readRecord(dir)
		}
		log.Info().Str("folder", dir).Msg("packages of " + m.files[0] + " installed")
		return
	}
	s.err = fmt.Errorf("the handlers' %s could not be installed: %w", m.files[0], err)
	s.failed = time.Now()
	s.retryAt = s.failed.Add(s.wait)
	s.wait = min(2*s.wait, maxInstallRetry)
	if k.pool.life.Err() == nil {
		log.Warn().Err(s.err).Time("again", s.retryAt).Msg("package installation failed; calls to these handlers wait for the retry")
	}
}

// Install begins to install the packages that handlers need, and continues until they are there or the pool is closed.
// Without Install, the first call of a handler begins the installation of its packages, and handlers wait for it.
func (p *Pool) Install() {
	if p.opt.Handlers == "" {
		return
	}
	for _, name := range []string{RuntimeNode, RuntimePython} {
		l := p.languages[name]
		if l == nil {
			continue
		}
		p.background(func() {
			for {
				m, err := readManifest(p.catalog.dir, name)
				if err == nil {
					if _, err = p.packages.requireManifest(l, &m); err == nil {
						return
					}
				}
				select {
				case <-time.After(time.Second):
				case <-p.life.Done():
					return
				}
			}
		})
	}
}

// install returns the folder of a manifest's packages, and installs them unless a worker already has. It returns "" if
// the interpreter already has all of them. progress is called with each line of the installer's output.
func (k *packages) install(
	ctx context.Context, l *language, m manifest, progress func(line string),
) (there string, err error) {
	if m.err != nil {
		return "", m.err
	}
	key, err := k.key(ctx, l, m)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(k.cache, l.name+"-"+key)
	if used(dir) {
		return dir, nil
	}
	mode := fs.FileMode(0o700)
	if k.pool.users != nil { // other users may enter the folder, but not list it
		mode = 0o711
	}
	if err := errors.Join(os.MkdirAll(k.cache, mode), ours(k.cache), os.Chmod(k.cache, mode)); err != nil {
		return "", fmt.Errorf("package folder: %w", err)
	}
	lock, err := k.lock(ctx, dir, progress)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if used(dir) { // another worker has installed them meanwhile
		return dir, nil
	}
	if k.present(ctx, l, m) {
		return "", nil
	}
	defer func() {
		if err != nil {
			installRecord{At: time.Now(), Error: err.Error()}.write(lock)
		}
	}()
	// Remove the folders of workers that died during an installation. Each installation uses a new folder, because
	// processes that a dead worker started may still write to the old one.
	old, _ := filepath.Glob(dir + ".tmp-*")
	for _, path := range old {
		supervisor.Wipe(path)
	}
	tmp, err := os.MkdirTemp(k.cache, filepath.Base(dir)+".tmp-")
	if err != nil {
		return "", fmt.Errorf("package folder: %w", err)
	}
	defer supervisor.Wipe(tmp)
	k.pool.opt.Logger.Info().Str("runtime", l.name).Msg("installing packages of " + m.files[0])
	if err := k.run(ctx, l, m, tmp, progress); err != nil {
		return "", err
	}
	if now, err := readManifest(m.root, l.name); err != nil || now.hash != m.hash {
		return "", errors.New("the manifest changed during the installation")
	}
	if err := errors.Join(seal(tmp, k.pool.users != nil), syncFolder(tmp)); err != nil {
		return "", fmt.Errorf("package folder: %w", err)
	}
	record := installRecord{At: time.Now(), Bytes: sizeOf(tmp)}
	if err := os.Rename(tmp, dir); err != nil {
		return "", fmt.Errorf("package folder: %w", err)
	}
	record.write(lock)
	k.removeOld()
	return dir, nil
}

// removeOld removes packages that no worker has used for a long time.
func (k *packages) removeOld() {
	entries, _ := os.ReadDir(k.cache)
	for _, e := range entries {
		name := e.Name()
		if info, err := e.Info(); err != nil || !e.IsDir() || time.Since(info.ModTime()) < packagesRetention {
			continue
		}
		set, _, _ := strings.Cut(name, ".tmp-")
		path := filepath.Join(k.cache, name)
		lock, err := filelock.Acquire(filepath.Join(k.cache, set+lockSuffix), os.O_CREATE)
		if err != nil {
			continue
		}
		// A partially removed folder must not have the name of a complete one.
		gone := filepath.Join(k.cache, set+".tmp-old")
		if name == set && os.Rename(path, gone) == nil {
			path = gone
		}
		supervisor.Wipe(path)
		_ = lock.Close()
		k.pool.opt.Logger.Info().Str("folder", name).Msg("removed unused packages")
	}
}

// lock waits until no other worker installs the same packages, and returns the locked file.
func (k *packages) lock(ctx context.Context, dir string, progress func(line string)) (*os.File, error) {
	logged := false
	for {
		lock, err := filelock.Acquire(dir+lockSuffix, os.O_CREATE)
		if !errors.Is(err, filelock.ErrHeld) {
			return lock, err
		}
		if !logged {
			logged = true
			k.pool.opt.Logger.Info().Msg("waiting for another worker to install the same packages")
			progress("another worker is installing the same packages")
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// key identifies an installation by its files, the version of the runtime, and the options.
func (k *packages) key(ctx context.Context, l *language, m manifest) (string, error) {
	k.mu.Lock()
	made := k.made[l.name]
	k.mu.Unlock()
	if made == "" {
		question := []string{"-p", "[process.version, process.versions.modules, process.arch].join(' ')"}
		if l.name == RuntimePython {
			question = []string{
				"-I", "-c", "import sys, sysconfig; " +
					"print(sys.version_info[:3], sys.implementation.cache_tag, sysconfig.get_platform())",
			}
		}
		out, err := outputOf(ctx, l.program, question...)
		if err != nil {
			return "", fmt.Errorf("read the version of %s: %w", l.program, err)
		}
		made = strings.TrimSpace(string(out))
		k.mu.Lock()
		k.made[l.name] = made
		k.mu.Unlock()
	}
	sum := sha256.Sum256(fmt.Appendf(
		nil, "2 %s %s %s %s %s", m.hash, made, runtime.GOOS, runtime.GOARCH, k.pool.opt.Packages,
	))
	return hex.EncodeToString(sum[:16]), nil
}

// used reports whether packages are installed, and updates the time of their last use.
func used(dir string) bool {
	now := time.Now()
	return isFolder(dir) && os.Chtimes(dir, now, now) == nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// seal changes the owner of installed packages to the worker and lets executors with other user IDs read them. Without
// it, the user ID that ran the installation could modify the packages.
func seal(dir string, others bool) error {
	if !others {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, os.Getuid(), os.Getgid()); err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if d.IsDir() || info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		return os.Chmod(path, mode) //nolint:gosec // packages, for executors of other users to read
	})
}
