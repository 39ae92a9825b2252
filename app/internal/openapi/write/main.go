// Command write writes the generated OpenAPI document to docs/openapi.json. It runs in any directory of the module.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sojourn-run/sojourn/app/internal/openapi"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func write() error {
	dir, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	root := strings.TrimSpace(string(dir))
	doc, err := openapi.Document(root, openapi.Routes())
	if err != nil {
		return err
	}
	file := filepath.Join(root, "docs", "openapi.json")
	// An unchanged file is not written, since a write would rebuild the dashboard and everything that embeds the
	// document.
	if is, _ := os.ReadFile(file); bytes.Equal(is, doc) {
		return nil
	}
	return os.WriteFile(file, doc, 0o644)
}
