package sojourn_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tracked yields the name and content of every file in the Git index that matches pattern, which also matches files in
// subdirectories.
func tracked(t *testing.T, pattern string) iter.Seq2[string, string] {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--", pattern).Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	return func(yield func(string, string) bool) {
		for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
			raw, err := os.ReadFile(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed, and not committed yet
			}
			if err != nil {
				t.Fatal(err)
			}
			if !yield(name, string(raw)) {
				return
			}
		}
	}
}

// trackedCode yields the Go files in the Git index except tests.
func trackedCode(t *testing.T) iter.Seq2[string, string] {
	t.Helper()
	return func(yield func(string, string) bool) {
		for name, text := range tracked(t, "*.go") {
			if !strings.HasSuffix(name, "_test.go") && !yield(name, text) {
				return
			}
		}
	}
}

// goFile is a parsed Go file without its comments.
type goFile struct {
	*ast.File
	fset *token.FileSet
}

// at returns the position of a node.
func (f goFile) at(n ast.Node) token.Position { return f.fset.Position(n.Pos()) }

// parse parses src, or the named file if src is nil.
func parse(name string, src any) (goFile, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	return goFile{file, fset}, err
}

// parsed yields the Go files of a package except tests.
func (p pkg) parsed(t *testing.T) iter.Seq[goFile] {
	t.Helper()
	return func(yield func(goFile) bool) {
		for _, f := range slices.Concat(p.GoFiles, p.CgoFiles) {
			file, err := parse(filepath.Join(p.Dir, f), nil)
			if err != nil {
				t.Fatal(err)
			}
			if !yield(file) {
				return
			}
		}
	}
}
