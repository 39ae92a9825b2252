package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTypesAreWrittenForEditors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, want := range []string{"wrote", "as it was:", "wrote"} {
		code, out, err := run(t, dir, nil, "types", ".")
		if code != 0 || strings.Count(out, want+" sojourn.") != 2 {
			t.Errorf("time %d: exit %d, %q %q, want %q twice", i+1, code, out, err, want)
		}
		if i == 1 { // older ones are replaced
			for _, name := range []string{"sojourn.d.ts", "sojourn.pyi"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if code, _, err := run(t, dir, nil, "types", "nowhere"); code != 1 || !strings.Contains(err, "nowhere") {
		t.Errorf("a folder that is not there: exit %d, %q", code, err)
	}
}
