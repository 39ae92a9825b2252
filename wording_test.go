package sojourn_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// idioms are phrases that engineers of this field do not use. The rules they break are in CONTRIBUTING.md.
var idioms = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	// Subjects without a noun.
	"who waits", "who asks",
	"who has", "who comes", "who may", "nobody", "somebody", "whoever", "those that", "that which",
	"what is left", "what it (has|had|holds|held|runs)", "what was (stored|said|told|asked)", "what comes",
	// Verbs that name no mechanism.
	"told", "tells? (it|them|the|a|of)", "said", "gave on", "give on", "gives? back", "goes on", "went on", "go on with",
	"stands? still", "stood still", "stands? in the way", "let go", "lets go", "bears? with", "takes? away", "taken away",
	"heard of", "hears? of", "learns? of", "looks? (it up|at it)", "a look", "sign of life", "signs of life",
	// Translated phrases.
	"for as long as", "so much as", "at home on", "as good as", "no more than", "for ever", "as ever", "until now",
	"of its own", "of their own", "by itself", "by themselves", "all the same", "what becomes of", "or not at all",
	"is over", "are over", "beside",
}, "|") + `)\b`)

// messages are the texts of log lines and help in one Go file, by position.
func messages(t *testing.T, name string) map[token.Position]string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[token.Position]string{}
	text := func(e ast.Expr) {
		ast.Inspect(e, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					found[fset.Position(lit.Pos())] = s
				}
			}
			return true
		})
	}
	flags := regexp.MustCompile(`^(Bool|String|Int|Int64|Duration|StringSlice|IntSlice)Var(P)?$`)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) > 0 {
				switch {
				case s.Sel.Name == "Msg" || s.Sel.Name == "Msgf":
					text(n.Args[0])
				case flags.MatchString(s.Sel.Name):
					text(n.Args[len(n.Args)-1])
				}
			}
		case *ast.KeyValueExpr: // of a command or a setting
			if k, ok := n.Key.(*ast.Ident); ok && (k.Name == "Short" || k.Name == "help") {
				text(n.Value)
			}
		}
		return true
	})
	return found
}

// sources are the Go files of the repository.
func sources(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

func TestLogLinesAndHelpUseTheTermsOfTheField(t *testing.T) {
	checked := 0
	for _, name := range sources(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for at, text := range messages(t, name) {
			checked++
			if m := idioms.FindString(text); m != "" {
				t.Errorf("%s: %q contains %q", at, text, m)
			}
		}
	}
	if checked < 400 {
		t.Errorf("only %d texts were checked", checked)
	}
}

var makesErrors = regexp.MustCompile(`^(errors\.New|fmt\.Errorf|\w+\.Refuse)$`)

// errorTexts are the texts of errors in one Go file, by position.
func errorTexts(t *testing.T, name string) map[token.Position]string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[token.Position]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := s.X.(*ast.Ident)
		if !ok || !makesErrors.MatchString(of.Name+"."+s.Sel.Name) {
			return true
		}
		for _, a := range call.Args {
			if lit, ok := a.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					found[fset.Position(lit.Pos())] = text
				}
			}
		}
		return true
	})
	return found
}

// mostErrors is the number of error texts with such phrases. It may only fall.
const mostErrors = 0

func TestErrorsUseTheTermsOfTheField(t *testing.T) {
	checked, bad := 0, 0
	for _, name := range sources(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for at, text := range errorTexts(t, name) {
			checked++
			if m := idioms.FindString(text); m != "" {
				bad++
				t.Logf("%s: %q contains %q", at, text, m)
			}
		}
	}
	if bad > mostErrors {
		t.Errorf("%d of %d error texts, at most %d", bad, checked, mostErrors)
	}
	if checked < 500 {
		t.Errorf("only %d error texts were checked", checked)
	}
}

// The share of comment lines and of paragraphs with such phrases. It may only fall.
const (
	mostComments   = 10.0 // percent of the comment lines of Go files without tests
	mostParagraphs = 23.6 // percent of the paragraphs of docs
)

func TestCommentsAndDocumentsUseTheTermsOfTheField(t *testing.T) {
	lines, bad := 0, 0
	comment := regexp.MustCompile(`^\s*//\s`)
	for _, name := range sources(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if comment.MatchString(line) {
				lines++
				if idioms.MatchString(line) {
					bad++
				}
			}
		}
	}
	share := 100 * float64(bad) / float64(lines)
	t.Logf("%d of %d comment lines: %.2f %%", bad, lines, share)
	if share > mostComments {
		t.Errorf("%.2f %% of comment lines, at most %.2f %%", share, mostComments)
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, below := range []string{"docs/*/*.md"} {
		more, err := filepath.Glob(below)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, more...)
	}
	paragraphs, wrong := 0, 0
	for _, name := range pages {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range strings.Split(string(raw), "\n\n") {
			if p = strings.TrimSpace(p); p == "" || strings.HasPrefix(p, "```") || strings.HasPrefix(p, "|") {
				continue
			}
			paragraphs++
			if idioms.MatchString(p) {
				wrong++
			}
		}
	}
	share = 100 * float64(wrong) / float64(paragraphs)
	t.Logf("%d of %d paragraphs: %.1f %%", wrong, paragraphs, share)
	if share > mostParagraphs {
		t.Errorf("%.1f %% of paragraphs, at most %.1f %%", share, mostParagraphs)
	}
}
