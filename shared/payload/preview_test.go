package payload

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// A preview is the beginning of the JSON text, from any beginning of the blob.
func TestAPreviewIsTheBeginningOfTheJSON(t *testing.T) {
	for _, text := range []string{
		`null`, `true`, `7`, `7.5`, `"short"`, `[1,"two",{"three":[4.5,null]}]`,
		`"` + strings.Repeat("é😀<", 900) + `"`,
		`["` + strings.Repeat("x", 10_000) + `",1]`,
		`{"a":"` + strings.Repeat("y\\n", 3000) + `","b":{"c":[` + strings.Repeat("123456,", 2000) + `0]}}`,
		`{"$type":"bytes","base64":"AAEC"}`,
	} {
		p, err := FromView([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		whole, err := ToJSON(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, most := range []int{1, 10, 1000, 4096, 1 << 20} {
			for _, blob := range []string{p.Blob, p.Blob[:min(len(p.Blob), 2*most+40)]} {
				got, err := Preview(blob, most)
				if len(blob) < 16 { // shorter than the header
					continue
				}
				if err != nil {
					t.Fatalf("%.40s, %d bytes: %v", text, most, err)
				}
				if !strings.HasPrefix(string(whole), got) || len(got) > most || !utf8.ValidString(got) {
					t.Errorf("%.40s, %d bytes: %.60q is not the beginning", text, most, got)
				}
				if most >= 1000 && len(whole) > most && len(got) < most*3/4 {
					t.Errorf("%.40s, %d bytes: the preview has only %d bytes", text, most, len(got))
				}
				if most == 1<<20 && got != string(whole) {
					t.Errorf("%.40s: the preview of a small value is %.60q", text, got)
				}
			}
		}
	}
}

func TestPreviewRejectsInvalidPayloads(t *testing.T) {
	for _, blob := range []string{"", "AAAA", "not base64 at all", strings.Repeat("QUJD", 4000)} {
		if got, err := Preview(blob, 4096); err == nil {
			t.Errorf("%.20q has the preview %.40q", blob, got)
		}
	}
}

func FuzzPreview(f *testing.F) {
	for _, text := range []string{`[1,{"a":"b"}]`, `"é"`, `[[[]]]`} {
		p, err := FromJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p.Blob, 9)
	}
	f.Fuzz(func(t *testing.T, blob string, most int) {
		if most < 0 || most > 1<<16 {
			return
		}
		got, err := Preview(blob, most)
		if err != nil {
			return
		}
		if len(got) > most {
			t.Fatalf("%d bytes of at most %d", len(got), most)
		}
		if whole, err := ToJSON(Payload{Blob: blob}); err == nil && !json.Valid(whole) {
			t.Fatalf("invalid JSON %q", whole)
		}
	})
}
