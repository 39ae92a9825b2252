package payload

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

type zeroByValue struct{ N int }

func (z zeroByValue) IsZero() bool { return z.N == 42 }

type zeroByPointer struct{ N int }

func (z *zeroByPointer) IsZero() bool { return z.N == 43 }

type tree struct {
	Left, Right *tree
	Kids        map[string]tree `json:",omitempty"`
	V           int
}

type optional struct {
	A [0]int          `json:"a,omitempty"`
	B bool            `json:"b,omitempty"`
	C *int            `json:"c,omitempty"`
	D any             `json:"d,omitempty"`
	E float32         `json:"e,omitempty"`
	F struct{}        `json:"f,omitempty"`
	G zeroByValue     `json:"g,omitzero"`
	H zeroByPointer   `json:"h,omitzero"`
	I *zeroByValue    `json:"i,omitzero"`
	J struct{ X int } `json:"j,omitzero"`
	K time.Time       `json:"k,omitzero"`
}

func TestOptionalFieldsAreLeftOutAsInJSON(t *testing.T) {
	n := 0
	for _, v := range []any{
		optional{},
		&optional{},
		optional{B: true, C: &n, D: 0, E: 1.5, G: zeroByValue{42}, H: zeroByPointer{43}, I: &zeroByValue{42}},
		&optional{G: zeroByValue{1}, H: zeroByPointer{43}, I: &zeroByValue{1}, J: struct {
			X int
		}{1}, K: time.Unix(1, 0).UTC()},
		[]optional{{H: zeroByPointer{1}}},
	} {
		std, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		want, err := FromJSON(std)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := view(t, mustEncode(t, v)), view(t, want); got != want {
			t.Errorf("got %s, encoding/json has %s", got, want)
		}
	}
}

// Each text is decoded by encoding/json and, through a payload, by Decode, into targets of the same type.
func TestDecodingAgreesWithEncodingJSON(t *testing.T) {
	texts := []string{
		`null`, `true`, `0`, `-7`, `300`, `70000`, `9007199254740993`, `1.0`, `-2.5`, `1e300`, `""`, `"x"`, `"7"`, `"AP8="`,
		`"::1"`, `"true"`,
		`"2026-01-02T03:04:05.5+01:00"`, `[]`, `[1,2,3]`, `[1,null]`, `["a","b"]`, `[[1],[]]`, `[1.5]`, `{}`, `{"a":1,"B":2}`,
		`{"1":"x","2":"y"}`,
		`{"-1":1}`, `{"::1":5}`,
		`{"id":7,"KIND":"k","Last":true,"big":"12","hash":[1,2,3],"temp":{"celsius":3},"addr":"::1"}`, `{"big":null}`,
		`{"big":"x"}`, `{"big":5}`,
		`{"ship":null,"bill":{"city":"Rom"},"tags":["a"],"at":"2026-01-02T03:04:05Z","counts":{"4":5}}`,
		`{"Left":{"Kids":{"a":{"V":2}},"V":1},"V":3}`, `{"s":"\"q\"","n":"5","b":"true"}`, `{"s":null,"n":null,"b":null}`,
	}
	type quoted struct {
		S *string  `json:"s,string"`
		N *float64 `json:"n,string"`
		B bool     `json:"b,string"`
	}
	targets := []reflect.Type{
		reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[uint16](),
		reflect.TypeFor[float32](),
		reflect.TypeFor[float64](), reflect.TypeFor[string](), reflect.TypeFor[[]byte](), reflect.TypeFor[[]int](),
		reflect.TypeFor[[2]int](),
		reflect.TypeFor[[]string](), reflect.TypeFor[[][]int](), reflect.TypeFor[[]*int](), reflect.TypeFor[map[string]int](),
		reflect.TypeFor[*int](),
		reflect.TypeFor[**string](), reflect.TypeFor[map[int]string](), reflect.TypeFor[map[int8]int](),
		reflect.TypeFor[map[uint]string](),
		reflect.TypeFor[map[netip.Addr]int](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[*time.Time](),
		reflect.TypeFor[time.Time](),
		reflect.TypeFor[order](), reflect.TypeFor[tree](), reflect.TypeFor[celsius](), reflect.TypeFor[error](),
		reflect.TypeFor[quoted](),
		reflect.TypeFor[struct {
			base
		}](), reflect.TypeFor[map[string]json.RawMessage](), reflect.TypeFor[[]float64](), reflect.TypeFor[chan int](),
	}
	agreed := 0
	for _, text := range texts {
		if secondEngine && strings.Contains(text, "KIND") {
			continue
		}
		p, err := FromJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, typ := range targets {
			want, got := reflect.New(typ), reflect.New(typ)
			wantErr, err := json.Unmarshal([]byte(text), want.Interface()), Decode(p, got.Interface())
			if typ.Kind() == reflect.Chan && text == "null" {
				continue // encoding/json accepts null into anything
			}
			if (wantErr == nil) != (err == nil) {
				t.Errorf("%s into %s: got %v, encoding/json says %v", text, typ, err, wantErr)
			}
			if err != nil && Reason(err) == "" {
				t.Errorf("%s into %s: error without a reason: %v", text, typ, err)
			}
			if err == nil && wantErr == nil {
				if agreed++; !reflect.DeepEqual(got.Interface(), want.Interface()) {
					t.Errorf("%s into %s: got %+v, encoding/json has %+v", text, typ, got.Elem(), want.Elem())
				}
			}
		}
	}
	if agreed < 100 {
		t.Errorf("only %d pairs were decoded by both", agreed)
	}
}

func TestFirstUseOfARecursiveTypeByManyAtOnce(t *testing.T) {
	type node struct {
		Next *node
		Side map[string][]*node
		V    int
	}
	in := node{Next: &node{V: 2}, Side: map[string][]*node{"a": {{V: 3}}}, V: 1}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			p, err := Encode(in)
			if err != nil {
				t.Error(err)
				return
			}
			var out node
			if err := Decode(p, &out); err != nil || !reflect.DeepEqual(in, out) {
				t.Errorf("got %+v, %v", out, err)
			}
		})
	}
	all.Wait()
}
