package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sojourn-run/sojourn/internal/process"
)

// Bootstrap is the token that has every role: the configured one, else the one kept in the data directory, which is
// made when it is not there yet. created says that it was made now and nobody has seen it.
func Bootstrap(dataDir, configured string) (token string, created bool, err error) {
	if configured = strings.TrimSpace(configured); configured != "" {
		return configured, false, nil
	}
	path := filepath.Join(dataDir, process.TokenFile)
	if token, err = process.ReadToken(dataDir); token != "" || !errors.Is(err, fs.ErrNotExist) {
		return token, false, err
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return "", false, fmt.Errorf("directory of the bootstrap token: %w", err)
	}
	token = prefix + "bootstrap_" + text(32)
	draft, err := os.CreateTemp(dataDir, process.TokenFile+".*") // made with 0600
	if err != nil {
		return "", false, fmt.Errorf("bootstrap token: %w", err)
	}
	defer os.Remove(draft.Name())
	_, err = draft.WriteString(token + "\n")
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return "", false, fmt.Errorf("bootstrap token: %w", err)
	}
	// A link never replaces what another process made meanwhile, and nobody sees half a token.
	switch err := os.Link(draft.Name(), path); {
	case errors.Is(err, fs.ErrExist):
		token, err := process.ReadToken(dataDir)
		return token, false, err
	case err != nil:
		return "", false, fmt.Errorf("bootstrap token: %w", err)
	}
	return token, true, nil
}
