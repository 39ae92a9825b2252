package sandbox

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Two workers with different lock folders, like services with a private /tmp, do not use the same user ID.
func TestWorkersThatShareNoFolderShareNoUser(t *testing.T) {
	taken := map[int]bool{}
	for range 2 {
		s := &users{first: 59200, last: 59203, locks: t.TempDir()}
		for range 2 {
			u, err := s.acquireUser()
			if err != nil {
				t.Fatal(err)
			}
			defer u.release()
			if taken[u.id] {
				t.Errorf("user %d was given twice", u.id)
			}
			taken[u.id] = true
		}
	}
	full := &users{first: 59200, last: 59203, locks: t.TempDir()}
	if u, err := full.acquireUser(); err == nil {
		t.Errorf("user %d was given though all are taken", u.id)
	}
	// A socket name that no worker holds does not block a user ID: code in an executor could bind such a name.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@sojourn-user-59204"}); err != nil {
		t.Fatal(err)
	}
	one := &users{first: 59204, last: 59204, locks: t.TempDir()}
	if u, err := one.acquireUser(); err != nil {
		t.Error(err)
	} else {
		u.release()
	}
	if err := os.Remove(full.locks + "/59200"); err != nil {
		t.Errorf("the file of a number was not made: %v", err)
	}
}
