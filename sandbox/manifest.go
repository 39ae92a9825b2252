package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// manifest describes the packages that the handlers of one runtime need, from the files in their folder.
type manifest struct {
	root   string   // the folder of handlers
	files  []string // relative to root, the main manifest first; empty: no packages are needed
	local  []string // relative to root, files of packages that are named by a path
	locked bool     // each package has an exact version
	own    bool     // a user installed the packages: node_modules exists in the folder or above
	builds string   // the first Python requirement that needs a build; empty: none
	err    error    // unsupported requirement
	hash   string   // of the files with their names, including local packages; empty: no packages are needed
	stamps map[string]fileStamp
	absent []string // missing files that would be used if they existed

	contents [][]byte // contents of files
}

// lockFiles are npm's lock files in order of precedence.
var lockFiles = []string{"npm-shrinkwrap.json", "package-lock.json"}

// readManifest reads the manifest of a runtime from the files directly in the handlers' folder.
func readManifest(root, runtime string) (manifest, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return manifest{}, err
	}
	m := manifest{root: root, stamps: map[string]fileStamp{}}
	needed := false
	switch runtime {
	case RuntimeNode:
		needed, err = m.readNode()
	case RuntimePython:
		needed, err = m.readPython()
	}
	if err != nil {
		return m, err
	}
	if !needed {
		m.files, m.contents, m.local = nil, nil, nil
		return m, nil
	}
	sum := sha256.New()
	for i, name := range m.files {
		fmt.Fprintf(sum, "%q %d\n", filepath.ToSlash(name), len(m.contents[i]))
		sum.Write(bytes.ReplaceAll(m.contents[i], []byte("\r\n"), []byte("\n")))
	}
	m.contents = nil
	for _, name := range m.local {
		code, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return m, err
		}
		fmt.Fprintf(sum, "%q %d\n", filepath.ToSlash(name), len(code))
		sum.Write(code)
	}
	m.hash = hex.EncodeToString(sum.Sum(nil)[:16])
	return m, nil
}

// read adds a file to the manifest; nil if it does not exist.
func (m *manifest) read(name string) ([]byte, error) {
	path := filepath.Join(m.root, name)
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		m.absent = append(m.absent, path)
		return nil, nil //nolint:nilerr // that it is absent is what is noted
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m.files, m.contents = append(m.files, name), append(m.contents, raw)
	m.stamps[path] = stampOf(info)
	return raw, nil
}

func (m *manifest) readNode() (needed bool, err error) {
	raw, err := m.read("package.json")
	if err != nil || raw == nil {
		return false, err
	}
	var named struct {
		Dependencies         map[string]any `json:"dependencies"`
		OptionalDependencies map[string]any `json:"optionalDependencies"`
	}
	if json.Unmarshal(raw, &named) != nil {
		return true, nil //nolint:nilerr // npm says best what is wrong with it
	}
	if len(named.Dependencies)+len(named.OptionalDependencies) == 0 {
		return false, nil
	}
	for _, name := range append(slices.Clone(lockFiles), ".npmrc") {
		raw, err := m.read(name)
		if err != nil {
			return false, err
		}
		m.locked = m.locked || raw != nil && name != ".npmrc"
	}
	m.own = m.installedByUser(named.Dependencies)
	for _, version := range named.Dependencies {
		if path, ok := strings.CutPrefix(fmt.Sprint(version), "file:"); ok && !m.own {
			if err := m.addLocal(path); err != nil {
				return false, err
			}
		}
	}
	slices.Sort(m.local)
	return true, nil
}

// installedByUser reports whether a user ran npm in the folder of the handlers, or in parent folders that have all the
// packages they need.
func (m *manifest) installedByUser(names map[string]any) bool {
	if isFolder(filepath.Join(m.root, "node_modules")) {
		return true
	}
	for name := range names {
		found := false
		for dir := filepath.Dir(m.root); !found; dir = filepath.Dir(dir) {
			found = filepath.IsLocal(name) && isFolder(filepath.Join(dir, "node_modules", name))
			if dir == filepath.Dir(dir) {
				break
			}
		}
		if !found {
			return false
		}
	}
	return len(names) > 0
}

// addLocal adds a package that is named by its path, a file or a folder, to the manifest.
func (m *manifest) addLocal(name string) error {
	name = filepath.Clean(filepath.FromSlash(strings.TrimPrefix(name, "//")))
	if !filepath.IsLocal(name) || name == "." {
		m.err = fmt.Errorf("%s is outside the handlers' folder; a local package must be inside it", name)
		return nil
	}
	return filepath.WalkDir(filepath.Join(m.root, name), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			m.absent = append(m.absent, path)
			return nil // the installer reports the error
		}
		if err != nil {
			return err
		}
		if d.IsDir() && (slices.Contains(packageFolders, d.Name()) || d.Name() == ".git") {
			return fs.SkipDir
		}
		if len(m.stamps) >= maxGraph {
			m.err = fmt.Errorf("%s has too many files to check at each call; pack it into an archive", name)
			return fs.SkipAll
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		m.stamps[path] = stampOf(info)
		if info.Mode().IsRegular() {
			rel, err := filepath.Rel(m.root, path)
			if err != nil {
				return err
			}
			m.local = append(m.local, rel)
		}
		return nil
	})
}

func (m *manifest) readPython() (needed bool, err error) {
	for todo := []string{"requirements.txt"}; len(todo) > 0 && len(m.stamps) < maxGraph; todo = todo[1:] {
		if _, seen := m.stamps[filepath.Join(m.root, todo[0])]; seen {
			continue
		}
		raw, err := m.read(todo[0])
		if err != nil {
			return false, err
		}
		for line := range bytes.Lines(raw) {
			text := string(line)
			if also := otherRequirements.FindStringSubmatch(text); also != nil {
				if name := filepath.FromSlash(also[1]); filepath.IsLocal(name) {
					todo = append(todo, filepath.Join(filepath.Dir(todo[0]), name))
				}
				continue
			}
			found := requirement.FindStringSubmatch(text)
			if found == nil {
				continue
			}
			needed = true
			editable, what := found[1] != "", found[2]
			if _, url, ok := strings.Cut(text, "@"); ok && !editable { // NAME @ URL
				if words := strings.Fields(url); len(words) > 0 && strings.Contains(words[0], "://") {
					what = words[0]
				}
			}
			path, _, _ := strings.Cut(strings.TrimPrefix(what, "file:"), "#")
			if !editable && !strings.ContainsAny(path, `/\`) && !strings.HasSuffix(path, ".whl") {
				continue // a name, for which an index has wheels
			}
			if m.builds == "" && (editable || !strings.HasSuffix(path, ".whl")) {
				m.builds = strings.TrimSpace(text)
			}
			if !strings.Contains(path, "://") && filepath.IsLocal(path) {
				if err := m.addLocal(path); err != nil {
					return false, err
				}
			}
		}
	}
	slices.Sort(m.local)
	return needed, nil
}

var (
	requirement       = regexp.MustCompile(`^[ \t]*(?:(-e|--editable)[ \t=]+)?([A-Za-z0-9./\\][^\s;]*)`)
	otherRequirements = regexp.MustCompile(`^[ \t]*(?:-[rc]|--requirement|--constraint)[ \t=]+([^\s#]+)`)
)
