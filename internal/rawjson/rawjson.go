// Package rawjson splits JSON text into members and elements without decoding their values.
//
// It does not validate the values; their decoder does. Where a text does not have the expected form, functions return
// false and the caller falls back to encoding/json, which decides whether the text is valid and reports the error.
package rawjson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Field is a member of an object and a pointer for its value. A [json.RawMessage] receives the text, which aliases the
// object's text; a type with UnmarshalJSON must validate it.
type Field struct {
	Name string
	Into any
}

// Read decodes an object that has only these fields. If it returns false, some of them may have been filled.
func Read(object []byte, fields ...Field) bool {
	rest, ok := inside(object, '{', '}')
	for ok && len(rest) > 0 {
		var name, member []byte
		if name, rest, ok = value(rest, ':'); !ok || len(rest) == 0 {
			return false
		}
		if member, rest, ok = value(rest, ','); !ok {
			return false
		}
		ok = read(fields, name, member)
	}
	return ok
}

// Members calls fn with the name, in quotes, and the value of each member of an object, in order. Both alias the
// object's text. It returns false if the text is not an object; fn may have been called by then.
func Members(object []byte, fn func(name, value []byte)) bool {
	rest, ok := inside(object, '{', '}')
	for ok && len(rest) > 0 {
		var name, member []byte
		if name, rest, ok = value(rest, ':'); !ok || len(name) < 2 || name[0] != '"' || len(rest) == 0 {
			return false
		}
		if member, rest, ok = value(rest, ','); ok {
			fn(name, member)
		}
	}
	return ok
}

func read(fields []Field, name, member []byte) bool {
	if len(name) < 2 || name[0] != '"' {
		return false
	}
	for _, f := range fields {
		if f.Name == string(name[1:len(name)-1]) {
			return decode(member, f.Into) == nil
		}
	}
	return false // the member is unknown, or its name is spelled differently
}

func decode(text []byte, into any) error {
	switch v := into.(type) {
	case *json.RawMessage:
		*v = text
		return nil
	case *string:
		if plain(text) {
			*v = string(text[1 : len(text)-1])
			return nil
		}
	case *int64:
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil && isJSONNumber(text) {
			*v = n
			return nil
		}
	case json.Unmarshaler:
		return v.UnmarshalJSON(text)
	}
	return json.Unmarshal(text, into)
}

// plain reports whether text is a string of printable ASCII without escapes.
func plain(text []byte) bool {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return false
	}
	for _, c := range text[1 : len(text)-1] {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// isJSONNumber reports whether digits that were parsed as a number are valid in JSON: without a plus sign and leading
// zeros.
func isJSONNumber(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte{'-'})
	return len(text) == 1 || text[0] >= '1' && text[0] <= '9'
}

// Elements splits an array into its elements, which alias the text; it returns false if the text is not an array.
func Elements(array []byte) ([]json.RawMessage, bool) {
	rest, ok := inside(array, '[', ']')
	items := []json.RawMessage{}
	for ok && len(rest) > 0 {
		var item []byte
		item, rest, ok = value(rest, ',')
		items = append(items, item)
	}
	return items, ok
}

// inside returns the text between a pair of brackets, without the surrounding space.
func inside(text []byte, first, last byte) ([]byte, bool) {
	text = trim(text)
	if len(text) < 2 || text[0] != first || text[len(text)-1] != last {
		return nil, false
	}
	return trim(text[1 : len(text)-1]), true
}

// value splits the first value of text and the following separator from the rest. ok is false if there is no value, or
// nothing after a separator.
func value(text []byte, separator byte) (value, rest []byte, ok bool) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			n := stringLength(text[i:])
			if n == 0 {
				return nil, nil, false
			}
			i += n - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return nil, nil, false
			}
		case separator:
			if depth == 0 {
				value, rest = trim(text[:i]), trim(text[i+1:])
				return value, rest, len(value) > 0 && len(rest) > 0
			}
		}
	}
	value = trim(text)
	return value, nil, depth == 0 && len(value) > 0
}

// stringLength returns the length of the string with which text begins, including its quotes, or 0 if the string does
// not end.
func stringLength(text []byte) int {
	for i := 1; i < len(text); {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			return 0
		}
		i += n
		escapes := 0
		for j := i - 1; j > 0 && text[j] == '\\'; j-- {
			escapes++
		}
		i++
		if escapes%2 == 0 {
			return i
		}
	}
	return 0
}

// trim removes the white space of JSON.
func trim(text []byte) []byte { return bytes.Trim(text, " \t\r\n") }

// unescaped marks the bytes that need no escape in a string in any context.
var unescaped = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = !strings.ContainsRune(`"\\<>&`, c)
	}
	return t
}()

// AppendString appends s as a JSON string in the form of encoding/json, which escapes the characters of HTML markup.
func AppendString[T string | []byte](out []byte, s T) []byte {
	start := len(out)
	out = append(out, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if unescaped[c] {
			continue
		}
		size, code := 1, rune(c)
		if c >= utf8.RuneSelf {
			code, size = utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			switch {
			case code == utf8.RuneError && size == 1:
				return asEncodingJSON(out[:start], string(s))
			case code != '\u2028' && code != '\u2029':
				i += size - 1
				continue
			}
		}
		out = escape(append(out, s[from:i]...), code)
		i += size - 1
		from = i + 1
	}
	out = append(out, s[from:]...)
	return append(out, '"')
}

// asEncodingJSON appends a string that is not UTF-8: the versions of encoding/json encode it differently.
func asEncodingJSON(out []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic("rawjson: a string has no JSON form: " + err.Error())
	}
	return append(out, quoted...)
}

// escape appends a character that must be escaped in a string.
func escape(out []byte, c rune) []byte {
	if i := strings.IndexRune("\"\\\b\f\n\r\t", c); i >= 0 {
		return append(out, '\\', `"\bfnrt`[i])
	}
	const hex = "0123456789abcdef"
	return append(out, '\\', 'u', hex[c>>12&15], hex[c>>8&15], hex[c>>4&15], hex[c&15])
}
