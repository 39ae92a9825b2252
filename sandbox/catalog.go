package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// ErrNotFound is wrapped by errors about unknown handlers.
var ErrNotFound = errors.New("no such handler")

// Definition is a handler found in a folder.
type Definition struct {
	Name    string `json:"name"` // name of the activity
	Path    string `json:"path"`
	Runtime string `json:"runtime"`
	Format  string `json:"format"` // js, mjs, cjs, ts, tsx, mts, cts, py
	Hash    string `json:"hash"`   // version of the file and of the files of the folder that it imports
}

// maxCode is the maximum size of a handler's file in bytes; the file is sent in one frame.
const maxCode = 2 << 20

var handlerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

var runtimeOf = map[string]string{
	"js": RuntimeNode, "mjs": RuntimeNode, "cjs": RuntimeNode,
	"ts": RuntimeNode, "tsx": RuntimeNode, "mts": RuntimeNode, "cts": RuntimeNode, "py": RuntimePython,
}

// SessionPrefix precedes the name of a session definition, a file NAME.session.js (.ts, .py, …) with functions that set
// sessions up and tear them down. It distinguishes the definition from the activity NAME.
const SessionPrefix = "session:"

// sessionSuffix is the end of the name of such a file, without its extension.
const sessionSuffix = ".session"

// defines returns the name of the handler that a file defines, without reading the file.
func define(dir, path string) (Definition, bool) {
	ext := strings.TrimPrefix(filepath.Ext(path), ".")
	rel, err := filepath.Rel(dir, path)
	if err != nil || runtimeOf[ext] == "" {
		return Definition{}, false
	}
	name, session := strings.CutSuffix(strings.TrimSuffix(filepath.ToSlash(rel), "."+ext), sessionSuffix)
	prefix := ""
	if session {
		prefix = SessionPrefix
	}
	parts := strings.Split(name, "/")
	for _, p := range parts {
		if !handlerName.MatchString(p) {
			return Definition{}, false
		}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return Definition{}, false
	}
	return Definition{Name: prefix + strings.Join(parts, "."), Path: absolute, Runtime: runtimeOf[ext], Format: ext}, true
}

func readCode(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxCode {
		return nil, fmt.Errorf("%s: %d bytes of code exceed %d", path, info.Size(), maxCode)
	}
	return os.ReadFile(path)
}

// hashOf returns the first half of the SHA-256 of code, in hexadecimal.
func hashOf(code []byte) string {
	sum := sha256.Sum256(code)
	return hex.EncodeToString(sum[:16])
}

// bundle is a handler with its code.
type bundle struct {
	Definition
	*graph

	reading chan struct{}     // has one value while a call reads the handler's exports; guards exports
	exports map[string][]byte // by name, as JSON; nil: the file exports no value of this name
}

// catalog finds handlers by name and detects changes of their files.
type catalog struct {
	dir string

	mu    sync.Mutex // guards known
	known map[string]*bundle
}

// find returns the handler with its current files. A call costs one stat of each file as long as they are unchanged.
func (c *catalog) find(name string) (*bundle, error) {
	if c.dir == "" {
		return nil, fmt.Errorf("%q: %w", name, ErrNotFound)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.known[name]; b != nil {
		if b.fresh() {
			return b, nil
		}
		delete(c.known, name)
	}
	of, session := strings.CutPrefix(name, SessionPrefix)
	base := filepath.Join(append([]string{c.dir}, strings.Split(of, ".")...)...)
	if session {
		base += sessionSuffix
	}
	for _, ext := range []string{"mjs", "js", "cjs", "ts", "tsx", "mts", "cts", "py"} {
		def, ok := define(c.dir, base+"."+ext)
		if !ok || def.Name != name {
			continue
		}
		g, err := traceImports(c.dir, def.Path, def.Runtime)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("handler %s: %w", name, err)
		}
		def.Hash = g.version(def.Path)
		b := &bundle{Definition: def, graph: g, reading: make(chan struct{}, 1)}
		c.known[name] = b
		return b, nil
	}
	return nil, fmt.Errorf("%q in %s: %w", name, c.dir, ErrNotFound)
}
