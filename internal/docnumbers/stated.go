// Package docnumbers compares sentences of the documentation with the values that the program uses.
package docnumbers

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// In fails a test unless a page below docs contains a sentence in which the placeholders {} are replaced by the values,
// in order: a text, a count, a size in bytes or a time.Duration. The page may write a value in digits or words, such as
// "10,000", "five", "2 MiB" or "three minutes". Line breaks do not matter.
func In(t testing.TB, page, sentence string, values ...any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root(t), "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	if err := compare(string(raw), sentence, values); err != nil {
		t.Errorf("docs/%s: %v", page, err)
	}
}

// root is the folder of the module whose package is tested.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			err = os.ErrNotExist
		}
		dir = up
	}
	t.Fatal(err)
	return ""
}

// These patterns match a value in a page: a number and its unit.
const (
	number = `\b(?:\d[\d,]*\d|\d|[Hh]alf an?|[A-Za-z]+)`
	unit   = `(?: (?:ms|s|min|h|seconds?|minutes?|hours?|days?|weeks?|KB|KiB|MiB)\b)?`
)

func compare(text, sentence string, values []any) error {
	parts := strings.Split(strings.Join(strings.Fields(sentence), " "), "{}")
	if len(parts)-1 != len(values) {
		return fmt.Errorf("%d values for %q", len(values), sentence)
	}
	text = strings.Join(strings.Fields(text), " ")
	pattern := regexp.QuoteMeta(parts[0])
	for i, part := range parts[1:] {
		what := number + unit
		if _, isText := values[i].(string); isText {
			what = `[^ ]+?`
		}
		pattern += "(" + what + ")" + regexp.QuoteMeta(part)
	}
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(text, 2)
	if len(found) != 1 {
		return fmt.Errorf("%q occurs %d times, want once", sentence, len(found))
	}
	for i, v := range values {
		stated, err := read(found[0][i+1], v)
		if err != nil {
			return fmt.Errorf("%q: %w", found[0][0], err)
		}
		if stated != v {
			return fmt.Errorf("%q: the program has %v", found[0][0], v)
		}
	}
	return nil
}

var words = map[string]int64{
	"a": 1, "an": 1, "one": 1, "once": 1, "two": 2, "twice": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
	"eight": 8, "nine": 9, "ten": 10, "twelve": 12, "sixteen": 16, "sixty": 60, "hundred": 100, "eighth": 8,
}

var times = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour, "second": time.Second,
	"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

var sizes = map[string]int64{"kb": 1 << 10, "kib": 1 << 10, "mib": 1 << 20}

// read parses the text of a page to a value of the type of like.
func read(text string, like any) (any, error) {
	if _, isText := like.(string); isText {
		return text, nil
	}
	figure, in, _ := strings.Cut(strings.ToLower(text), " ")
	divide := int64(1)
	if figure == "half" { // "half a second"
		figure, in, _ = strings.Cut(in, " ")
		divide = 2
	}
	scale, isTime := int64(cmp.Or(times[in], times[strings.TrimSuffix(in, "s")])), true
	if scale == 0 {
		scale, isTime = max(1, sizes[in]), false
	}
	n, known := words[figure]
	if !known {
		var err error
		if n, err = strconv.ParseInt(strings.ReplaceAll(figure, ",", ""), 10, 64); err != nil {
			return nil, fmt.Errorf("%q is no value", text)
		}
	}
	kind := reflect.TypeOf(like)
	if isTime != (kind == reflect.TypeFor[time.Duration]()) || !reflect.TypeFor[int64]().ConvertibleTo(kind) {
		return nil, fmt.Errorf("%q is no %T", text, like)
	}
	return reflect.ValueOf(n * scale / divide).Convert(kind).Interface(), nil
}
