package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// TokenFile is where an app keeps the bootstrap token it made at its first start, below the data directory: worker and
// command line of the same directory find it there.
const TokenFile = "token"

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
