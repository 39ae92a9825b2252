package sojourn_test

import (
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// columns is the maximum length of a line of Go; a tab counts as one.
const columns = 120

// texts returns the lines of a file that belong to a string of more than a few words: a broken string is harder to read
// and to search.
func texts(src []byte) map[int]bool {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(src))
	s.Init(file, src, nil, 0)
	found := map[int]bool{}
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return found
		}
		if kind != token.STRING || len(text) < 30 {
			continue
		}
		first := file.Line(pos)
		for line := first; line <= first+strings.Count(text, "\n"); line++ {
			found[line] = true
		}
	}
}

func TestLinesOfGoFitThePage(t *testing.T) {
	for file, code := range tracked(t, "*.go") {
		text := texts([]byte(code))
		for i, line := range strings.Split(code, "\n") {
			if n := utf8.RuneCountInString(line); n > columns && !text[i+1] && !strings.Contains(line, "//nolint") {
				t.Errorf("%s:%d: %d columns, at most %d", file, i+1, n, columns)
			}
		}
	}
}

// Documents have short paragraphs, so that a reader can skip one.
const (
	paragraphWords = 90
	cellWords      = 40
	// mostLongCells is the number of table cells that are longer. It may only fall.
	mostLongCells = 0
)

var (
	fenced    = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```[^\\n]*$")
	blockEnds = regexp.MustCompile(`\n\s*\n|\n(?:\s*[-*]|\s*\d+\.) `)
	target    = regexp.MustCompile(`\]\([^)]*\)`)
	// definition is the target of a reference link, which cannot be wrapped.
	definition = regexp.MustCompile(`^\[[^\]]+\]: https://\S+\s*$`)
)

func TestLinesAndParagraphsOfDocumentsAreShort(t *testing.T) {
	count := func(text string) int { return len(strings.Fields(target.ReplaceAllString(text, "]"))) }
	paragraphs, cells := 0, 0
	for file, page := range tracked(t, "*.md") {
		text := fenced.ReplaceAllString(page, "")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "|") {
				for _, cell := range strings.Split(line, "|") {
					if count(cell) > cellWords {
						cells++
					}
				}
			} else if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > columns && !definition.MatchString(line) {
				t.Errorf("%s: %d columns, at most %d: %.60s", file, n, columns, line)
			}
		}
		for _, block := range blockEnds.Split(text, -1) {
			paragraphs++
			if n := count(block); !strings.HasPrefix(strings.TrimSpace(block), "|") && n > paragraphWords {
				t.Errorf("%s: a paragraph of %d words, at most %d: %.60s", file, n, paragraphWords, block)
			}
		}
	}
	if cells > mostLongCells {
		t.Errorf("%d table cells have more than %d words, at most %d", cells, cellWords, mostLongCells)
	}
	if paragraphs < 1_000 {
		t.Errorf("only %d paragraphs were checked", paragraphs)
	}
}
