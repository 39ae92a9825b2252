package bench

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"
)

// A filled database is reused, since filling takes longer than measuring. A file with its location is written last:
// without it the preparation was interrupted, and the database is filled again.

func nothing(context.Context) error { return nil }

// filled returns the stored database for this node, if it exists with all measured data.
func (n *node) filled() (database string, there bool) {
	if n.kept == "" {
		return "", false
	}
	raw, err := os.ReadFile(n.kept)
	return strings.TrimSpace(string(raw)), err == nil
}

// place creates the folder of the file with the location.
func (n *node) place() error {
	if n.kept == "" {
		return nil
	}
	n.path = n.kept + ".db"
	if _, there := n.filled(); there {
		return nil
	}
	remove := func(context.Context) error {
		var all []error
		for _, of := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(n.path + of); !errors.Is(err, fs.ErrNotExist) {
				all = append(all, err)
			}
		}
		return errors.Join(all...)
	}
	n.drop = remove
	return remove(context.Background())
}

// stays stores the location of the filled database for later measurements.
func (n *node) stays() error {
	if n.kept == "" {
		return nil
	}
	database := n.path
	if n.server != "" {
		u, err := url.Parse(n.server)
		if err != nil {
			return err
		}
		database = path.Base(u.Path) // without the server's address and password, which may change
	}
	n.drop = nothing
	return os.WriteFile(n.kept, []byte(database+"\n"), 0o600)
}
