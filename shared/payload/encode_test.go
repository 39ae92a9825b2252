package payload

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"time"
)

type inner struct {
	City string `json:"city"`
	Zip  string `json:"zip,omitempty"`
}

type base struct {
	ID   int    `json:"id"`
	Kind string // shadowed by order.Kind
}

type Tail struct{ Last bool }

type celsius float64

func (c celsius) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]float64{"celsius": float64(c)})
}

func (c *celsius) UnmarshalJSON(raw []byte) error {
	var m map[string]float64
	err := json.Unmarshal(raw, &m)
	*c = celsius(m["celsius"])
	return err
}

type byPointer struct{ N int }

func (p *byPointer) MarshalText() ([]byte, error) { return []byte("pointed"), nil }

type order struct {
	base
	*Tail
	Kind    string          `json:"kind"`
	Ship    inner           `json:"ship"`
	Bill    *inner          `json:"bill"`
	Note    string          `json:"note,omitempty"`
	Tags    []string        `json:"tags"`
	Data    []byte          `json:"data,omitempty"`
	At      time.Time       `json:"at,omitzero"`
	Big     int64           `json:"big,string"`
	Temp    celsius         `json:"temp"`
	Addr    netip.Addr      `json:"addr"`
	Raw     json.RawMessage `json:"raw,omitempty"`
	Any     any             `json:"any"`
	Counts  map[int]int     `json:"counts,omitempty"`
	Text    []byPointer     `json:"text,omitempty"`
	Hash    [2]byte         `json:"hash"`
	Skipped chan int        `json:"-"`
	hidden  int
}

func sampleOrder() order {
	return order{
		base: base{ID: 7, Kind: "hidden"}, Kind: "web", Ship: inner{City: "Köln"}, Big: 9, Temp: 21.5,
		Addr: netip.MustParseAddr("10.0.0.1"), Raw: json.RawMessage(`{"b":1.0,"a":[1]}`),
		Any:    map[string]any{"z": 1, "a": nil},
		Counts: map[int]int{10: 1, 9: 2}, Text: []byPointer{{1}}, Data: []byte{0, 255}, hidden: 1,
		At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
	}
}

func view(t *testing.T, p Payload) string {
	t.Helper()
	raw, err := ToJSON(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestGoValuesFollowTheNamesOfJSON(t *testing.T) {
	p, err := Encode(sampleOrder())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"addr":"10.0.0.1","any":{"a":null,"z":1},"at":"2026-01-02T03:04:05.000006Z","big":"9","bill":null,` +
		`"counts":{"10":1,"9":2},"data":{"$type":"bytes","base64":"AP8="},"hash":[0,0],"id":7,"kind":"web",` +
		`"raw":{"a":[1],"b":1.0},"ship":{"city":"Köln"},"tags":null,"temp":{"celsius":21.5},"text":["pointed"]}`
	// encoding/json prefers the shallower Kind over base.Kind only when they share a name; "Kind" and "kind" differ.
	want = strings.Replace(want, `{"addr"`, `{"Kind":"hidden","addr"`, 1)
	if got := view(t, p); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A value without bytes, floats and raw JSON is equal after a round trip through encoding/json.
func TestStructRulesAgreeWithEncodingJSON(t *testing.T) {
	type A struct{ X, Y int }
	type B struct {
		X int
		Y int `json:"Y"`
	}
	type both struct { // X annihilates, Y is B's because it is tagged
		A
		B
	}
	type rec struct {
		Next *rec `json:"next,omitempty"`
		V    uint8
	}
	type odd struct {
		Dash  int `json:"-,"`
		Iface error
		P     **int `json:"p"`
		E     struct{}
		F     []int          `json:",omitempty"`
		M     map[string]int `json:"m"`
		S     *string        `json:"s,string"`
		B     bool           `json:"b,string"`
	}
	type quotedName struct {
		Bad int `json:"a\"b"`
	}
	n := 3
	pn, s := &n, `quo"te`
	values := []any{
		both{A{1, 2}, B{3, 4}},
		rec{&rec{nil, 2}, 1},
		odd{2, nil, &pn, struct{}{}, nil, nil, &s, true},
		odd{},
		struct{ *A }{},
		struct {
			*A
		}{&A{1, 2}},
		&both{},
		[]*rec{nil, {}},
		[2]string{"a"},
		map[netip.Addr]int{netip.MustParseAddr("::1"): 1},
		map[uint16][]any{3: {1, "x", nil, true}},
		(*rec)(nil),
		[]string{},
		[]string(nil),
		map[string]int{},
		uint64(math.MaxInt64), "a<b\u2028",
		time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)), big.NewInt(5), json.Number("12"), json.Number(""),
		new(json.RawMessage("[1]")),
	}
	if !secondEngine {
		values = append(values, quotedName{1})
	}
	for _, v := range values {
		p, err := Encode(v)
		if err != nil {
			t.Errorf("%#v: %v", v, err)
			continue
		}
		std, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		want, err := FromJSON(std)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := view(t, p), view(t, want); got != want {
			t.Errorf("%T: got %s, encoding/json has %s", v, got, want)
		}
	}
}

func TestEncodingIsDeterministicInOrder(t *testing.T) {
	type pair struct{ B, A int }
	p, err := Encode(pair{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if want := "wwHioz3/VYAiNw4EAkIEAgJBBAQA"; p.Blob != want {
		t.Errorf("struct fields are not in declaration order: got %s, want %s", p.Blob, want)
	}
	m := map[string]any{}
	for _, key := range strings.Split("qwertzuiopasdfghjklyxcvbnm", "") {
		m[key] = key
	}
	first, _ := Encode(m)
	for range 20 {
		if second, err := Encode(m); err != nil || second != first {
			t.Fatalf("map gave other bytes: %v", err)
		}
	}
	typed := map[string]string{}
	for key := range m {
		typed[key] = key
	}
	if second, _ := Encode(typed); second != first {
		t.Error("map[string]string is not written as map[string]any")
	}
}

func TestUnencodableValuesAreRefusedByKind(t *testing.T) {
	type ring struct{ Next *ring }
	loop := &ring{}
	loop.Next = loop
	type self *self
	var me self
	me = &me
	cyclic := map[string]any{}
	cyclic["me"] = cyclic
	for _, c := range []struct {
		name string
		v    any
		want error
	}{
		{"uint64", uint64(math.MaxInt64) + 1, ErrIntegerOverflow},
		{"json.Number", json.Number("9223372036854775808"), ErrIntegerOverflow},
		{"raw JSON integer", json.RawMessage(`[-9223372036854775809]`), ErrIntegerOverflow},
		{"big.Int", new(big.Int).Lsh(big.NewInt(1), 64), ErrIntegerOverflow},
		{"NaN", math.NaN(), ErrNonFinite},
		{"infinity in a float32", []float32{float32(math.Inf(1))}, ErrNonFinite},
		{"huge json.Number", json.Number("1e999"), ErrNonFinite},
		{"no number", json.Number("seven"), ErrInvalidJSON},
		{"hexadecimal number", json.Number("0x1.8p1"), ErrInvalidJSON},
		{"string not UTF-8", "a\xff", ErrInvalidUTF8},
		{"key not UTF-8", map[string]int{"\xff": 1}, ErrInvalidUTF8},
		{"channel", make(chan int), ErrUnsupportedType},
		{"function in a field", struct{ F func() }{}, ErrUnsupportedType},
		{"complex", complex(1, 2), ErrUnsupportedType},
		{"map key", map[float64]int{1: 1}, ErrUnsupportedType},
		{"year 10000", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), ErrUnsupportedType},
		{"bad raw JSON", json.RawMessage(`{`), ErrInvalidJSON},
		{"ring of structs", loop, ErrTooDeep},
		{"pointer to itself", me, ErrTooDeep},
		{"map in itself", cyclic, ErrTooDeep},
		{"too large", strings.Repeat("x", MaxBytes), ErrTooLarge},
		{"too large in pieces", make([][]int, MaxBytes), ErrTooLarge},
		{"bad payload", Payload{Blob: "x"}, ErrInvalidFraming},
		{"bad payload inside", []any{Payload{Blob: "x"}}, ErrInvalidFraming},
	} {
		t.Run(c.name, func(t *testing.T) {
			if p, err := Encode(c.v); !errors.Is(err, c.want) || !p.IsZero() {
				t.Errorf("got %.40s, %v, want %v", p.Blob, err, c.want)
			}
		})
	}
	if _, err := Encode(map[string]any{"a": []any{1, struct{ Rate float64 }{math.NaN()}}}); err == nil ||
		!strings.Contains(err.Error(), ".a[1].Rate") {
		t.Errorf("error does not say where: %v", err)
	}
}

func TestFromJSONRejectsAnythingButOneValue(t *testing.T) {
	for _, c := range []struct {
		in   string
		want error
	}{
		{``, ErrInvalidJSON},
		{`1 2`, ErrInvalidJSON},
		{`{"a":}`, ErrInvalidJSON},
		{`nul`, ErrInvalidJSON},
		{"\"\xff\"", ErrInvalidUTF8},
		{`18446744073709551616`, ErrIntegerOverflow},
		{`-1e400`, ErrNonFinite},
		{`01`, ErrInvalidJSON},
		{strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), ErrTooDeep},
		{strings.Repeat("[", 100_000), ErrInvalidJSON},
	} {
		if _, err := FromJSON([]byte(c.in)); !errors.Is(err, c.want) {
			t.Errorf("%.40q: got %v, want %v", c.in, err, c.want)
		}
	}
	for in, want := range map[string]string{
		`{"b":1,"a":1.0,"b":2}`: `{"a":1.0,"b":2}`, ` 1e2 `: `100.0`, `-0`: `0`, `1e-7`: `1e-07`, `1e21`: `1e+21`,
		`"\ud800"`: "\"\ufffd\"",
	} {
		p, err := FromJSON([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if got := view(t, p); got != want && got != strings.ReplaceAll(want, "\ufffd", `\ufffd`) {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}
