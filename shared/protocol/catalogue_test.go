package protocol

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// declaredReasons returns the reasons that errors.go declares.
func declaredReasons(t *testing.T) map[Reason]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[Reason]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Reason" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			reasons[Reason(text)] = true
		}
		return true
	})
	if len(reasons) < 100 {
		t.Fatalf("only %d reasons were read", len(reasons))
	}
	return reasons
}

func TestTheErrorCatalogueHasEveryReasonWithItsStatus(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[Reason]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d+) \\| \\S").FindAllStringSubmatch(string(page), -1) {
		r := Reason(row[1])
		if listed[r] {
			t.Errorf("%s is listed twice", r)
		}
		listed[r] = true
		if want := strconv.Itoa(r.Status()); row[2] != want {
			t.Errorf("%s is listed with status %s, want %s", r, row[2], want)
		}
	}
	declared := declaredReasons(t)
	for _, r := range slices.Sorted(maps.Keys(declared)) {
		if !listed[r] {
			t.Errorf("%s is missing", r)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(listed)) {
		if !declared[r] {
			t.Errorf("%s is no reason", r)
		}
	}
}
