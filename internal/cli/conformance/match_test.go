package conformance

import (
	"strings"
	"testing"
)

func TestPatternsMatchOnlyWhatTheyDescribe(t *testing.T) {
	for _, c := range []struct{ pattern, value, wrong string }{
		{`null`, `null`, ""},
		{`null`, `0`, "the body is 0"},
		{`"a"`, `"a"`, ""},
		{`"a"`, `"b"`, "the body"},
		{`1`, `1.0`, ""},
		{`1`, `2`, "the body"},
		{`true`, `true`, ""},
		{`true`, `"true"`, "the body"},
		{`9007199254740993`, `9007199254740993`, ""},
		{`{"a":1}`, `{"a":1,"b":2}`, ""},
		{`{"a":1}`, `{"b":2}`, "/a is missing"},
		{`{"a":{"b":[1]}}`, `{"a":{"b":[2]}}`, "/a/b/0 is 2"},
		{`{"a":1}`, `[1]`, "an object"},
		{`{"a":null}`, `{}`, "/a is missing"},
		{`{}`, `{"a":1}`, ""},
		{`[]`, `[]`, ""},
		{`[]`, `[1]`, "a list of 0"},
		{`[1,2]`, `[1,2]`, ""},
		{`[1,2]`, `[2,1]`, "/0"},
		{`{"$type":"string"}`, `""`, ""},
		{`{"$type":"string"}`, `1`, "a string"},
		{`{"$type":"string|null"}`, `null`, ""},
		{`{"$type":"integer"}`, `1.5`, "integer"},
		{`{"$type":"number"}`, `1.5`, ""},
		{`{"$type":"object"}`, `{}`, ""},
		{`{"$type":"array"}`, `{}`, "array"},
		{`{"$type":"boolean"}`, `false`, ""},
		{`{"$regex":"^a+$"}`, `"aaa"`, ""},
		{`{"$regex":"^a+$"}`, `"ab"`, "text like"},
		{`{"$regex":"("}`, `"a"`, "invalid regular expression"},
		{`{"$regex":"1"}`, `1`, "text like"},
		{`{"$oneOf":[1,{"a":2}]}`, `{"a":2}`, ""},
		{`{"$oneOf":[1,2]}`, `3`, "one of"},
		{`{"$not":1}`, `2`, ""},
		{`{"$not":1}`, `1`, "not 1"},
		{`{"$contains":{"a":1}}`, `[{"a":2},{"a":1}]`, ""},
		{`{"$contains":1}`, `[]`, "a list with"},
		{`{"$contains":1}`, `1`, "a list"},
		{`{"$each":{"a":1}}`, `[{"a":1},{"a":1}]`, ""},
		{`{"$each":1}`, `[1,2]`, "/1"},
		{`{"$length":2}`, `[1,2]`, ""},
		{`{"$length":2}`, `"a"`, "length 2"},
		{`{"$min":2}`, `2`, ""},
		{`{"$min":2}`, `1`, "$min 2"},
		{`{"$above":2}`, `2`, "$above 2"},
		{`{"$above":2}`, `3`, ""},
		{`{"$min":2}`, `"2"`, "$min"},
		{`{"a":{"$absent":true}}`, `{}`, ""},
		{`{"a":{"$absent":true}}`, `{"a":null}`, "no such member"},
		{`{"$novel":1}`, `1`, "unknown operator $novel"},
	} {
		pattern, err := decode([]byte(c.pattern))
		if err != nil {
			t.Fatal(err)
		}
		value, err := decode([]byte(c.value))
		if err != nil {
			t.Fatal(err)
		}
		err = Match(pattern, value)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s against %s: got %v, want %q", c.value, c.pattern, err, c.wrong)
		}
	}
}

func TestVariablesKeepTheirTypes(t *testing.T) {
	vars := map[string]any{"id": "x", "task": map[string]any{"n": true}}
	v, err := decode([]byte(`{"a-${id}":["${task}","${id}/${id}","plain"]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := filled(v, vars)
	if err != nil || show(got) != `{"a-x":[{"n":true},"x/x","plain"]}` {
		t.Errorf("got %s, %v", show(got), err)
	}
	for _, wrong := range []string{`"${none}"`, `"a${none}"`, `"${id"`, `{"${none}":1}`, `[["${none}"]]`} {
		v, err := decode([]byte(wrong))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := filled(v, vars); err == nil {
			t.Errorf("%s became %s", wrong, show(got))
		}
	}
}
