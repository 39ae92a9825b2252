package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// TokenFile is where the bootstrap token made at first start is kept, below the data directory: worker and command line of the same directory
// find it.
const TokenFile = "token"

// Bootstrap is the token that has every role: the configured one, else the one kept in the data directory, which is made when it is not there yet.
// created says that it was made now and nobody has seen it.
func Bootstrap(dataDir, configured string) (token string, created bool, err error) {
	if configured = strings.TrimSpace(configured); configured != "" {
		return configured, false, nil
	}
	path := filepath.Join(dataDir, TokenFile)
	if token, err = ReadToken(dataDir); token != "" || !errors.Is(err, fs.ErrNotExist) {
		return token, false, err
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return "", false, fmt.Errorf("directory of the bootstrap token: %w", err)
	}
	token = prefix + "bootstrap_" + text(32)
	draft, err := os.CreateTemp(dataDir, TokenFile+".*") // made with 0600
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
		token, err := ReadToken(dataDir)
		return token, false, err
	case err != nil:
		return "", false, fmt.Errorf("bootstrap token: %w", err)
	}
	return token, true, nil
}

// ReadToken is the bootstrap token kept in a data directory; fs.ErrNotExist when there is none.
func ReadToken(dataDir string) (string, error) {
	path := filepath.Join(dataDir, TokenFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", fmt.Errorf("%s is empty: remove it, and a new token is made", path)
	}
	return token, nil
}
