package payload

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/internal/rawjson"
)

// throughValue is FromJSON implemented with the value that encoding/json decodes.
func throughValue(raw []byte) (Payload, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return Payload{}, err
	}
	if _, err := d.Token(); err != io.EOF || !utf8.Valid(raw) {
		return Payload{}, ErrInvalidJSON
	}
	return Encode(v)
}

// shown is ToJSON implemented with the plain value.
func shown(out []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(out, v)
	case int64:
		return strconv.AppendInt(out, v, 10)
	case float64:
		return appendDouble(out, v)
	case string:
		return rawjson.AppendString(out, v)
	case []byte:
		return append(append(append(out, `{"$type":"bytes","base64":"`...), base64.StdEncoding.EncodeToString(v)...), `"}`...)
	case []any:
		out = append(out, '[')
		for i, item := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = shown(out, item)
		}
		return append(out, ']')
	case map[string]any:
		out = append(out, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				out = append(out, ',')
			}
			out = shown(append(rawjson.AppendString(out, name), ':'), v[name])
		}
		return append(out, '}')
	}
	return append(out, "null"...)
}

// FuzzJSON compares the direct conversion between JSON text and payload with the conversion through a value.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`null`, ` true `, `-0`, `9007199254740993`, `-1234567890123456789`, `1e400`, `1.0`, `1E+2`, `99999999999999999999`,
		`""`, `"a\"b\\"`, `"\\\\"`, `"é\u00e9\ud83d\ude00"`, `"\ud800"`, `"<&>\u2028"`, "\"\x7f\"", "\"\xff\"", `"\u0000"`,
		`[]`, `[[],[[]]]`, `[1, 2 ,3]`, `[1,"x",{"b":1,"a":[{}]}]`, `{}`, `{"b":1,"a":2}`, `{"a":1,"b":2,"a":3}`,
		`{"":{"":null}}`, `{"\u0061":1,"a":2}`, `{"$type":"bytes","base64":"AP8="}`, `{"base64":"AP8=","$type":"bytes"}`,
		`{"$type":"bytes","base64":"?"}`, `{"$type":"bytes","base64":"","x":1}`, `{"$type":"text","base64":""}`,
		`[{"$type":"bytes","base64":""}]`, `1 2`, `{`, `[1,]`, `{"a"}`, `nul`, ``,
	} {
		f.Add([]byte(seed))
	}
	var many []byte
	for i := range 200 { // the number of items has two bytes, and the items need more space than was reserved
		many = append(many, `{"k`+strconv.Itoa(199-i)+`":[`...)
	}
	many = append(many, `0`+string(bytes.Repeat([]byte(`,1`), 99))...)
	f.Add(append(many, bytes.Repeat([]byte(`]}`), 200)...))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := FromJSON(raw)
		want, wrong := throughValue(raw)
		if err != nil {
			if wrong == nil || Reason(err) == "" {
				t.Errorf("%q is refused with %v, by way of the value with %v", raw, err, wrong)
			}
			return
		}
		if wrong != nil || p != want {
			t.Fatalf("%q is %+v, by way of the value %+v, %v", raw, p, want, wrong)
		}
		var v any
		if err := Decode(p, &v); err != nil {
			t.Fatal(err)
		}
		text, err := ToJSON(p)
		if err != nil || string(text) != string(shown(nil, v)) {
			t.Fatalf("%q is shown as %s, by way of the value %s, %v", raw, text, shown(nil, v), err)
		}
		if second, err := FromJSON(text); err != nil || second != p {
			t.Fatalf("%s is %+v again, %v, was %+v", text, second, err, p)
		}
		if _, err := FromView(text); err != nil {
			t.Fatal(err)
		}
	})
}

// Other clients write members in any order, and duplicate names; the JSON view must equal the decoded value.
func TestForeignPayloadsAreShownAsValues(t *testing.T) {
	w := writer{buf: []byte(header)}
	w.buf = append(w.buf, tagMap)
	w.number(2)
	for _, name := range []string{"b", "a"} {
		_ = w.text(name)
		w.buf = append(w.buf, tagArray)
		w.number(1)
		w.bytes([]byte{0xff})
		w.buf = append(w.buf, 0)
	}
	w.number(-1) // a block with its size
	w.number(int64(len("\x02b") + 2))
	_ = w.text("b")
	w.long(7)
	w.buf = append(w.buf, 0)
	p := Payload{Blob: base64.StdEncoding.EncodeToString(w.buf)}
	text, err := ToJSON(p)
	if want := `{"a":[{"$type":"bytes","base64":"/w=="}],"b":7}`; err != nil || string(text) != want {
		t.Errorf("shown as %s, %v; want %s", text, err, want)
	}
	back, err := FromView(text)
	var was, is any
	if err != nil || Decode(p, &was) != nil || Decode(back, &is) != nil ||
		string(shown(nil, was)) != string(shown(nil, is)) {
		t.Errorf("comes back as %v, %v; was %v", is, err, was)
	}
}

// The conversion between the JSON of a handler and its payload allocates memory only for the text and the frame, for
// any number and depth of values.
func TestTextIsConvertedToPayloadsWithoutBuildingValues(t *testing.T) {
	allocations := func(items int) (to, from float64) {
		raw := []byte(`[` + string(bytes.Repeat([]byte(`{"a":true,"b":["x",null]},`), items)) + `0]`)
		p, err := FromJSON(raw)
		if err != nil {
			t.Fatal(err)
		}
		to = testing.AllocsPerRun(20, func() { _, _ = ToJSON(p) })
		return to, testing.AllocsPerRun(20, func() { _, _ = FromJSON(raw) })
	}
	to, from := allocations(10)
	for _, items := range []int{100, 1_000} {
		more, less := allocations(items)
		if more > to+4 {
			t.Errorf("%v allocations for the text of %d items, %v for 10", more, items, to)
		}
		if perItem := (less - from) / float64(items); perItem > 2.2 { // for the names
			t.Errorf("%.1f allocations an item for the payload of %d", perItem, items)
		}
	}
}
