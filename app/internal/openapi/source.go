package openapi

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const module = "github.com/sojourn-run/sojourn/"

// source provides information that reflection does not have: the comments of types and members, and the values of enum
// types.
type source struct {
	root     string // the directory of the module
	read     map[string]bool
	comments map[string]string   // PACKAGE.TYPE and PACKAGE.TYPE.FIELD
	values   map[string][]string // PACKAGE.TYPE → its constants, in their order
}

func newSource(root string) *source {
	return &source{root: root, read: map[string]bool{}, comments: map[string]string{}, values: map[string][]string{}}
}

// load reads the comments and constants of the package of a type, once per package. It ignores packages of other
// modules.
func (s *source) load(t reflect.Type) error {
	pkg := t.PkgPath()
	if s.read[pkg] || !strings.HasPrefix(pkg, module) {
		return nil
	}
	s.read[pkg] = true
	files, err := filepath.Glob(filepath.Join(s.root, strings.TrimPrefix(pkg, module), "*.go"))
	if err == nil && len(files) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return fmt.Errorf("source of %s: %w", pkg, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				s.declared(pkg, g)
			}
		}
	}
	return nil
}

func (s *source) declared(pkg string, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			name := pkg + "." + spec.Name.Name
			s.comments[name] = firstComment(spec.Doc, g.Doc)
			if st, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					for _, n := range f.Names {
						s.comments[name+"."+n.Name] = firstComment(f.Doc, f.Comment)
					}
				}
			}
		case *ast.ValueSpec:
			s.constants(pkg, g, spec)
		}
	}
}

// constants collects the values of constants whose type is declared in their package.
func (s *source) constants(pkg string, g *ast.GenDecl, spec *ast.ValueSpec) {
	of, ok := spec.Type.(*ast.Ident)
	if g.Tok != token.CONST || !ok {
		return
	}
	for _, v := range spec.Values {
		if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				s.values[pkg+"."+of.Name] = append(s.values[pkg+"."+of.Name], text)
			}
		}
	}
}

// firstComment returns the first non-empty comment as one paragraph.
func firstComment(groups ...*ast.CommentGroup) string {
	for _, g := range groups {
		if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
			return text
		}
	}
	return ""
}

// aboutType returns the comment of a type as a description: without the leading Go name, and with JSON names of
// members.
func (s *source) aboutType(t reflect.Type) string {
	if s.load(t) != nil {
		return ""
	}
	about := s.comments[t.PkgPath()+"."+t.Name()]
	if t.Kind() == reflect.Struct {
		about = jsonNames(about, t)
	}
	return withoutSubject(about, t.Name())
}

// jsonNames replaces the Go names of a struct's fields by their JSON names. A name of one word is only replaced within
// a sentence, since it may be a plain word at the beginning.
func jsonNames(about string, t reflect.Type) string {
	for _, f := range reflect.VisibleFields(t) {
		member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case member == "" || !f.IsExported():
		case severalWords.MatchString(f.Name):
			about = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(about, member)
		default:
			about = regexp.MustCompile(`([a-z,] )`+f.Name+`\b`).ReplaceAllString(about, "${1}"+member)
		}
	}
	return about
}

// withoutSubject removes the name with which a Go comment begins, and its verb: "Budget is the …" becomes "The …".
func withoutSubject(about, name string) string {
	rest, named := strings.CutPrefix(about, name+": ")
	if !named {
		rest, named = strings.CutPrefix(about, name+" ")
	}
	if !named || strings.HasPrefix(rest, "and ") {
		return about
	}
	for _, verb := range []string{"is ", "are ", "has ", "contains "} {
		if predicate, ok := strings.CutPrefix(rest, verb); ok {
			rest = predicate
			break
		}
	}
	first, size := utf8.DecodeRuneInString(rest)
	return string(unicode.ToUpper(first)) + rest[size:]
}

var severalWords = regexp.MustCompile(`^[A-Z][a-z]+[A-Z]|^[A-Z]+[A-Z][a-z]`)

// aboutField returns the comment of a member of t, which may be declared in an embedded struct of t.
func (s *source) aboutField(t reflect.Type, name string) string {
	whole := t
	f, ok := t.FieldByName(name)
	if !ok {
		return ""
	}
	for _, i := range f.Index[:len(f.Index)-1] {
		if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if s.load(t) != nil {
			return ""
		}
	}
	return jsonNames(withoutSubject(s.comments[t.PkgPath()+"."+t.Name()+"."+name], name), whole)
}
