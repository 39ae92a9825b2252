package engine

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestKeysOrderAsValuesDo(t *testing.T) {
	numbers := []string{
		"-1e308", "-9223372036854775808", "-9223372036854775807", "-9007199254740993", "-9007199254740992", "-2", "-1.5",
		"-1e-300", "0", "1e-300", "0.1",
		"1", "1.5", "2", "1000", "9007199254740992", "9007199254740993", "9007199254740994", "9223372036854775806",
		"9223372036854775807", "1e300",
	}
	var keys []string
	for _, n := range numbers {
		k, ok := NumberKey(json.Number(n))
		if !ok {
			t.Fatalf("%s has no key", n)
		}
		keys = append(keys, k)
	}
	if !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
		t.Errorf("keys are out of order, or the same: %v", keys)
	}
	for _, same := range [][2]string{{"2", "2.0"}, {"1e3", "1000"}, {"-0", "0"}, {"-0.0", "0"}} {
		x, _ := NumberKey(json.Number(same[0]))
		y, _ := NumberKey(json.Number(same[1]))
		if x != y {
			t.Errorf("%s is %s, %s is %s", same[0], x, same[1], y)
		}
	}
	if _, ok := NumberKey("1e999"); ok {
		t.Error("a number beyond float64 has a key")
	}
	at := time.Unix(0, 0)
	for range 1000 {
		x, y := at.Add(time.Duration(rand.Int64()-1<<62)), at.Add(time.Duration(rand.Int64()-1<<62))
		if a, b := TimeKey(x), TimeKey(y); (a < b) != x.Truncate(time.Microsecond).Before(y.Truncate(time.Microsecond)) &&
			x.UnixMicro() != y.UnixMicro() {
			t.Fatalf("%v is %s, %v is %s", x, a, y, b)
		}
	}
}

// The committer computes the keys. Computing an exact 1e999999 would take a tenth of a second for a few bytes; this
// test would then take half an hour.
func TestNumbersOfHugeExponentsCostNothing(t *testing.T) {
	for range 10_000 {
		if _, ok := NumberKey("1e999999"); ok {
			t.Fatal("a number beyond float64 has a key")
		}
		if k, _ := NumberKey("1e-999999"); k != mustKey(t, "0") {
			t.Fatalf("next to nothing is %s", k)
		}
	}
}

func mustKey(t *testing.T, n json.Number) string {
	t.Helper()
	k, ok := NumberKey(n)
	if !ok {
		t.Fatalf("%s has no key", n)
	}
	return k
}

func TestValuesAreOfTheirRegisteredTypes(t *testing.T) {
	types := map[string]string{}
	for _, typ := range RegisteredTypes {
		types[typ] = typ
	}
	good := `{"keyword":"a","text":"b","int":-3,"double":0.5,"bool":false,"datetime":"2026-01-02T03:04:05.5+01:00","keyword_list":["a"],"free":{},"x":null}`
	at := func(name string) string { return "f." + name }
	if err := CheckTypes(json.RawMessage(good), types, at); err != nil {
		t.Error(err)
	}
	for name, v := range map[string]string{
		"keyword": "1", "text": "[]", "int": "1.5", "double": `"1"`, "bool": "0", "datetime": `"soon"`, "keyword_list": `"a"`,
	} {
		err := CheckTypes(json.RawMessage(`{"`+name+`":`+v+`,"free":1}`), types, at)
		if protocol.ReasonOf(err) != protocol.ReasonValidation ||
			!strings.HasPrefix(err.Error(), "validation_failed: f."+name) {
			t.Errorf("%s as %s: %v", v, name, err)
		}
		if err := CheckTypes(json.RawMessage(`{"`+name+`":null}`), types, at); err != nil {
			t.Errorf("taking %s away: %v", name, err)
		}
	}
}

func TestSearchAttributesHaveLimits(t *testing.T) {
	many := map[string]string{}
	for i := range 21 {
		many["k"+strings.Repeat("x", i)] = strings.Repeat("v", 2000)
	}
	large, _ := json.Marshal(many)
	for _, bad := range []string{
		`{"a":"` + strings.Repeat("x", 2047) + `"}`, `{"` + strings.Repeat("n", 129) + `":1}`, `{"a":{}}`, `{"1":1}`, `[1]`,
		string(large),
	} {
		if CheckAttributes(json.RawMessage(bad)) == nil {
			t.Errorf("%.40s… is accepted", bad)
		}
	}
	for _, good := range []string{
		``, `null`, `{}`, `{"` + strings.Repeat("n", 128) + `":"` + strings.Repeat("x", 2046) + `"}`,
	} {
		if err := CheckAttributes(json.RawMessage(good)); err != nil {
			t.Errorf("%.40s…: %v", good, err)
		}
	}
}
