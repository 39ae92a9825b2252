package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func mustEncode(t testing.TB, v any) Payload {
	t.Helper()
	p, err := Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStructsSurviveTheRoundTrip(t *testing.T) {
	in := sampleOrder()
	in.Text, in.hidden, in.Tail, in.Bill, in.Tags = nil, 0, &Tail{true}, &inner{"Bonn", "53111"}, []string{"a", ""}
	in.Any = []any{int64(1), 1.0, "x", []byte{1}, map[string]any{"k": nil}}
	in.Raw = json.RawMessage(`{"a":[1],"b":1.0}`)
	var out order
	if err := Decode(mustEncode(t, in), &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out, cmp.AllowUnexported(order{}), cmp.Comparer(func(a, b netip.Addr) bool {
		return a == b
	})); diff != "" {
		t.Errorf("out differs from in:\n%s", diff)
	}
}

func TestValuesDecodeIntoOtherTypesAsJSONWould(t *testing.T) {
	for _, c := range []struct {
		in        any
		out, want any
	}{
		{7, new(float64), 7.0},
		{7, new(uint8), uint8(7)},
		{7, new(json.Number), json.Number("7")},
		{7.0, new(json.Number), json.Number("7.0")},
		{7.5, new(float32), float32(7.5)},
		{nil, new(7), 7},
		{nil, new(new(7)), (*int)(nil)},
		{nil, &[]int{1}, []int(nil)},
		{nil, new(any(1)), nil},
		{[]int{1, 2, 3}, &[2]int{9, 9}, [2]int{1, 2}},
		{[]int{1}, &[2]int{9, 9}, [2]int{1, 0}},
		{[]int{}, new([]string), []string{}},
		{[]int{1, 2}, &[]int{8, 8, 8}, []int{1, 2}},
		{map[string]int{"1": 2}, new(map[int]int), map[int]int{1: 2}},
		{map[string]int{"a": 1}, &map[string]int{"b": 2}, map[string]int{"a": 1, "b": 2}},
		{map[string]any{"CITY": "Rom", "other": []any{1, map[string]any{}}}, new(inner), inner{City: "Rom"}},
		{"AP8=", new([]byte), []byte{0, 255}},
		{"2026-01-02T03:04:05Z", new(time.Time), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		{map[string]any{"a": 1, "b": []byte{0, 255}}, new(json.RawMessage), json.RawMessage(`{"a":1,"b":"AP8="}`)},
		{"x", new(new(new("y"))), new(new("x"))},
		{[]any{1, "x"}, new([]Payload), []Payload{mustEncode(t, 1), mustEncode(t, "x")}},
		{[]Payload{mustEncode(t, []int{1}), {}}, new(any), []any{[]any{int64(1)}, nil}},
	} {
		if err := Decode(mustEncode(t, c.in), c.out); err != nil {
			t.Errorf("%v into %T: %v", c.in, c.out, err)
			continue
		}
		if got := reflect.ValueOf(c.out).Elem().Interface(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v into %T: got %#v, want %#v", c.in, c.out, got, c.want)
		}
	}
	var held inner
	var box any = &held
	if err := Decode(mustEncode(t, inner{City: "Oslo"}), &box); err != nil || held.City != "Oslo" {
		t.Errorf("pointer held by an interface: got %v, %v", held, err)
	}
	var none any = 1
	if err := Decode(Payload{}, &none); err != nil || none != nil {
		t.Errorf("none: got %v, %v", none, err)
	}
}

func TestValuesThatDoNotFitAreTypedErrorsWithTheirPlace(t *testing.T) {
	for _, c := range []struct {
		in   any
		out  any
		want error
	}{
		{"x", new(int), ErrTypeMismatch},
		{7.0, new(int), ErrTypeMismatch},
		{1, new(string), ErrTypeMismatch},
		{1, new(bool), ErrTypeMismatch},
		{[]byte{1}, new(string), ErrTypeMismatch},
		{"not base64", new([]byte), ErrTypeMismatch},
		{"yesterday", new(time.Time), ErrTypeMismatch},
		{map[string]int{"x": 1}, new(map[int]int), ErrTypeMismatch},
		{[]int{1}, new(inner), ErrTypeMismatch},
		{1, new(error), ErrTypeMismatch},
		{1e300, new(float32), ErrTypeMismatch},
		{300, new(uint8), ErrIntegerOverflow},
		{-1, new(uint), ErrIntegerOverflow},
		{1 << 40, new(int32), ErrIntegerOverflow},
		{1, new(chan int), ErrUnsupportedType},
		{1, nil, ErrUnsupportedType},
		{1, 1, ErrUnsupportedType},
		{1, (*int)(nil), ErrUnsupportedType},
		{1, (*any)(nil), ErrUnsupportedType},
		{1, (*Payload)(nil), ErrUnsupportedType},
	} {
		if err := Decode(mustEncode(t, c.in), c.out); !errors.Is(err, c.want) {
			t.Errorf("%v into %T: got %v, want %v", c.in, c.out, err, c.want)
		}
	}
	var out []struct{ Ship inner }
	err := Decode(mustEncode(t, []any{map[string]any{}, map[string]any{"Ship": map[string]any{"city": 1}}}), &out)
	if err == nil || !strings.Contains(err.Error(), "[1].Ship.city") {
		t.Errorf("error does not say where: %v", err)
	}
}

func TestArgumentsGoByPosition(t *testing.T) {
	p, err := EncodeArgs("Ada", 36, []string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	if empty, _ := EncodeArgs(); empty.Blob != "wwHioz3/VYAiNwwA" {
		t.Errorf("no arguments: got %s", empty.Blob)
	}
	var (
		name string
		age  int
		tags []string
		more = 5
	)
	if err := DecodeArgs(p, &name, &age, &tags, &more); err != nil || name != "Ada" || age != 36 || len(tags) != 1 ||
		more != 5 {
		t.Errorf("got %q %d %v %d, %v", name, age, tags, more, err)
	}
	if err := DecodeArgs(p, &name); !errors.Is(err, ErrArgumentCount) ||
		!strings.Contains(err.Error(), "called with 3 arguments, but takes 1") {
		t.Errorf("too few receivers: %v", err)
	}
	if err := DecodeArgs(p, &age); !errors.Is(err, ErrTypeMismatch) || err.Error() != "argument 1 must be an integer, got a string" {
		t.Errorf("wrong type: %v", err)
	}
	if err := DecodeArgs(Payload{}, &name); err != nil {
		t.Errorf("none: %v", err)
	}
	if err := DecodeArgs(mustEncode(t, "Ada"), &name); !errors.Is(err, ErrArgumentCount) {
		t.Errorf("no array: %v", err)
	}
	parts, err := Args(p)
	if err != nil || len(parts) != 3 || parts[1] != mustEncode(t, 36) {
		t.Errorf("Args: got %v, %v", parts, err)
	}
	second, err := EncodeArgs(parts[0], parts[1], parts[2])
	if err != nil || second != p {
		t.Errorf("joined again: got %s, %v, want %s", second.Blob, err, p.Blob)
	}
	if none, err := Args(Payload{}); err != nil || len(none) != 0 {
		t.Errorf("Args of none: %v, %v", none, err)
	}
	if _, err := Args(mustEncode(t, 1)); !errors.Is(err, ErrArgumentCount) {
		t.Errorf("Args of no array: %v", err)
	}
}

func TestDepthIsLimitedOnBothSides(t *testing.T) {
	nest := func(n int) any {
		var v any = 1
		for range n {
			v = []any{v}
		}
		return v
	}
	deepest := mustEncode(t, nest(MaxDepth))
	if err := Valid(deepest.Blob); err != nil {
		t.Errorf("%d levels: %v", MaxDepth, err)
	}
	if _, err := Encode(nest(MaxDepth + 1)); !errors.Is(err, ErrTooDeep) {
		t.Errorf("one level more: %v", err)
	}
	if _, err := EncodeArgs(deepest); !errors.Is(err, ErrTooDeep) {
		t.Errorf("a payload put one level deeper: %v", err)
	}
	bomb := strict64.EncodeToString([]byte(header + strings.Repeat("\x0c\x02", 700_000)))
	if err := Valid(bomb); !errors.Is(err, ErrInvalidFraming) || !errors.Is(err, ErrTooDeep) ||
		Reason(err) != "invalid_payload_framing" {
		t.Errorf("bomb: %v", err)
	}
	if err := Valid(strings.Repeat("A", MaxBytes+4)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

func TestAWrongCountAllocatesLittle(t *testing.T) {
	// Each level declares as many items as bytes are left, but the last level has no items.
	frame := []byte(header)
	for range MaxDepth {
		frame = append(frame, "\x0c\xfe\xff\x3f"...)
	}
	frame = append(frame, bytes.Repeat([]byte{0xff}, 1<<20)...)
	p := Payload{Blob: strict64.EncodeToString(frame)}
	got := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			var v any
			if err := Decode(p, &v); err == nil {
				b.Fatal("accepted")
			}
		}
	})
	if limit := int64(16 << 20); got.AllocedBytesPerOp() > limit {
		t.Errorf("got %d bytes allocated, want at most %d", got.AllocedBytesPerOp(), limit)
	}
}

func TestPlainViewsWriteDoublesWithoutAFractionAsWholeNumbers(t *testing.T) {
	for given, want := range map[string]string{
		`{"a":7.0,"b":[-2.0,1.05,1.50,3e5],"c":"7.0 \" 8.0","d":{"e":0.0}}`: `{"a":7,"b":[-2,1.05,1.50,3e5],"c":"7.0 \" 8.0","d":{"e":0}}`,
		`7.0`: `7`, `1.0e3`: `1.0e3`, `"\\"`: `"\\"`, `12`: `12`, ``: ``,
	} {
		if got := string(Plain([]byte(given))); got != want {
			t.Errorf("%s: got %s, want %s", given, got, want)
		}
	}
}

func TestViewsAreEncodedBackToTheSameBytes(t *testing.T) {
	given, err := Encode(map[string]any{
		"raw": []byte{0xff, 0}, "deep": []any{map[string]any{"raw": []byte("same")}}, "text": "AP8=", "n": 7.0, "i": 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	view, err := ToJSON(given)
	if err != nil {
		t.Fatal(err)
	}
	back, err := FromView(view)
	if err != nil || back != given {
		t.Errorf("%s: got %v, %v, want %v", view, back, err, given)
	}
	odd := `{"$type":"bytes","base64":"not base64"}`
	if p, err := FromView([]byte(odd)); err != nil || p != must(FromJSON([]byte(odd))) {
		t.Errorf("what is no bytes stays an object: %v, %v", p, err)
	}
}

func must(p Payload, err error) Payload {
	if err != nil {
		panic(err)
	}
	return p
}
