package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A script that replaces an interpreter is asked for the interpreter's path. It receives the variables of its version
// manager, but none of the worker's.
func TestAScriptThatPrintsItsInterpreterSeesNoToken(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "node")
	body := "#!/bin/sh\nenv > '" + filepath.Join(dir, "seen") + "'\necho /somewhere/node\n"
	if err := os.WriteFile(script, []byte(body), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOJOURN_TOKEN", "sjn_secret")
	t.Setenv("SOJOURN_DATABASE_URL", "postgres://u:sjn_secret@h/d")
	t.Setenv("PYENV_VERSION", "3.11")
	if found, err := findProgram(script, "node"); found != "/somewhere/node" || err != nil {
		t.Fatalf("got %q, %v", found, err)
	}
	seen, err := os.ReadFile(filepath.Join(dir, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(seen); strings.Contains(text, "sjn_secret") || !strings.Contains(text, "PYENV_VERSION=3.11") {
		t.Errorf("it sees %s", text)
	}
}
