package sojourn_test

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// wireWords are names of package protocol that only the two ends of a socket may use. Other packages use the tasks,
// leases and methods of protocol.WorkerVerbs.
var wireWords = regexp.MustCompile(`^(Job|ChannelPoll|ChannelComplete|TaskToken|ParseToken)`)

// ends are the two ends of a socket: a package, and a file.
func isEnd(pkg, file string) bool {
	return pkg == "app/internal/channel" || pkg == "internal/link" && file == "socket.go"
}

// In one process, workers call the app directly, without method names, encoding and parsing. Only the ends of a socket
// may use the names of the wire protocol and the table of methods.
func TestOnlyTheEndsOfASocketUseWireNames(t *testing.T) {
	atEnds := 0
	for _, p := range list(t) {
		if p.name() == "shared/protocol" || p.name() == "internal/rpc" {
			continue
		}
		for _, f := range p.GoFiles {
			found, err := wireWordsIn(filepath.Join(p.Dir, f), nil)
			if err != nil {
				t.Error(err)
			}
			if isEnd(p.name(), f) {
				atEnds += len(found)
				continue
			}
			for _, word := range found {
				t.Errorf("%s: a word of the socket, which its two ends alone should know", word)
			}
		}
	}
	if atEnds < 20 {
		t.Errorf("the ends of a socket say %d of its words: this test looks for others", atEnds)
	}
	for src, want := range map[string]int{
		`package x; import "` + module + `/shared/protocol"; var a protocol.JobLock; var b protocol.PollResponse`:    1,
		`package x; import "` + module + `/internal/rpc"; var a rpc.Handlers`:                                        1,
		`package x; import "` + module + `/shared/protocol"; func f(t string) { protocol.ParseToken(t) }`:            1,
		`package x; import "` + module + `/shared/protocol"; var _ protocol.WorkerVerbs; var _ protocol.ChannelAuth`: 0,
	} {
		if found, err := wireWordsIn("x.go", src); err != nil || len(found) != want {
			t.Errorf("%s: found %q, %v, want %d", src, found, err, want)
		}
	}
}

// wireWordsIn lists the uses of these names, and of the method table, in a Go source.
func wireWordsIn(name string, src any) (found []string, err error) {
	file, err := parse(name, src)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(file.Imports, func(i *ast.ImportSpec) bool {
		return i.Path.Value == strconv.Quote(module+"/internal/rpc")
	}); i >= 0 {
		found = append(found, file.at(file.Imports[i]).String()+" imports internal/rpc")
	}
	ast.Inspect(file.File, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && wireWords.MatchString(s.Sel.Name) {
			if of, ok := s.X.(*ast.Ident); ok && of.Name == "protocol" {
				found = append(found, file.at(s).String()+" protocol."+s.Sel.Name)
			}
		}
		return true
	})
	return found, nil
}

// bare are verbs that need an object in the name of a function; riddles are words that are not terms of the field.
var (
	bare    = []string{"settle", "take", "open", "end"}
	riddles = regexp.MustCompile(`(?i)(bygone|glance|^grip|keeper$|^spaces$|^(house|town|world|scene|hand|laws|told|said)$)`)
)

// A stranger reads names before anything else.
func TestNamesOfFunctionsAndTypesAreSearchable(t *testing.T) {
	names := 0
	check := func(at token.Position, name string, function bool) {
		names++
		if function && slices.Contains(bare, name) {
			t.Errorf("%s: %s what?", at, name)
		}
		if riddles.MatchString(name) {
			t.Errorf("%s: %s is a word of no field", at, name)
		}
	}
	for _, p := range list(t) {
		for file := range p.parsed(t) {
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					check(file.at(d), d.Name.Name, true)
				case *ast.GenDecl:
					for _, s := range d.Specs {
						if s, ok := s.(*ast.TypeSpec); ok {
							check(file.at(s), s.Name.Name, false)
						}
					}
				}
			}
		}
	}
	if names < 5_000 {
		t.Errorf("%d names: this test looks for others", names)
	}
}
