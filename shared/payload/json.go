package payload

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// FromJSON encodes one plain JSON value: 1 becomes a long, 1.0 and 1e0 doubles; an integer outside signed 64 bit is
// ErrIntegerOverflow, anything that is not exactly one JSON value ErrInvalidJSON. Object keys are sorted; of equal keys
// the last counts.
func FromJSON(raw []byte) (Payload, error) { return fromJSON(raw, false) }

// FromView encodes the result of ToJSON: like FromJSON, but a tagged object of bytes becomes bytes again.
func FromView(raw []byte) (Payload, error) { return fromJSON(raw, true) }

func fromJSON(raw []byte, tagged bool) (Payload, error) {
	b := buffers.Get().(*buffer)
	defer b.release()
	w := writer{buf: append(b.bin[:0], header...)}
	err := w.json(raw, tagged)
	b.bin = w.buf
	if err != nil {
		return Payload{}, err
	}
	return b.seal(MaxBytes)
}

// ToJSON returns the decoded value for display and APIs: keys sorted, integers and doubles distinct (7 and 7.0), bytes
// as {"$type":"bytes","base64":"…"}; none is null.
func ToJSON(p Payload) (json.RawMessage, error) {
	if p.IsZero() {
		return json.RawMessage("null"), nil
	}
	b := buffers.Get().(*buffer)
	defer b.release()
	r, err := b.openFrame(p.Blob)
	if err != nil {
		return nil, err
	}
	out, err := r.json(make([]byte, 0, len(b.bin)+len(b.bin)/8), true)
	if err != nil {
		return nil, err
	}
	return out, r.mustBeAtEnd()
}

// appendDouble writes a fraction or exponent, so that FromJSON decodes a double again.
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

// Plain returns JSON in the plain form of the HTTP API, in which a double without a fraction is an integer (7.0 is 7).
// Only envelopes distinguish them.
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

// wholeNumber reports whether the digits after the point are a single zero.
func wholeNumber(rest []byte) bool {
	return len(rest) > 0 && rest[0] == '0' &&
		(len(rest) == 1 || !bytes.ContainsRune([]byte("0123456789eE"), rune(rest[1])))
}
