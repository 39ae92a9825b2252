package apptest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Python returns an interpreter with the packages of a list of requirements, installed once per list in the user's
// cache. Without Python the test is skipped, or fails if SOJOURN_TEST_REQUIRE contains python.
func Python(t testing.TB, list string) string {
	t.Helper()
	path, err := virtualenv(list)
	if err != nil && strings.Contains(os.Getenv("SOJOURN_TEST_REQUIRE"), "python") {
		t.Fatalf("no python with %s, and this run requires one: %v", list, err)
	}
	if err != nil {
		t.Skipf("no python with %s: %v", list, err)
	}
	return path
}

var venvMutex sync.Mutex

func virtualenv(list string) (string, error) {
	venvMutex.Lock()
	defer venvMutex.Unlock()
	base, err := exec.LookPath("python3")
	if err != nil {
		return "", err
	}
	required, err := os.ReadFile(list)
	if err != nil {
		return "", err
	}
	version, err := exec.Command(base, "-c", "import sys; print(sys.version, sys.base_prefix)").Output()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(required, version...))
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "sojourn-tests")
	dir := filepath.Join(cache, "python-"+hex.EncodeToString(sum[:8]))
	interpreter := filepath.Join(dir, "bin", "python")
	if _, err := os.Stat(interpreter); err == nil {
		return interpreter, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	made, err := os.MkdirTemp(cache, "making-") // renamed when complete, so that two tests may create it at once
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(made)
	for _, command := range [][]string{
		{base, "-m", "venv", made},
		{filepath.Join(made, "bin", "python"), "-m", "pip", "install", "--quiet", "--no-deps", "-r", list},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
		}
	}
	if err := os.Rename(made, dir); err != nil {
		if _, there := os.Stat(interpreter); there != nil {
			return "", err
		}
	}
	return interpreter, nil
}
