package sojourn_test

import (
	"encoding/json"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/docs"
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

var (
	registersFlag = regexp.MustCompile(`^(Bool|String|Int|Int64|Duration|StringSlice|IntSlice)Var(P)?$`)
	makesErrors   = regexp.MustCompile(`^(errors\.New|fmt\.Errorf|\w+\.Refuse)$`)
)

// messages returns the expressions of a node that are the text of a log line or of help.
func messages(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		s, ok := n.Fun.(*ast.SelectorExpr)
		switch {
		case !ok || len(n.Args) == 0:
		case s.Sel.Name == "Msg" || s.Sel.Name == "Msgf":
			return n.Args[:1]
		case registersFlag.MatchString(s.Sel.Name):
			return n.Args[len(n.Args)-1:]
		}
	case *ast.KeyValueExpr: // of a command or a setting
		if k, ok := n.Key.(*ast.Ident); ok && (k.Name == "Short" || k.Name == "help") {
			return []ast.Expr{n.Value}
		}
	}
	return nil
}

// errorTexts returns the expressions of a node that are the text of an error.
func errorTexts(n ast.Node) []ast.Expr {
	if call, ok := n.(*ast.CallExpr); ok {
		if s, ok := call.Fun.(*ast.SelectorExpr); ok {
			if of, ok := s.X.(*ast.Ident); ok && makesErrors.MatchString(of.Name+"."+s.Sel.Name) {
				return call.Args
			}
		}
	}
	return nil
}

// waitTexts returns the parts of a node that become the text of a wait: the table of reasons, its parts, and members
// of waits that people read.
func waitTexts(n ast.Node) (texts []ast.Expr) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		name := ""
		switch typ := n.Type.(type) {
		case *ast.Ident:
			name = typ.Name
		case *ast.SelectorExpr:
			name = typ.Sel.Name
		case *ast.ArrayType: // of rules, whose own type is omitted
			if of, ok := typ.Elt.(*ast.Ident); ok && of.Name == "WaitRule" {
				return n.Elts
			}
		case *ast.MapType:
			if of, ok := typ.Key.(*ast.Ident); ok && of.Name == "WaitKind" {
				return n.Elts
			}
		}
		if name == "Wait" || name == "WaitRule" || name == "PendingCancellation" {
			return n.Elts
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			of, ok := left.(*ast.SelectorExpr)
			if ok && len(n.Rhs) == len(n.Lhs) && waitMember.MatchString(of.Sel.Name) {
				texts = append(texts, n.Rhs[i])
			}
		}
	case *ast.ValueSpec: // parts of the table of reasons
		if len(n.Names) == 1 && slices.Contains(waitParts, n.Names[0].Name) {
			return n.Values
		}
	}
	return texts
}

// waitMember matches the members of waits and refusals that are shown to people.
var waitMember = regexp.MustCompile(`^(Message|Detail|Why|Waiting|Problem)$`)

// waitParts are the constants of which texts of protocol.WaitRules are composed.
var waitParts = []string{"closest", "fallback", "timer", "held"}

// checkTexts fails if a string literal has an idiom, or if there are fewer than least literals. It reads the literals
// in the expressions that of returns for each node of each Go file.
func checkTexts(t *testing.T, of func(ast.Node) []ast.Expr, least int) {
	t.Helper()
	checked := map[token.Position]bool{}
	for name, code := range trackedCode(t) {
		file, err := parse(name, code)
		if err != nil {
			t.Fatal(err)
		}
		check := func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING || checked[file.at(lit)] {
				return true
			}
			checked[file.at(lit)] = true
			text, err := strconv.Unquote(lit.Value)
			if m := idioms.FindString(text); err != nil || m != "" {
				t.Errorf("%s: %s contains %q, %v", file.at(lit), lit.Value, m, err)
			}
			return true
		}
		ast.Inspect(file.File, func(n ast.Node) bool {
			for _, e := range of(n) {
				ast.Inspect(e, check)
			}
			return true
		})
	}
	if len(checked) < least {
		t.Errorf("only %d texts were checked", len(checked))
	}
}

func TestLogLinesAndHelpUseTheTermsOfTheField(t *testing.T) { checkTexts(t, messages, 400) }

func TestErrorsUseTheTermsOfTheField(t *testing.T) { checkTexts(t, errorTexts, 500) }

// exempted is a line of the dashboard that may contain an idiom, with the reason.
var exempted = regexp.MustCompile(`(?m)^.*// wording: \S.*$`)

func TestTheDashboardUsesTheTermsOfTheField(t *testing.T) {
	files := 0
	for name, code := range tracked(t, "web/src/*.ts*") { // also comments and names of tests
		if name == "web/src/api/schema.ts" { // generated from the API description
			continue
		}
		files++
		// Texts in JSX are broken into lines.
		text := strings.Join(strings.Fields(exempted.ReplaceAllString(code, "")), " ")
		for _, at := range idioms.FindAllStringIndex(text, -1) {
			t.Errorf("%s contains %q in: …%s…", name, text[at[0]:at[1]], text[max(0, at[0]-60):min(len(text), at[1]+60)])
		}
	}
	if files < 130 {
		t.Errorf("only %d files were checked", files)
	}
}
func TestWaitReasonsUseTheTermsOfTheField(t *testing.T) { checkTexts(t, waitTexts, 85) }

// The share of comment lines and of paragraphs with such phrases. It may only fall.
const (
	mostComments   = 0.2 // percent of the comment lines of Go files without tests
	mostParagraphs = 1.0 // percent of the paragraphs of docs
)

// share counts texts, and the texts with idioms among them.
type share struct{ all, bad int }

func (s *share) add(text string) {
	s.all++
	if idioms.MatchString(text) {
		s.bad++
	}
}

// check compares the share of texts with idioms with a limit in percent.
func (s *share) check(t *testing.T, what string, most float64) {
	t.Helper()
	got := 100 * float64(s.bad) / float64(s.all)
	t.Logf("%d of %d %s: %.2f %%", s.bad, s.all, what, got)
	if s.all == 0 || got > most {
		t.Errorf("%.2f %% of %s, at most %.2f %%", got, what, most)
	}
}

func TestCommentsAndDocumentsUseTheTermsOfTheField(t *testing.T) {
	var comments, paragraphs share
	comment := regexp.MustCompile(`^\s*//\s`)
	for _, code := range trackedCode(t) {
		for line := range strings.Lines(code) {
			if comment.MatchString(line) {
				comments.add(line)
			}
		}
	}
	comments.check(t, "comment lines", mostComments)
	for _, page := range tracked(t, "docs/*.md") {
		for p := range strings.SplitSeq(page, "\n\n") {
			if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(p, "```") && !strings.HasPrefix(p, "|") {
				paragraphs.add(p)
			}
		}
	}
	paragraphs.check(t, "paragraphs", mostParagraphs)
}

func TestTheAPIDescriptionUsesTheTermsOfTheField(t *testing.T) {
	var document any
	if err := json.Unmarshal(docs.OpenAPI, &document); err != nil {
		t.Fatal(err)
	}
	count := 0
	var visit func(any)
	visit = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				visit(item)
			}
		case map[string]any:
			for key, value := range v {
				text, isText := value.(string)
				if !isText || key != "description" && key != "summary" {
					visit(value)
					continue
				}
				count++
				if m := idioms.FindString(text); m != "" {
					t.Errorf("%q contains %q", text, m)
				}
			}
		}
	}
	visit(document)
	if count < 2000 {
		t.Errorf("only %d texts were checked", count)
	}
}
