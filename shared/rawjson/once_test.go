package rawjson_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/rawjson"
)

// A member that stands twice counts as it stood last, wholly. All else stays as it is, text for text.
func TestMembersCountAsTheyStoodLast(t *testing.T) {
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf(`"%02d":0`, i))
	}
	many := strings.Join(names, ",")
	for _, c := range []struct{ text, want string }{
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`{"a":1,"\u0061":2}`, `{"a":2}`},
		{`[{"s":{"x":1,"y":2},"s":{"x":3}}]`, `[{"s":{"x":3}}]`},
		{`{"l":[{"x":1,"y":2}],"l":[{"x":3}]}`, `{"l":[{"x":3}]}`},
		{`{"l":[1,2,{"n":9007199254740993,"n":9007199254740995}]}`, `{"l":[1,2,{"n":9007199254740995}]}`},
		{`{"a":1e400,"a":1.50}`, `{"a":1.50}`},
		{`{"a":"x","a":null}`, `{"a":null}`},
		{`{` + many + `,"07":1}`, `{` + strings.Replace(many, `"07":0`, `"07":1`, 1) + `}`},
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
