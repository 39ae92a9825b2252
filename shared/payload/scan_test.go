package payload

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// The fast path checks payloads that are forwarded without decoding. It must reject what the reader rejects, and accept
// what encoders write, else it is useless.
func TestStridesConsumeTheBytesOfTheReader(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	words := []string{
		"", "a", "tags", "seven 7", "eight 88", "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich", "日本語の文章です。",
		"🙂 mixed ñ 漢 end",
	}
	var value func(depth int) any
	value = func(depth int) any {
		switch kind := rnd.IntN(8); {
		case kind == 0:
			return nil
		case kind == 1:
			return rnd.IntN(2) == 0
		case kind == 2:
			return rnd.Int64() >> rnd.IntN(64)
		case kind == 3:
			return rnd.NormFloat64()
		case kind == 4:
			return []byte(words[rnd.IntN(len(words))])
		case kind == 5 && depth < 4:
			items := make([]any, rnd.IntN(5))
			for i := range items {
				items[i] = value(depth + 1)
			}
			return items
		case kind == 6 && depth < 4:
			entries := map[string]any{}
			for range rnd.IntN(5) {
				entries[words[rnd.IntN(len(words))]] = value(depth + 1)
			}
			return entries
		}
		return strings.Repeat(words[rnd.IntN(len(words))], rnd.IntN(4))
	}
	refused := 0
	for range 3000 {
		p, err := EncodeArgs(value(0), value(0))
		if err != nil {
			t.Fatal(err)
		}
		bin, err := appendDecoded([]byte("before"), []byte(p.Blob))
		if want, _ := base64.StdEncoding.DecodeString(p.Blob); err != nil || string(bin) != "before"+string(want) {
			t.Fatalf("%s is decoded as %q: %v", p.Blob, bin, err)
		}
		bin = bin[len("before"):]
		if scan(bin, len(header), 0) != len(bin) {
			t.Fatalf("what was encoded is left to the reader: %q", bin)
		}
		for range 20 { // a byte changed, or the end cut off
			broken := bytes.Clone(bin)
			at := len(header) + rnd.IntN(len(bin)-len(header))
			if rnd.IntN(4) == 0 {
				broken = broken[:at]
			} else {
				broken[at] = byte(rnd.Uint32())
			}
			r := reader{buf: broken, pos: len(header)}
			fine := r.skip() == nil && r.pos == len(broken)
			if !fine {
				refused++
			}
			if scan(broken, len(header), 0) == len(broken) != fine && !fine {
				t.Fatalf("the reader refuses %q", broken)
			}
		}
		text := []byte(p.Blob)
		at := rnd.IntN(len(text))
		text[at] = "=\n\r -_\x00\xffA"[rnd.IntN(9)]
		got, err := appendDecoded(nil, text)
		want, wrong := base64.StdEncoding.Strict().DecodeString(string(text))
		if breaks := bytes.ContainsAny(text, "\r\n"); (err != nil) != (wrong != nil || breaks) ||
			err == nil && string(got) != string(want) {
			t.Fatalf("%s: %v, and by the standard decoder %v", text, err, wrong)
		}
	}
	if refused < 1000 {
		t.Errorf("of what was broken only %d were refused", refused)
	}
	deep := append([]byte(header), bytes.Repeat([]byte{tagArray, 2}, MaxDepth+1)...)
	deep = append(append(deep, tagNull), bytes.Repeat([]byte{0}, MaxDepth+1)...)
	if scan(deep, len(header), 0) == len(deep) {
		t.Error("one level too many is taken")
	}
	if inner := deep[len(header)+2 : len(deep)-1]; scan(inner, 0, 0) != len(inner) {
		t.Error("as many levels as may be are not taken")
	}
}

// Texts of any length are validated as in the standard library, at any position of the first non-ASCII character or
// invalid byte.
func TestValidityOfTextMatchesTheStandardLibrary(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	pieces := []string{
		"a", "words", "ö", "語", "🙂", "\u0000", "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80",
	}
	broken := 0
	for size := range 140 {
		for range 60 {
			text := strings.Repeat("x", size)
			for range rnd.IntN(3) {
				at := rnd.IntN(len(text) + 1)
				text = text[:at] + pieces[rnd.IntN(len(pieces))] + text[at:]
			}
			for _, after := range []string{"", "and what follows"} {
				buf := append(binary.AppendVarint(nil, int64(len(text))), text...)
				end := len(buf)
				if !utf8.ValidString(text) {
					end = -1
					broken++
				}
				if got := scanText(append(buf, after...), 0); got != end {
					t.Fatalf("%q and %q: ends at %d, want %d", text, after, got, end)
				}
			}
		}
	}
	if broken < 1000 {
		t.Errorf("only %d were broken", broken)
	}
}
