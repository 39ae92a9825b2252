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

// Bootstrap returns the token that has every role: the configured token, or else the token in the data directory, which
// Bootstrap creates if it is missing. created reports that the token is new, so that the caller shows it once.
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
	token = prefix + "bootstrap_" + randomText(32)
	draft, err := os.CreateTemp(dataDir, process.TokenFile+".*") // created with mode 0600
	if err != nil {
		return "", false, fmt.Errorf("bootstrap token: %w", err)
	}
	defer os.Remove(draft.Name())
	_, err = draft.WriteString(token + "\n")
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return "", false, fmt.Errorf("bootstrap token: %w", err)
	}
	// Linking never replaces a token that another process created meanwhile, and readers never see a partial file.
	switch err := os.Link(draft.Name(), path); {
	case errors.Is(err, fs.ErrExist):
		token, err := process.ReadToken(dataDir)
		return token, false, err
	case err != nil:
		return "", false, fmt.Errorf("bootstrap token: %w", err)
	}
	return token, true, nil
}
