package payload

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/shared/rawjson"
)

// FromJSON encodes one plain JSON value: 1 becomes a long, 1.0 and 1e0 doubles; an integer outside signed 64 bit is
// ErrIntegerOverflow, anything that is not exactly one JSON value ErrInvalidJSON. Object keys are sorted; of equal keys
// the last counts.
func FromJSON(raw []byte) (Payload, error) { return fromJSON(raw, false) }

// FromView encodes what ToJSON gave: as FromJSON does, and a tagged object of bytes becomes bytes again.
func FromView(raw []byte) (Payload, error) { return fromJSON(raw, true) }

func fromJSON(raw []byte, tagged bool) (Payload, error) {
	b := buffers.Get().(*buffer)
	defer b.release()
	w := writer{buf: append(b.bin[:0], header...)}
	v, err := readJSON(raw)
	if err == nil {
		if tagged {
			v = untag(v)
		}
		err = w.any(v)
	}
	b.bin = w.buf
	if err != nil {
		return Payload{}, err
	}
	return b.seal()
}

// json writes the value a JSON text stands for.
func (w *writer) json(raw []byte) error {
	v, err := readJSON(raw)
	if err != nil {
		return err
	}
	return w.any(v)
}

// readJSON reads one value, its numbers as they are written.
func readJSON(raw []byte) (v any, err error) {
	if len(raw) == 0 {
		return nil, fmt.Errorf("%w: empty text", ErrInvalidJSON)
	}
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("%w: JSON text", ErrInvalidUTF8)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidJSON, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: more than one value", ErrInvalidJSON)
	}
	return v, nil
}

// untag puts bytes in the place of the objects that stand for them.
func untag(v any) any {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			v[i] = untag(item)
		}
	case map[string]any:
		if text, ok := v["base64"].(string); ok && len(v) == 2 && v["$type"] == "bytes" {
			if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
				return raw
			}
		}
		for key, item := range v {
			v[key] = untag(item)
		}
	}
	return v
}

// ToJSON is the decoded view for people and APIs: keys sorted, integers and doubles distinct (7 and 7.0), bytes as
// {"$type":"bytes","base64":"…"}; none is null.
func ToJSON(p Payload) (json.RawMessage, error) {
	var v any
	if err := Decode(p, &v); err != nil {
		return nil, err
	}
	return appendJSON(nil, v, true), nil
}

// appendJSON writes a plain value as read by reader.any. Bytes are a tagged object or, as encoding/json has it, their
// base64 text.
func appendJSON(out []byte, v any, tagged bool) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(out, v)
	case int64:
		return strconv.AppendInt(out, v, 10)
	case float64:
		return appendDouble(out, v)
	case string:
		return rawjson.AppendString(out, v)
	case []byte:
		if tagged {
			out = append(out, `{"$type":"bytes","base64":`...)
		}
		out = append(out, '"')
		out = base64.StdEncoding.AppendEncode(out, v)
		out = append(out, '"')
		if tagged {
			out = append(out, '}')
		}
		return out
	case []any:
		out = append(out, '[')
		for i, item := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendJSON(out, item, tagged)
		}
		return append(out, ']')
	case map[string]any:
		out = append(out, '{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(rawjson.AppendString(out, key), ':')
			out = appendJSON(out, v[key], tagged)
		}
		return append(out, '}')
	}
	return append(out, "null"...)
}

// appendDouble keeps a fraction or exponent in the text, so that FromJSON makes a double of it again.
func appendDouble(out []byte, f float64) []byte {
	start := len(out)
	format := byte('f')
	if abs := max(f, -f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	out = strconv.AppendFloat(out, f, format, -1, 64)
	if bytes.IndexByte(out[start:], '.') < 0 && bytes.IndexByte(out[start:], 'e') < 0 {
		out = append(out, ".0"...)
	}
	return out
}

// Plain is JSON as the contract's plain views have it: doubles without a fraction are whole numbers there (7.0 is 7),
// which only envelopes tell apart.
func Plain(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte(".0")) {
		return raw
	}
	out := make(json.RawMessage, 0, len(raw))
	quoted := false
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case quoted && c == '\\':
			out = append(out, c)
			i++
			c = raw[i]
		case c == '"':
			quoted = !quoted
		case !quoted && c == '.' && wholeNumber(raw[i+1:]):
			i++
			continue
		}
		out = append(out, c)
	}
	return out
}

// wholeNumber says whether what follows the point of a number is a single zero.
func wholeNumber(rest []byte) bool {
	return len(rest) > 0 && rest[0] == '0' &&
		(len(rest) == 1 || !bytes.ContainsRune([]byte("0123456789eE"), rune(rest[1])))
}
