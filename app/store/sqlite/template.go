package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// WriteMigrated writes a new database file to which all migrations have been applied, for a test. The migrations run
// once per process: they take longer than many tests.
func WriteMigrated(path string) error {
	content, err := migratedFile()
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

var migratedFile = sync.OnceValues(func() (content []byte, err error) {
	dir, err := os.MkdirTemp("", "sojourn-template-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "template.db")
	s, err := Open(context.Background(), path, sqldb.Options{})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})
