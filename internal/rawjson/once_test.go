package rawjson_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sojourn-run/sojourn/internal/rawjson"
)

// The last value of a duplicate member replaces the earlier ones. The rest of the text does not change.
func TestMembersCountAsTheyStoodLast(t *testing.T) {
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf(`"%02d":0`, i))
	}
	many := strings.Join(names, ",")
	for _, c := range []struct{ text, want string }{
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`{"a":1,"\u0061":2}`, `{"\u0061":2}`},
		{` { "a" : 1 , "b" : [ 1 , { "c" : 2 , "c" : 3 } ] , "a" : true } `, `{"b":[1,{"c":3}],"a":true}`},
		{`{"a":1,"b":2,"a":3,"b":4,"c":5,"a":6}`, `{"b":4,"c":5,"a":6}`},
		{`[{"a":1,"a":2},{},[],-1.5e3,"x"]`, `[{"a":2},{},[],-1.5e3,"x"]`},
		{`[{"s":{"x":1,"y":2},"s":{"x":3}}]`, `[{"s":{"x":3}}]`},
		{`{"l":[{"x":1,"y":2}],"l":[{"x":3}]}`, `{"l":[{"x":3}]}`},
		{`{"l":[1,2,{"n":9007199254740993,"n":9007199254740995}]}`, `{"l":[1,2,{"n":9007199254740995}]}`},
		{`{"a":1e400,"a":1.50}`, `{"a":1.50}`},
		{`{"a":"x","a":null}`, `{"a":null}`},
		{`{` + many + `,"07":1}`, `{` + strings.Replace(many, `"07":0,`, "", 1) + `,"07":1}`},
		{` {"a":{"a":1},"b":[{"a":1},{"a":1}],"c":"{\"a\":1,\"a\":2}","d":["a","a"]} `, ""},
		{`{"a":1,"A":2}`, ""},
		{`{` + many + `,"40":0}`, ""},
		{`{"a":1,"a":2} {}`, ""},
		{`{"a":1,"a":}`, ""},
		{`{"a":1,"a":2`, ""},
		{`{"a":1,"a`, ""},
		{`]{"a":1,"a":2}`, ""},
		{`"a"`, ""},
		{``, ""},
	} {
		if got := string(rawjson.Once([]byte(c.text))); got != cmp.Or(c.want, c.text) {
			t.Errorf("%.200s: got %.400s, want %.400s", c.text, got, c.want)
		}
	}
	whole := []byte(`{"jobId":"j","token":"t","response":{"commands":[{"type":"a","x":[1,2]},{"type":"b"}],"sdk":"s"}}`)
	if n := testing.AllocsPerRun(100, func() { rawjson.Once(whole) }); n > 0 {
		t.Errorf("to look costs %v allocations", n)
	}
}

// After duplicates are removed, a text decodes to the same value as before: the last member of a name counts.
func TestMembersWithoutDuplicatesDecodeLikeTheWholeText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var value func(depth int) string
		value = func(depth int) string {
			kind := rapid.IntRange(0, 5).Draw(t, "kind")
			if depth > 4 {
				kind %= 3
			}
			switch kind {
			case 0:
				return rapid.SampledFrom([]string{"1", "-2.5e3", "null", "true", " 7 "}).Draw(t, "literal")
			case 1, 2:
				return rapid.SampledFrom([]string{`""`, `"a"`, `"\\\""`, `"{\"a\":1}"`}).Draw(t, "text")
			}
			parts := make([]string, rapid.IntRange(0, 6).Draw(t, "parts"))
			for i := range parts {
				parts[i] = value(depth + 1)
				if kind > 3 {
					parts[i] = rapid.SampledFrom([]string{`"a"`, `"\u0061"`, `"b" `, `"\\"`}).Draw(t, "name") + ":" + parts[i]
				}
			}
			if kind > 3 {
				return "{" + strings.Join(parts, ", ") + "}"
			}
			return "[" + strings.Join(parts, ",") + " ]"
		}
		text := value(0)
		once := rawjson.Once([]byte(text))
		var want, got any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := json.Unmarshal(once, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: became %s, %v", text, once, err)
		}
	})
}

// Finding duplicate members allocates at most a small multiple of the text's size, for any text.
func TestCheckForRepeatedMembersUsesLittleMemory(t *testing.T) {
	var wide strings.Builder
	for i := range 130_000 {
		fmt.Fprintf(&wide, `"k%d":1,`, 900_000-i)
	}
	for name, text := range map[string]string{
		"deep":                strings.Repeat("[", 1_900_000),
		"deep objects":        strings.Repeat(`{"a":`, 380_000),
		"an object of many":   `{` + wide.String() + `"z":1}`,
		"repeated":            `[{"a":1,"a":2},` + strings.Repeat("[],", 600_000) + `1]`,
		"repeated among many": `{` + wide.String() + `"k900000":1}`,
		"many repeated":       `{` + strings.Repeat(`"a":1,`, 300_000) + `"a":1}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rawjson.Once([]byte(text))
		runtime.ReadMemStats(&after)
		if used := int(after.TotalAlloc - before.TotalAlloc); used > 24*len(text) {
			t.Errorf("%s: %d KiB allocated for a text of %d KiB", name, used>>10, len(text)>>10)
		}
	}
}
