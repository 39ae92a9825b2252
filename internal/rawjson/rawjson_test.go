package rawjson_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/sojourn-run/sojourn/internal/rawjson"
)

// object has a field of every type that Read decodes without encoding/json.
type object struct {
	Text  string          `json:"text"`
	Count int64           `json:"count"`
	Raw   json.RawMessage `json:"raw"`
	List  []string        `json:"list"`
	Own   own             `json:"own"`
}

// own is a type with its own UnmarshalJSON.
type own struct{ text string }

func (o *own) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, &o.text) }

func read(raw []byte) (o object, ok bool) {
	ok = rawjson.Read(raw, rawjson.Field{Name: "text", Into: &o.Text}, rawjson.Field{Name: "count", Into: &o.Count},
		rawjson.Field{Name: "raw", Into: &o.Raw}, rawjson.Field{Name: "list", Into: &o.List},
		rawjson.Field{Name: "own", Into: &o.Own})
	return o, ok
}

func TestAnObjectIsReadWithoutParsingRawMembers(t *testing.T) {
	got, ok := read(
		[]byte(
			" { \"text\" : \"a b\" , \"count\":-12,\n\"raw\":{\"}\":[\"\\\"]\",{}]} ,\"list\":[\"x,\",\"\\u00e9\"],\"own\":\"é\"} ",
		),
	)
	if !ok || got.Text != "a b" || got.Count != -12 || string(got.Raw) != `{"}":["\"]",{}]}` || len(got.List) != 2 ||
		got.List[1] != "é" || got.Own.text != "é" {
		t.Errorf("got %+v, %v", got, ok)
	}
}

func TestOtherFormsFallBackToEncodingJSON(t *testing.T) {
	for _, text := range []string{
		``, `{`, `}`, `[]`, `null`, `{"text":"a"`, `{"text":"a",}`, `{,"text":"a"}`, `{"text"}`, `{"text":}`, `{"text":"a"]}`,
		`{"other":1}`, `{"Text":"a"}`,
		`{"text":7}`, `{"count":"7"}`, `{"count":007}`, `{"count":+7}`, `{"count":1.5}`, `{"text":"a}`, `{"list":[1]}`,
		`{"text":"a" "count":1}`, `{"te\u0078t":"a"}`,
		"{\"text\":\"a\nb\"}", "\u00a0{}",
	} {
		if got, ok := read([]byte(text)); ok {
			t.Errorf("%s: got %+v", text, got)
		}
	}
}

// FuzzRead compares Read with encoding/json: values that both accept must be equal, and a text that only one accepts is
// invalid inside a raw member.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"text":"x","count":1,"raw":[1,"}"],"list":["a"],"own":"o"}`, `{}`, ` { } `,
		`{"text":null,"count":null,"raw":null,"list":null,"own":null}`,
		`{"text":"\u0041\ud800","count":-0}`, `{"raw":1 2}`, `{"text":"a","text":"b"}`, "{\"text\":\"\xff\"}",
		`{"count":1e2}`, `{"raw":"\\"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := read(text)
		if !ok {
			return
		}
		if got.Raw != nil && !json.Valid(got.Raw) {
			return
		}
		var want object
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("%s: read as %+v, encoding/json says %v", text, got, err)
		}
		same := got.Text == want.Text && got.Count == want.Count && bytes.Equal(got.Raw, bytes.TrimSpace(want.Raw)) &&
			got.Own == want.Own
		if same = same && len(got.List) == len(want.List); !same {
			t.Fatalf("%s: got %+v, want %+v", text, got, want)
		}
	})
}

func TestStringsAreWrittenAsEncodingJSONWritesThem(t *testing.T) {
	for _, s := range []string{"", "plain", "é", "a\"b\\", "<a&b>", "\x00\n", "\u2028", "\xff", "\x7f"} {
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := rawjson.AppendString(nil, s); !bytes.Equal(got, want) {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	}
}
