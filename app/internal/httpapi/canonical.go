package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// A checksum covers the content of a document, not its bytes, since tools re-encode the JSON of a bundle. Verifiers in
// other languages must reproduce the canonical form exactly, so it deviates from Go's encoder where necessary.

// canonicalForm is the name of the form of a document over which a checksum is computed.
const canonicalForm = "json-recursive-ksort-v1"

// checksum returns the SHA-256 of a JSON document, without some of its members, in the form json-recursive-ksort-v1:
// keys sorted at every depth, no white space, all non-ASCII characters escaped, fractions in the shortest form that
// parses to the same number. Verifiers in other languages compute it from the received document.
func checksum(document []byte, without ...string) (string, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber() // a float would change integers beyond 2^53, and with them the checksum
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	if m, is := v.(map[string]any); is {
		for _, name := range without {
			delete(m, name)
		}
	}
	canonical, err := appendCanonical(nil, v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

func appendCanonical(b []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendText(b, k), ':')
			if b, err = appendCanonical(b, v[k]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendCanonical(b, item); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case string:
		return appendText(b, v), nil
	case json.Number:
		return appendNumber(b, string(v))
	case bool:
		return strconv.AppendBool(b, v), nil
	}
	return append(b, "null"...), nil
}

// appendText escapes all non-ASCII characters, as UTF-16 surrogate pairs above U+FFFF.
func appendText(b []byte, s string) []byte {
	const short = "\b\f\n\r\t"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' && strings.ContainsRune(short, r):
			b = append(b, '\\', "bfnrt"[strings.IndexRune(short, r)])
		case r < ' ' || r > 0x7f && r <= 0xffff:
			b = fmt.Appendf(b, `\u%04x`, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = append(b, byte(r))
		}
	}
	return append(b, '"')
}

// appendNumber writes integers unchanged, and fractions as decimals from 1e-4 up to 1e17, else with one digit before
// the point and an exponent.
func appendNumber(b []byte, n string) ([]byte, error) {
	if !strings.ContainsAny(n, ".eE") {
		if n == "-0" {
			n = "0"
		}
		return append(b, n...), nil
	}
	f, err := strconv.ParseFloat(n, 64)
	if err != nil {
		return nil, err
	}
	if size := math.Abs(f); size != 0 && (size < 1e-4 || size >= 1e17) {
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
		if !strings.Contains(mantissa, ".") {
			mantissa += ".0"
		}
		power, err := strconv.Atoi(exponent)
		return fmt.Appendf(b, "%se%+d", mantissa, power), err
	}
	plain := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(plain, ".") {
		plain += ".0"
	}
	return append(b, plain...), nil
}
