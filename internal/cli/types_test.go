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
	for i, want := range []string{"wrote", "unchanged", "wrote"} {
		code, out, err := run(t, dir, nil, "types", ".")
		if code != 0 || strings.Count(out, want+" sojourn.") != 2 {
			t.Errorf("time %d: exit %d, %q %q, want %q twice", i+1, code, out, err, want)
		}
		settings := filepath.Join(dir, "tsconfig.json")
		switch text, err := os.ReadFile(settings); {
		case err != nil || !strings.Contains(out, []string{"wrote", "unchanged", "unchanged"}[i]+" tsconfig.json"):
			t.Errorf("time %d: settings %v, said %q", i+1, err, out)
		case i == 0: // a user edits the file
			if !strings.Contains(string(text), "moduleResolution") || os.WriteFile(settings, []byte("{}"), 0o600) != nil {
				t.Errorf("settings: %s", text)
			}
		case string(text) != "{}":
			t.Errorf("time %d: settings were replaced by %s", i+1, text)
		}
		if i == 1 { // older files are replaced
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
