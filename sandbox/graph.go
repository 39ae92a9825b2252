package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxGraph is the maximum number of files of a handler, including its imports from its folder. Further files are
// ignored.
const maxGraph = 500

// maxVersions is the maximum total length of the names of a handler's files in bytes, out of 64 KiB of a frame's
// header.
const maxVersions = 48 << 10

// graph consists of a handler's file and the files of its folder that it imports, directly or indirectly. It lists
// imported packages but not their files.
type graph struct {
	entry  string
	code   []byte               // code of the entry; for TypeScript all files as one module
	single bool                 // outside sessions, each call of the handler gets a new executor
	own    map[string]string    // hash of each file's content, by path
	to     map[string][]string  // imports of each file
	stamps map[string]fileStamp // state of each file when it was read
	absent []string             // paths at which no file exists, although an import would resolve there first
	// packages that the handler's folder requires for handlers of its runtime
	packages manifest
	checked  []stampedPath // stamps in the form that fresh compares; nil before the first use
	// folders in which files of absent could appear; nil: not known. They are checked instead of each file, because
	// most imports are modules of the runtime, for which no file exists
	folders []stampedPath
}

// fileStamp detects changes of a file.
type fileStamp struct {
	size    int64
	changed int64 // modification time in nanoseconds
}

func stampOf(info os.FileInfo) fileStamp { return fileStamp{info.Size(), info.ModTime().UnixNano()} }

func stampAt(path string) (fileStamp, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}, false
	}
	return stampOf(info), true
}

// stampedPath is the state of a file or folder when it was last checked.
type stampedPath struct {
	place place
	stamp fileStamp
}

// unchanged reports whether all files and folders in the list are unchanged.
func unchanged(all []stampedPath) bool {
	for i := range all {
		if now, there := all[i].place.stat(); !there || now != all[i].stamp {
			return false
		}
	}
	return true
}

// traceImports reads a handler's file and follows its imports. root is the folder of handlers.
func traceImports(root, path, runtime string) (*graph, error) {
	g, err := traceFiles(root, path, runtime)
	if err != nil {
		return nil, err
	}
	if g.packages, err = readManifest(root, runtime); err != nil {
		return nil, err
	}
	g.single = exportsFresh.Match(g.code)
	maps.Copy(g.stamps, g.packages.stamps)
	g.absent = append(g.absent, g.packages.absent...)
	return g, nil
}

// exportsFresh matches an export that requests a new executor for each call: `export const fresh = true`, also in the
// form that compilers write, or `fresh = True`. The file is read and not run, because the executor is chosen before
// code of the handler runs.
var exportsFresh = regexp.MustCompile(
	`(?m)^(?:export\s+)?(?:const|let|var)\s+fresh\s*=\s*true\b|^(?:module\.)?exports\.fresh\s*=\s*true\b|` +
		`^fresh\s*(?::\s*bool\s*)?=\s*True\b`,
)

func traceFiles(root, path, runtime string) (*graph, error) {
	if isTypescript(path) {
		return compile(root, path)
	}
	g := &graph{
		entry: path, own: map[string]string{}, to: map[string][]string{}, stamps: map[string]fileStamp{},
	}
	for todo := []string{path}; len(todo) > 0 && len(g.own) < maxGraph; todo = todo[1:] {
		file := todo[0]
		if _, seen := g.own[file]; seen {
			continue
		}
		info, err := os.Stat(file)
		var code []byte
		if err == nil {
			code, err = readCode(file)
		}
		if err != nil {
			if file == path {
				return nil, err
			}
			g.absent = append(g.absent, file) // it was removed after its import was resolved
			continue
		}
		g.own[file], g.stamps[file] = hashOf(code), stampOf(info)
		if file == path {
			g.code = code
		}
		found, absent := importsOf(filepath.Dir(path), file, runtime, code)
		g.to[file], g.absent = found, append(g.absent, absent...)
		todo = append(todo, found...)
	}
	return g, nil
}

// fresh reports whether every file is unchanged and the imports would resolve to the same files now. It costs one stat
// for each file and for each folder in which another match could appear. The caller must have exclusive access to the
// graph.
func (g *graph) fresh() bool {
	if g.checked == nil {
		for path, stamp := range g.stamps {
			g.checked = append(g.checked, stampedPath{placeAt(path), stamp})
		}
	}
	if !unchanged(g.checked) {
		return false
	}
	if g.folders != nil && unchanged(g.folders) { // no file was added or removed in them
		return true
	}
	g.recordFolders()
	return !slices.ContainsFunc(g.absent, isFile)
}

// settling is the time after a change of a folder in which another change may leave the modification time the same,
// because the clocks of file systems are coarse.
const settling = 50 * time.Millisecond

// recordFolders records the folders in which absent files could appear, before it searches for them; none if a folder
// was changed just now.
func (g *graph) recordFolders() {
	g.folders = []stampedPath{}
	noted := map[string]bool{}
	for _, path := range g.absent {
		for dir := filepath.Dir(path); !noted[dir]; dir = filepath.Dir(dir) {
			info, err := os.Stat(dir)
			if err == nil {
				if time.Since(info.ModTime()) < settling {
					g.folders = nil
					return
				}
				noted[dir] = true
				g.folders = append(g.folders, stampedPath{placeAt(dir), stampOf(info)})
			}
			if err == nil || dir == filepath.Dir(dir) {
				break
			}
		}
	}
}

// version returns the hash of a file and of the files that it imports, directly or indirectly. For the handler's file
// the hash also covers the packages that the handler's folder requires. It does not depend on the folder's location.
func (g *graph) version(path string) string {
	version := g.versionOfFiles(path)
	if path != g.entry || g.packages.hash == "" {
		return version
	}
	return hashOf([]byte(version + " " + g.packages.hash))
}

func (g *graph) versionOfFiles(path string) string {
	seen := map[string]bool{}
	for todo := []string{path}; len(todo) > 0; todo = todo[1:] {
		if g.own[todo[0]] != "" && !seen[todo[0]] {
			seen[todo[0]] = true
			todo = append(todo, g.to[todo[0]]...)
		}
	}
	if len(seen) == 1 {
		return g.own[path]
	}
	sum := sha256.New()
	_, _ = io.WriteString(sum, filepath.Base(path)+"\n") // in an import cycle, each file imports all others
	for _, file := range slices.Sorted(maps.Keys(seen)) {
		rel, _ := filepath.Rel(filepath.Dir(path), file)
		_, _ = io.WriteString(sum, fmt.Sprintf("%q %s\n", filepath.ToSlash(rel), g.own[file]))
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// versions returns the versions of all files except the entry, with which shims find loaded modules that have changed.
// It returns nil if there is no other file, if all code is bundled into one module, or if the list is too long.
func (g *graph) versions() map[string]string {
	if isTypescript(g.entry) {
		return nil
	}
	all, size := map[string]string{}, 0
	for path := range g.own {
		if path != g.entry {
			all[path] = g.version(path)
			size += 2*len(path) + 64
		}
	}
	if len(all) == 0 || size > maxVersions {
		return nil
	}
	return all
}

// importsOf returns the files that a file's code imports, and the paths where imports would resolve but no file exists.
// root is the folder of the handler, from which Python resolves imports.
func importsOf(root, path, runtime string, code []byte) (found, absent []string) {
	add := func(candidates ...string) {
		for i, c := range candidates {
			if isFile(c) {
				found = append(found, c)
				absent = append(absent, candidates[:i]...)
				return
			}
		}
		absent = append(absent, candidates...)
	}
	switch {
	case runtime == RuntimeNode && runtimeOf[strings.TrimPrefix(filepath.Ext(path), ".")] == RuntimeNode:
		for _, m := range nodeImport.FindAllSubmatch(code, -1) {
			at := filepath.Join(filepath.Dir(path), filepath.FromSlash(string(m[1])))
			add(at, at+".js", at+".json", filepath.Join(at, "index.js"))
		}
	case runtime == RuntimePython && filepath.Ext(path) == ".py":
		for _, name := range pythonImports(root, path, code) {
			add(name+".py", filepath.Join(name, "__init__.py"))
		}
	}
	return found, absent
}

var (
	nodeImport   = regexp.MustCompile(`(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire\s*\(\s*)['"](\.\.?/[^'"\n]+)['"]`)
	pythonImport = regexp.MustCompile(`(?m)^[ \t]*import[ \t]+([\w., \t]+)`)
	pythonFrom   = regexp.MustCompile(`(?m)^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]+)`)
	pythonName   = regexp.MustCompile(`[A-Za-z_]\w*`)
)

// pythonImports returns the paths, without extension, of the modules that Python code may import from the folder of its
// handler. For a.b it returns both a and a.b, and for an import from a package also each imported name, since the name
// may be a module. Modules of the standard library are included, although no such files exist.
func pythonImports(root, path string, code []byte) []string {
	var all []string
	add := func(base, dotted string) {
		for _, part := range strings.Split(dotted, ".") {
			if part == "" {
				return
			}
			base = filepath.Join(base, part)
			all = append(all, base)
		}
	}
	for _, m := range pythonImport.FindAllSubmatch(code, -1) {
		for _, one := range strings.Split(string(m[1]), ",") {
			if words := strings.Fields(one); len(words) > 0 {
				add(root, words[0])
			}
		}
	}
	for _, m := range pythonFrom.FindAllSubmatch(code, -1) {
		base := root
		if dots := len(m[1]); dots > 0 {
			for base = filepath.Dir(path); dots > 1; dots-- {
				base = filepath.Dir(base)
			}
		}
		add(base, string(m[2]))
		from := filepath.Join(base, filepath.Join(strings.Split(string(m[2]), ".")...))
		if info, err := os.Stat(from); err == nil && info.IsDir() {
			for _, name := range pythonName.FindAllString(string(m[3]), -1) {
				all = append(all, filepath.Join(from, name))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
