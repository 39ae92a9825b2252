package release

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// Variable is the environment variable that overrides every other source.
const Variable = "SOJOURN_RELEASE"

// Stamp is the release that the linker sets:
//
//	go build -ldflags "-X github.com/sojourn-run/sojourn/internal/release.Stamp=1.2.3"
var Stamp string

// Embedded is the content of the repository's VERSION file, so that a user's binary has the release from which it was
// built. A test compares the two.
var Embedded = "0.1.0"

// FromEmbedded is the source that Current returns when the program has no release and Sojourn's release is used.
const FromEmbedded = "embedded VERSION"

// Source has the places where a release is searched. The zero value has none; System returns those of this process.
type Source struct {
	Setting  string // SOJOURN_RELEASE, or the setting of that name
	Root     string // the deploy root, see DeployRoot; "" means none
	Stamp    string
	Embedded string
}

// System returns the source of the running program, for app and worker alike.
func System() Source {
	s := Source{Setting: os.Getenv(Variable), Stamp: Stamp, Embedded: Embedded}
	if exe, err := os.Executable(); err == nil {
		s.Root = DeployRoot(exe)
	}
	return s
}

// levels is the number of parent directories of the executable's directory that are searched for ecosystem.config.js,
// which covers layouts such as bin/ and dist/bin/. A wider search could find the file of another program.
const levels = 3

// DeployRoot returns the directory of ecosystem.config.js: the executable's directory or one of its three nearest
// parents. If there is no such file, it returns the executable's directory. It ignores the working directory, which
// differs between process supervisors and shells.
func DeployRoot(executable string) string {
	own := filepath.Dir(executable)
	dir := own
	for range levels + 1 {
		if info, err := os.Stat(filepath.Join(dir, "ecosystem.config.js")); err == nil && info.Mode().IsRegular() {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	return own
}

// Current returns the release and its source: the first of the setting, VERSION and package.json at the deploy root,
// the build stamp and the embedded VERSION that has a value. A source that is missing, empty or not one short word has
// no value. If none has a value, the release is Unreadable, from "none".
func Current(s Source) (release, from string) {
	for _, source := range []struct {
		from string
		read func() string
	}{
		{Variable, func() string { return s.Setting }},
		{filepath.Join(s.Root, "VERSION"), func() string { return string(s.file("VERSION")) }},
		{filepath.Join(s.Root, "package.json"), func() string { return packageVersion(s.file("package.json")) }},
		{"build stamp", func() string { return s.Stamp }},
		{FromEmbedded, func() string { return s.Embedded }},
	} {
		if release, ok := clean(source.read()); ok {
			return release, source.from
		}
	}
	return Unreadable, "none"
}

// file reads a small file at the deploy root; nil if it cannot be read.
func (s Source) file(name string) []byte {
	if s.Root == "" {
		return nil
	}
	path := filepath.Join(s.Root, name)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
		return nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return raw
}

func packageVersion(raw []byte) string {
	var manifest struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return ""
	}
	return manifest.Version
}

// clean trims a release and reports whether it is valid: up to 128 printable ASCII characters without a space, since it
// is sent in a header.
func clean(text string) (string, bool) {
	text = strings.TrimSpace(strings.TrimPrefix(text, "\ufeff"))
	if text == "" || len(text) > 128 {
		return "", false
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return "", false
		}
	}
	return text, true
}
