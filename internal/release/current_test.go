package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write creates files in a new directory and returns the directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCurrentUsesTheFirstNonEmptySource(t *testing.T) {
	both := map[string]string{"VERSION": "2.0.0\n", "package.json": `{"name":"x","version":"3.0.0"}`}
	all := Source{Setting: "1.0.0", Stamp: "4.0.0", Embedded: "5.0.0\n"}
	unset := Source{Stamp: "4.0.0", Embedded: "5.0.0\n"}
	for _, c := range []struct {
		name  string
		files map[string]string
		s     Source
		want  string
		from  string // the file's name for a file
	}{
		{"setting before all", both, all, "1.0.0", "SOJOURN_RELEASE"},
		{"VERSION before package.json", both, unset, "2.0.0", "VERSION"},
		{
			"package.json without VERSION",
			map[string]string{"package.json": both["package.json"]},
			unset, "3.0.0",
			"package.json",
		},
		{
			"empty VERSION says nothing",
			map[string]string{"VERSION": "\n", "package.json": both["package.json"]},
			unset,
			"3.0.0", "package.json",
		},
		{"VERSION of several words says nothing", map[string]string{"VERSION": "one two"}, unset, "4.0.0", "build stamp"},
		{
			"a long VERSION says nothing", map[string]string{"VERSION": strings.Repeat("1", 129)}, unset, "4.0.0", "build stamp",
		},
		{"VERSION that is a directory", map[string]string{"VERSION/x": "2.0.0"}, unset, "4.0.0", "build stamp"},
		{"VERSION beyond ASCII", map[string]string{"VERSION": "2.0.0\u00e4"}, unset, "4.0.0", "build stamp"},
		{"byte order mark and line ends", map[string]string{"VERSION": "\ufeff2.0.0\r\n"}, unset, "2.0.0", "VERSION"},
		{"broken package.json", map[string]string{"package.json": `{"version":`}, unset, "4.0.0", "build stamp"},
		{"package.json without a version", map[string]string{"package.json": `{}`}, unset, "4.0.0", "build stamp"},
		{"stamp without files", nil, unset, "4.0.0", "build stamp"},
		{"embedded last", nil, Source{Embedded: "5.0.0\n"}, "5.0.0", "embedded VERSION"},
		{"blank setting says nothing", nil, Source{Setting: " ", Embedded: "5.0.0"}, "5.0.0", "embedded VERSION"},
		{"nothing", nil, Source{}, Unreadable, "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.s.Root = write(t, c.files)
			got, from := Current(c.s)
			if got != c.want || strings.TrimPrefix(from, c.s.Root+string(filepath.Separator)) != c.from {
				t.Errorf("got %s from %s, want %s from %s", got, from, c.want, c.from)
			}
		})
	}
}

func TestNoRootDoesNotMeanTheWorkingDirectory(t *testing.T) {
	t.Chdir(write(t, map[string]string{"VERSION": "9.9.9", "ecosystem.config.js": ""}))
	if got, from := Current(Source{Stamp: "4.0.0"}); got != "4.0.0" {
		t.Errorf("got %s from %s", got, from)
	}
	t.Setenv(Variable, "")
	if got, from := Current(System()); got == "9.9.9" {
		t.Errorf("this process: got %s from %s", got, from)
	}
}

func TestDeployRootIsWhereTheEcosystemFileLies(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		exe   string
		want  string
	}{
		{"beside the executable", []string{"ecosystem.config.js"}, "sojourn", "."},
		{"above bin", []string{"ecosystem.config.js"}, "bin/sojourn", "."},
		{"the nearest of two", []string{"ecosystem.config.js", "app/ecosystem.config.js"}, "app/bin/sojourn", "app"},
		{"three above", []string{"ecosystem.config.js"}, "a/b/c/sojourn", "."},
		{"four above is too far", []string{"ecosystem.config.js"}, "a/b/c/d/sojourn", "a/b/c/d"},
		{"none", nil, "bin/sojourn", "bin"},
		{"a directory of that name does not count", []string{"ecosystem.config.js/x"}, "bin/sojourn", "bin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{}
			for _, name := range c.files {
				files[name] = ""
			}
			// Deep enough that nothing outside the test is looked at.
			root := filepath.Join(t.TempDir(), "x", "y", "z")
			if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(write(t, files), root); err != nil {
				t.Fatal(err)
			}
			if got := DeployRoot(filepath.Join(root, c.exe)); got != filepath.Join(root, c.want) {
				t.Errorf("got %s, want %s", got, filepath.Join(root, c.want))
			}
		})
	}
}

func TestSystemReadsTheEnvironmentTheStampAndTheEmbeddedText(t *testing.T) {
	defer func(stamp, embedded string) { Stamp, Embedded = stamp, embedded }(Stamp, Embedded)
	Stamp, Embedded = "4.0.0", "5.0.0\n"
	t.Setenv(Variable, "1.0.0")
	if got, from := Current(System()); got != "1.0.0" || from != Variable {
		t.Errorf("with the variable: got %s from %s", got, from)
	}
	t.Setenv(Variable, "")
	if got, from := Current(System()); got != "4.0.0" || from != "build stamp" {
		t.Errorf("without: got %s from %s", got, from)
	}
}

func TestTheEmbeddedReleaseIsThatOfTheVersionFile(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(string(raw)); Embedded != want {
		t.Errorf("Embedded is %q, VERSION says %q", Embedded, want)
	}
}
