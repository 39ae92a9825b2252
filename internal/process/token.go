package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// TokenFile is the file in the data directory with the bootstrap token that an app generated at its first start. A
// worker and the CLI with the same data directory read it.
const TokenFile = "token"

// ReadToken returns the bootstrap token in a data directory; fs.ErrNotExist if there is none.
func ReadToken(dataDir string) (string, error) {
	path := filepath.Join(dataDir, TokenFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", fmt.Errorf("%s is empty; remove it to generate a new token", path)
	}
	return token, nil
}
