package payload

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// plainValue generates a value in the form of Decode's result for *any.
func plainValue(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.Float64().Filter(func(f float64) bool {
			return !math.IsInf(f, 0) && !math.IsNaN(f)
		}), func(f float64) any {
			return f
		}),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) any { return b }),
		rapid.Map(rapid.String(), func(s string) any { return s }),
	}
	if depth > 0 {
		inner := rapid.Deferred(func() *rapid.Generator[any] { return plainValue(depth - 1) })
		kinds = append(kinds,
			rapid.Map(rapid.SliceOfN(inner, 0, 5), func(items []any) any { return items }),
			rapid.Map(rapid.MapOfN(rapid.String(), inner, 0, 5), func(m map[string]any) any { return m }))
	}
	return rapid.OneOf(kinds...)
}

func TestAnyValueSurvivesTheRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := plainValue(4).Draw(t, "value")
		p, err := Encode(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := Valid(p.Blob); err != nil {
			t.Fatal(err)
		}
		var out any
		if err := Decode(p, &out); err != nil || !reflect.DeepEqual(in, out) {
			t.Fatalf("got %#v, %v, want %#v", out, err, in)
		}
		second, err := Encode(out)
		if err != nil || second != p {
			t.Fatalf("encoded again: got %s, %v, want %s", second.Blob, err, p.Blob)
		}
		wire, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Payload
		if err := json.Unmarshal(wire, &back); err != nil || back != p {
			t.Fatalf("over JSON: got %v, %v", back, err)
		}
	})
}

type record struct {
	Name  string             `json:"name"`
	N     int32              `json:"n,omitempty"`
	F     float64            `json:"f"`
	Ok    *bool              `json:"ok"`
	Raw   []byte             `json:"raw"`
	Kids  []record           `json:"kids"`
	Attrs map[string]float64 `json:"attrs"`
}

func TestAnyStructSurvivesTheRoundTrip(t *testing.T) {
	number := rapid.Float64Range(-1e300, 1e300)
	draw := func(kids *rapid.Generator[[]record]) *rapid.Generator[record] {
		return rapid.Custom(func(t *rapid.T) record {
			return record{
				Name: rapid.String().Draw(t, "name"), N: rapid.Int32().Draw(t, "n"), F: number.Draw(t, "f"),
				Ok: rapid.Ptr(rapid.Bool(), true).Draw(t, "ok"), Raw: rapid.SliceOf(rapid.Byte()).Draw(t, "raw"),
				Kids: kids.Draw(t, "kids"), Attrs: rapid.MapOfN(rapid.String(), number, 0, 4).Draw(t, "attrs"),
			}
		})
	}
	leaf := draw(rapid.Just[[]record](nil))
	tree := draw(rapid.SliceOfN(leaf, 0, 4))
	rapid.Check(t, func(t *rapid.T) {
		in := tree.Draw(t, "record")
		p, err := EncodeArgs(in, &in)
		if err != nil {
			t.Fatal(err)
		}
		var out record
		var ptr *record
		if err := DecodeArgs(p, &out, &ptr); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(in, out) || !reflect.DeepEqual(in, *ptr) {
			t.Fatalf("got %+v, want %+v", out, in)
		}
	})
}

// FuzzDecode decodes arbitrary blobs: there is no panic, Valid and Decode agree, and an accepted blob is stable.
func FuzzDecode(f *testing.F) {
	v := loadVectors(f)
	for _, c := range v.Values {
		f.Add(c.Blob)
	}
	for _, c := range v.Malformed {
		f.Add(c.Blob)
	}
	f.Fuzz(func(t *testing.T, blob string) {
		p := Payload{Blob: blob}
		if p.IsZero() {
			return
		}
		valid := Valid(blob)
		if valid != nil && Reason(valid) == "" {
			t.Fatalf("error without a reason: %v", valid)
		}
		var out any
		if err := Decode(p, &out); (err == nil) != (valid == nil) {
			t.Fatalf("Decode says %v, Valid says %v", err, valid)
		}
		var typed record
		_ = Decode(p, &typed) // may not fit; must not panic
		if valid != nil {
			return
		}
		second, err := Encode(out)
		if err != nil {
			t.Fatalf("encoding what was decoded: %v", err)
		}
		var same any
		if err := Decode(second, &same); err != nil || !reflect.DeepEqual(out, same) {
			t.Fatalf("got %#v, %v, want %#v", same, err, out)
		}
		text, err := ToJSON(p)
		if err != nil || !json.Valid(text) {
			t.Fatalf("ToJSON: %s, %v", text, err)
		}
		if _, err := FromJSON(text); err != nil {
			t.Fatalf("FromJSON of %s: %v", text, err)
		}
	})
}
