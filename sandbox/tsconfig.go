package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
)

// tsconfigName is the file in which editors and compilers find the settings of TypeScript.
const tsconfigName = "tsconfig.json"

// maxExtends is the maximum length of a chain of files that extend each other.
const maxExtends = 8

// tsSettings are the settings of a tsconfig.json that change the behaviour of code: the resolution of imports, and the
// compilation of JSX and classes.
type tsSettings struct {
	files []string                   // files that it was read from
	raw   map[string]json.RawMessage // options for the compiler
	base  string                     // folder in which imports without a folder are also resolved; empty: none
	from  string                     // folder to which the targets in paths are relative
	paths map[string][]string        // targets of imports, by pattern
}

// compilerOptions lists the compiler options of tsconfig.json that are passed to the compiler.
var compilerOptions = []string{
	"jsx", "jsxFactory", "jsxFragmentFactory", "jsxImportSource", "experimentalDecorators", "useDefineForClassFields",
	"target", "verbatimModuleSyntax", "strict", "alwaysStrict",
}

// compiler returns the options for the compiler as JSON, and whether they configure JSX.
func (s *tsSettings) compiler() (raw string, markup bool) {
	text, _ := json.Marshal(map[string]any{"compilerOptions": s.raw}) // cannot fail: raw was decoded from JSON
	_, markup = s.raw["jsx"]
	return string(text), markup
}

// leads returns the paths in the folder to which an import by name may resolve, in order.
func (s *tsSettings) leads(name string) (places []string) {
	best, rest, targets := -1, "", []string(nil)
	for pattern, to := range s.paths {
		before, after, star := strings.Cut(pattern, "*")
		switch {
		case !star && pattern == name:
			best, rest, targets = len(name)+1, "", to
		case star && len(name) >= len(before)+len(after) && strings.HasPrefix(name, before) &&
			strings.HasSuffix(name, after) && len(before) > best:
			best, rest, targets = len(before), name[len(before):len(name)-len(after)], to
		}
	}
	for _, t := range targets {
		places = append(places, filepath.Join(s.from, filepath.FromSlash(strings.Replace(t, "*", rest, 1))))
	}
	if s.base != "" {
		places = append(places, filepath.Join(s.base, filepath.FromSlash(name)))
	}
	return places
}

// readSettings reads the nearest tsconfig.json of a file within the folder root, and the files of the folder that it
// extends. absent lists the paths where a nearer one would be. It reads no files outside of the folder, because it runs
// in the worker with the worker's rights.
func readSettings(root, path string) (s tsSettings, absent []string, err error) {
	s.raw = map[string]json.RawMessage{}
	for dir := filepath.Dir(path); isWithin(root, dir); dir = filepath.Dir(dir) {
		file := filepath.Join(dir, tsconfigName)
		if _, there := os.Stat(file); there == nil {
			return s, absent, s.read(root, file, maxExtends)
		}
		absent = append(absent, file)
	}
	return s, absent, nil
}

// isWithin reports whether a path, with links resolved, is root or below it.
func isWithin(root, path string) bool {
	real, err := filepath.EvalSymlinks(path)
	return err == nil && lockdown.Below(real, root)
}

// read merges one file into s. Settings of the files that extend it have precedence.
func (s *tsSettings) read(root, file string, more int) error {
	if !isWithin(root, file) || more == 0 {
		return nil
	}
	text, err := readCode(file)
	if err != nil {
		return err
	}
	s.files = append(s.files, file)
	var c struct {
		Extends json.RawMessage            `json:"extends"`
		Options map[string]json.RawMessage `json:"compilerOptions"`
	}
	if err := json.Unmarshal(plainJSON(text), &c); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	dir := filepath.Dir(file)
	for _, name := range compilerOptions {
		if v, there := c.Options[name]; there && s.raw[name] == nil && string(v) != `"preserve"` {
			s.raw[name] = v
		}
	}
	var base string
	if json.Unmarshal(c.Options["baseUrl"], &base) == nil && s.base == "" && base != "" {
		s.base = filepath.Join(dir, filepath.FromSlash(base))
	}
	var paths map[string][]string
	if raw := c.Options["paths"]; raw != nil && s.paths == nil {
		if err := json.Unmarshal(raw, &paths); err != nil {
			return fmt.Errorf("%s: paths: %w", file, err)
		}
		if s.paths, s.from = paths, s.base; s.from == "" {
			s.from = dir
		}
	}
	for _, name := range names(c.Extends) {
		if !strings.HasPrefix(name, "./") && !strings.HasPrefix(name, "../") {
			continue // the settings of a package, which do not affect a handler's imports
		}
		next := filepath.Join(dir, filepath.FromSlash(name))
		if filepath.Ext(next) != ".json" {
			next += ".json"
		}
		if err := s.read(root, next, more-1); err != nil {
			return err
		}
	}
	return nil
}

// names returns the names of a JSON string, or of a list of strings in which the last one has precedence.
func names(raw json.RawMessage) (all []string) {
	var one string
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return []string{one}
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		for i := len(list) - 1; i >= 0; i-- {
			all = append(all, list[i])
		}
	}
	return all
}

// plainJSON replaces comments and trailing commas of a settings file by spaces, so that offsets stay the same.
func plainJSON(text []byte) []byte {
	out := append([]byte(nil), text...)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	comma := -1
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
			comma = -1
		case c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			from, end := i, "\n"
			if out[i+1] == '*' {
				end = "*/"
			}
			if n := strings.Index(string(out[i+2:]), end); n < 0 {
				i = len(out)
			} else if i += 2 + n; end == "*/" {
				i += 2
			}
			blank(from, min(i, len(out)))
			i--
		case c == ',':
			comma = i
		case (c == '}' || c == ']') && comma >= 0:
			out[comma], comma = ' ', -1
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			comma = -1
		}
	}
	return out
}
