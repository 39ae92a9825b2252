package payload

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/twmb/avro"
)

type vectors struct {
	Values []struct {
		Name, JSON, Blob string
		Encode           *bool // false: other writers' spelling of the value, to be read but never written
	}
	Malformed []struct{ Name, Blob, Reason string }
}

func loadVectors(t testing.TB) (v vectors) {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Values) < 20 || len(v.Malformed) < 18 {
		t.Fatalf("vectors: %d values, %d malformed frames", len(v.Values), len(v.Malformed))
	}
	return v
}

func TestVectorsReadAndWriteTheSameBytes(t *testing.T) {
	for _, c := range loadVectors(t).Values {
		t.Run(c.Name, func(t *testing.T) {
			if err := Valid(c.Blob); err != nil {
				t.Errorf("Valid: %v", err)
			}
			got, err := ToJSON(Payload{Blob: c.Blob})
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.JSON {
				t.Errorf("ToJSON: got %s, want %s", got, c.JSON)
			}
			if c.Encode != nil && !*c.Encode {
				return
			}
			p, err := FromJSON([]byte(c.JSON))
			if err != nil {
				t.Fatal(err)
			}
			if p.Blob != c.Blob {
				t.Errorf("FromJSON: got %s, want %s", p.Blob, c.Blob)
			}
		})
	}
}

func TestMalformedFramesAreRefusedWithTheirReason(t *testing.T) {
	for _, c := range loadVectors(t).Malformed {
		t.Run(c.Name, func(t *testing.T) {
			err := Valid(c.Blob)
			if err == nil {
				t.Fatal("Valid accepts it")
			}
			if got := Reason(err); got != c.Reason {
				t.Errorf("Valid: got reason %q, want %q (%v)", got, c.Reason, err)
			}
			if c.Blob == "" {
				return // to Decode that is "none"
			}
			var v any
			if got := Reason(Decode(Payload{Blob: c.Blob}, &v)); got != c.Reason {
				t.Errorf("Decode: got reason %q, want %q", got, c.Reason)
			}
			if _, err := Args(Payload{Blob: c.Blob}); err == nil {
				t.Error("Args accepts it")
			}
		})
	}
}

// A general Avro library with only the schema must give the same results as this package.
func TestAvroLibraryAgreesOnSchemaAndBytes(t *testing.T) {
	schema, err := avro.Parse(Schema)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(schema.Canonical()); got != Schema {
		t.Errorf("Schema is not in canonical form, which is %s", got)
	}
	for _, c := range loadVectors(t).Values {
		frame, err := strict64.DecodeString(c.Blob)
		if err != nil {
			t.Fatal(err)
		}
		var datum any
		rest, err := schema.DecodeSingleObject(frame, &datum, avro.TaggedUnions())
		if err != nil || len(rest) > 0 {
			t.Errorf("%s: library: %v, %d bytes left", c.Name, err, len(rest))
			continue
		}
		second, err := schema.AppendSingleObject(nil, datum)
		if err != nil {
			t.Errorf("%s: library encodes: %v", c.Name, err)
			continue
		}
		got, err := ToJSON(Payload{Blob: strict64.EncodeToString(second)})
		if err != nil || string(got) != c.JSON {
			t.Errorf("%s: written by the library: got %s, %v, want %s", c.Name, got, err, c.JSON)
		}
	}
	for _, c := range loadVectors(t).Malformed {
		if c.Reason != ErrUnsupportedSchema.Error() {
			continue
		}
		frame, _ := strict64.DecodeString(c.Blob)
		var datum any
		if _, err := schema.DecodeSingleObject(frame, &datum); err == nil {
			t.Errorf("%s: library accepts the fingerprint", c.Name)
		}
	}
}

func TestEnvelopeJSON(t *testing.T) {
	for _, c := range []struct{ in, blob string }{
		{`{"codec":"avro","blob":"wwHioz3/VYAiNwA="}`, "wwHioz3/VYAiNwA="},
		{` { "blob" : "wwHioz3\/VYAiNwA=", "codec": "avro", "more": [1] } `, "wwHioz3/VYAiNwA="},
		{`{"codec":"avro","blob":"AA","blob":"wwE="}`, "wwE="},
		{`"wwHioz3/VYAiNwA="`, "wwHioz3/VYAiNwA="},
		{`null`, ""},
	} {
		var p Payload
		if err := json.Unmarshal([]byte(c.in), &p); err != nil || p.Blob != c.blob {
			t.Errorf("%s: got %q, %v, want %q", c.in, p.Blob, err, c.blob)
		}
	}
	for _, c := range []struct {
		in   string
		want error
	}{
		{`{"codec":"json","blob":"1"}`, ErrUnsupportedCodec},
		{`{"codec":null,"blob":"1"}`, ErrUnsupportedCodec},
		{`{"blob":"wwE="}`, ErrUnsupportedCodec},
		{`{"codec":"avro"}`, ErrInvalidFraming},
		{`{"codec":"avro","blob":""}`, ErrInvalidFraming},
		{`{"codec":"avro","blob":7}`, ErrInvalidFraming},
		{`""`, ErrInvalidFraming},
		{`7`, ErrInvalidFraming},
		{`[1]`, ErrInvalidFraming},
	} {
		p := Payload{Blob: "before"}
		if err := json.Unmarshal([]byte(c.in), &p); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.in, err, c.want)
		}
	}
	for _, c := range []struct{ blob, want string }{
		{"wwHioz3/VYAiNwA=", `{"codec":"avro","blob":"wwHioz3/VYAiNwA="}`},
		{"", `null`},
		{`","x":"`, `{"codec":"avro","blob":"\",\"x\":\""}`},
	} {
		got, err := json.Marshal(Payload{Blob: c.blob})
		if err != nil || string(got) != c.want {
			t.Errorf("marshal %q: got %s, %v, want %s", c.blob, got, err, c.want)
		}
	}
}
