package sandbox

import (
	"bytes"
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

// Omission is a file or folder that looks like code but was not searched for a handler.
type Omission struct {
	Path string `json:"path"` // below the folder of handlers, with slashes
	Why  string `json:"why"`
}

// These are the reasons why a file or folder is ignored.
const (
	whyRuntime = "no runtime"
	whyName    = "not an activity's name"
	whyPackage = "a package"
	whyEnv     = "a virtual environment"
	whyFile    = "not a file"
)

// otherCode are extensions of programs that no executor runs; users may expect these files to be handlers.
var otherCode = []string{
	"jsx", "sh", "bash", "rb", "php", "pl", "lua", "r", "jl", "go", "rs", "java", "wasm", "exe",
}

// packageFolders are folders of package managers.
var packageFolders = []string{"node_modules", "site-packages", "dist-packages"}

// Discover lists the handlers in dir, sorted by name, and files that look like code and are ignored. A file NAME.js,
// .mjs, .cjs, .ts, .tsx, .mts, .cts or .py is the activity NAME; a file in a folder is the activity FOLDER.NAME. Names
// that begin with a dot or an underscore are skipped silently, so that handlers can share code, and so are node_modules
// and site-packages. Packages that were copied or installed elsewhere are ignored, and so are unreadable files. Two
// files with one name are an error.
func Discover(dir string) ([]Definition, []Omission, error) {
	var all []Definition
	var left []Omission
	installed := map[string]bool{} // paths that belong to installed packages
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		omit := func(why string) {
			rel, _ := filepath.Rel(dir, path)
			left = append(left, Omission{Path: filepath.ToSlash(rel), Why: why})
		}
		switch {
		case err != nil && path == dir:
			return err
		case err != nil: // an unreadable folder or file must not prevent the others from being served
			omit(unreadable(err))
			return nil
		}
		name := d.Name()
		if path != dir && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") ||
			slices.Contains(packageFolders, name) || installed[path]) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			if why := foreignFolder(path, path == dir); why != "" {
				omit(why)
				return fs.SkipDir
			}
			if err := installedIn(path, installed); err != nil {
				omit(unreadable(err))
			}
			return nil
		}
		def, ok := define(dir, path)
		if !ok {
			if why := whyNot(name, d); why != "" {
				omit(why)
			}
			return nil
		}
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // reading a pipe would not end
			omit(whyFile)
			return nil
		}
		g, err := traceImports(dir, def.Path, def.Runtime)
		if err != nil {
			omit(unreadable(err))
			return nil
		}
		def.Hash = g.version(def.Path)
		all = append(all, def)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("handlers in %s: %w", dir, err)
	}
	slices.SortFunc(all, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(all); i++ {
		if all[i].Name == all[i-1].Name {
			return nil, nil, fmt.Errorf(
				"handlers in %s: %s and %s are both named %s", dir, all[i-1].Path, all[i].Path, all[i].Name,
			)
		}
	}
	return all, left, nil
}

// unreadable returns why a file, or a file that it needs, could not be read, and names the latter.
func unreadable(err error) string {
	var of *fs.PathError
	if errors.As(err, &of) {
		return fmt.Sprintf("%s cannot be read: %v", filepath.Base(of.Path), of.Err)
	}
	return err.Error()
}

// whyNot returns why a file is not a handler, if users could expect that it is.
func whyNot(name string, d fs.DirEntry) string {
	ext := strings.TrimPrefix(filepath.Ext(name), ".")
	switch {
	case strings.HasSuffix(strings.TrimSuffix(name, filepath.Ext(name)), ".d"): // a file that contains only types
		return ""
	case runtimeOf[ext] != "":
		return whyName
	case slices.Contains(otherCode, strings.ToLower(ext)):
		return whyRuntime
	}
	if info, err := d.Info(); err == nil && ext == "" && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		return whyRuntime
	}
	return ""
}

// foreignFolder returns why a folder contains no handlers: it is a Python virtual environment or a copied package. The
// root folder of the handlers is never treated as a package, because handlers may have a package.json.
func foreignFolder(path string, root bool) string {
	if isFile(filepath.Join(path, "pyvenv.cfg")) {
		return whyEnv
	}
	if root {
		return ""
	}
	var manifest struct{ Name, Version string }
	raw, err := os.ReadFile(filepath.Join(path, "package.json"))
	if err == nil && json.Unmarshal(raw, &manifest) == nil && manifest.Name != "" && manifest.Version != "" {
		return whyPackage
	}
	if isFile(filepath.Join(path, "__init__.py")) && !definesMain(path) {
		return whyPackage
	}
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

var pythonMain = regexp.MustCompile(`(?m)^(async\s+def\s+main\b|def\s+main\b|main\s*=)`)

// definesMain reports whether a Python file in a folder defines main, which makes it a handler. It distinguishes
// packages from handler folders, to which editors may have added an __init__.py.
func definesMain(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".py" && !strings.HasPrefix(e.Name(), "_") {
			if code, err := readCode(filepath.Join(dir, e.Name())); err == nil && pythonMain.Match(code) {
				return true
			}
		}
	}
	return false
}

// installedIn records the files that `pip install --target` installed into a folder, from the lists that pip writes
// there.
func installedIn(dir string, installed map[string]bool) error {
	tree := os.DirFS(dir)
	records, err := fs.Glob(tree, "*.dist-info/RECORD")
	if err != nil {
		return err
	}
	for _, record := range records {
		raw, err := fs.ReadFile(tree, record)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(raw) {
			file, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(","))
			first, _, _ := strings.Cut(string(file), "/")
			if first != "" && first != ".." {
				installed[filepath.Join(dir, first)] = true
			}
		}
	}
	return nil
}
