package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/sojourn-run/sojourn/internal/filelock"
)

// This is the default range of users for executors of a worker that runs as root. Distributions and systemd do not
// assign these IDs.
const (
	firstUser = 60600
	lastUser  = 60999
)

// UsersNone makes executors run as the worker's user.
const UsersNone = "none"

// maxCheckedFiles is the maximum number of handler files that are checked before the first executor starts.
const maxCheckedFiles = 20_000

// users allocates user IDs, one for each executor.
type users struct {
	first, last int
	locks       string // folder with a file for each user ID that a worker on this machine uses

	mu   sync.Mutex
	next int
}

// user is the user of an executor.
type user struct {
	id   int
	lock *os.File
	name *os.File // reservation for workers with another folder of locks; nil: not supported on this system
}

// number returns the user ID for the supervisor; 0 without a user.
func (u *user) number() int {
	if u == nil {
		return 0
	}
	return u.id
}

// release releases the user ID. The caller must have ended all processes of the user.
func (u *user) release() {
	if u != nil {
		_, _ = u.lock.Close(), u.name.Close()
	}
}

// own changes the owner of a folder to the user.
func (u *user) own(dir string) error {
	if u == nil {
		return nil
	}
	return os.Chown(dir, u.id, u.id)
}

// ParseUsers reads FIRST-LAST.
func ParseUsers(text string) (first, last int, err error) {
	a, b, two := strings.Cut(text, "-")
	first, errFirst := strconv.Atoi(a)
	last, errLast := strconv.Atoi(b)
	if !two || errFirst != nil || errLast != nil || first < 1 || last < first || last >= 1<<31-1 {
		return 0, 0, fmt.Errorf("%q is not a range of user IDs such as 60600-60999", text)
	}
	return first, last, nil
}

// usersOf returns the user IDs that executors can use, or nil and the reason why they cannot have any.
func usersOf(o Options, programs map[string]string) (*users, error) {
	u := &users{first: firstUser, last: lastUser}
	if o.Users == UsersNone {
		return nil, errors.New("the setting executor-uids is none")
	}
	if o.Users != "" {
		var err error
		if u.first, u.last, err = ParseUsers(o.Users); err != nil {
			return nil, err
		}
	}
	if err := mayChangeUsers(); err != nil {
		return nil, err
	}
	for _, program := range programs {
		if strings.HasPrefix(program, "/proc/self/") {
			continue // this path is accessible even if its parent folders are closed
		}
		if err := closedToOthers(program, 0o001); err != nil {
			return nil, err
		}
	}
	for _, tree := range append([]string{o.Handlers}, o.Read...) {
		if err := treeClosedToOthers(tree); err != nil {
			return nil, err
		}
	}
	for _, path := range o.Write {
		if err := closedToOthers(path, 0o002); err != nil {
			return nil, err
		}
	}
	var err error
	if u.locks, err = lockFolder(); err != nil {
		return nil, err
	}
	return u, nil
}

// acquireUser reserves a user ID that no executor of any worker on this machine uses. It returns nil for a pool without
// users.
func (s *users) acquireUser() (*user, error) {
	if s == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for range s.last - s.first + 1 {
		id := s.first + s.next%(s.last-s.first+1)
		s.next++
		lock, err := filelock.Acquire(filepath.Join(s.locks, strconv.Itoa(id)), os.O_CREATE)
		if errors.Is(err, filelock.ErrHeld) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reserve a user ID for an executor: %w", err)
		}
		name, held, err := announce(id)
		if held || err != nil {
			_ = lock.Close()
		}
		if err != nil {
			return nil, err
		}
		if !held {
			return &user{id: id, lock: lock, name: name}, nil
		}
	}
	return nil, fmt.Errorf("all user IDs from %d to %d are in use by executors", s.first, s.last)
}

// lockFolder returns the folder with the lock files of reserved user IDs.
func lockFolder() (string, error) {
	var failed error
	for _, base := range []string{"/run", "/var/run", os.TempDir()} {
		dir := filepath.Join(base, "sojourn-users")
		err := os.Mkdir(dir, 0o700)
		if err == nil || errors.Is(err, fs.ErrExist) {
			err = ours(dir)
		}
		if err == nil {
			err = os.Chmod(dir, 0o700)
		}
		if err == nil {
			return dir, nil
		}
		failed = err
	}
	return "", failed
}

// closedToOthers returns an error if the mode bits for others deny a permission (1, 2 or 4) on a file, or the search
// permission on one of its parent directories.
func closedToOthers(path string, right fs.FileMode) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		if err := closedToOthers(real, right); err != nil {
			return err
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		right |= 0o001
	}
	if info.Mode().Perm()&right != right {
		return fmt.Errorf("%s is not accessible to other users", path)
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("%s is not accessible to other users", dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// treeClosedToOthers returns why other users cannot read all files below a path, or nil if they can.
func treeClosedToOthers(root string) error {
	if root == "" {
		return nil
	}
	if err := closedToOthers(root, 0o004); err != nil {
		return err
	}
	checked := 0
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if checked++; checked > maxCheckedFiles {
			return fs.SkipAll
		}
		need := fs.FileMode(0o004)
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && path != root {
				return fs.SkipDir // a folder without handlers: it may contain the worker's own data
			}
			need = 0o005
		}
		info, err := d.Info()
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		if info.Mode().Perm()&need != need {
			return fmt.Errorf("%s is not accessible to other users", path)
		}
		return nil
	})
}
