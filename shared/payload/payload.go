// Package payload encodes Go values as stored payloads (the avro envelope) and decodes them.
//
// Every input, argument list, result and failure detail is stored as standard base64 of an Avro single-object frame
// with one fixed recursive schema (Schema), which all languages share.
package payload

import (
	"bytes"
	"encoding/json"
	"unsafe"
)

// Codec is the only codec of an envelope.
const Codec = "avro"

// MaxBytes is the maximum length of a blob, in bytes of base64 text, the form in which it is stored and transported.
const MaxBytes = 2 << 20

// MaxDepth is the maximum nesting of arrays and maps.
const MaxDepth = 512

// Payload is an encoded value: the base64 text of the frame, or empty for "none". It is immutable. A Payload from
// another process may be malformed: validate it once with Valid before storing it.
//
// A Payload in a Go value stands for the value that it contains: Encode and EncodeArgs insert its content, and decoding
// into a Payload copies the element without decoding it.
type Payload struct{ Blob string }

// Text returns the blob as bytes without a copy. Callers must not modify them.
func (p Payload) Text() []byte { return unsafe.Slice(unsafe.StringData(p.Blob), len(p.Blob)) }

// OfText returns the payload whose blob is text, without a copy. The caller must not modify text afterwards.
func OfText(text []byte) Payload {
	return Payload{Blob: unsafe.String(unsafe.SliceData(text), len(text))}
}

// IsZero reports whether there is no value at all; an encoded null is a value.
func (p Payload) IsZero() bool { return p.Blob == "" }

const (
	envelopeHead = `{"codec":"` + Codec + `","blob":"`
	envelopeTail = `"}`
)

// MarshalJSON returns {"codec":"avro","blob":"…"}, or null for none.
func (p Payload) MarshalJSON() ([]byte, error) {
	if p.IsZero() {
		return []byte("null"), nil
	}
	out := make([]byte, 0, len(envelopeHead)+len(p.Blob)+len(envelopeTail))
	out = append(out, envelopeHead...)
	if plainText(p.Blob) {
		out = append(out, p.Blob...)
		return append(out, envelopeTail...), nil
	}
	quoted, err := json.Marshal(p.Blob) // the blob is not base64 but is still quoted, so that it cannot end the string
	if err != nil {
		return nil, err
	}
	out = append(out[:len(out)-1], quoted...)
	return append(out, '}'), nil
}

// UnmarshalJSON accepts an envelope object, a bare string (the blob alone, as in history events) or null. For another
// codec the error is ErrUnsupportedCodec, for another shape ErrInvalidFraming. It does not check the blob: see Valid.
func (p *Payload) UnmarshalJSON(raw []byte) error {
	if len(raw) > len(envelopeHead)+len(envelopeTail) && string(raw[:len(envelopeHead)]) == envelopeHead {
		blob := raw[len(envelopeHead) : len(raw)-len(envelopeTail)]
		if string(raw[len(raw)-len(envelopeTail):]) == envelopeTail && plainText(blob) {
			p.Blob = string(blob)
			return nil
		}
	}
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		p.Blob = ""
		return nil
	}
	if len(raw) == 0 {
		return fail(ErrInvalidFraming, "the payload is not a JSON value")
	}
	switch raw[0] {
	case '"':
		var blob string
		if err := json.Unmarshal(raw, &blob); err != nil {
			return fail(ErrInvalidFraming, "invalid payload: %w", err)
		}
		return p.set(blob)
	case '{':
		var envelope struct {
			Codec *string `json:"codec"`
			Blob  *string `json:"blob"`
		}
		if err := json.Unmarshal(raw, &envelope); err != nil {
			return fail(ErrInvalidFraming, "invalid payload envelope: %w", err)
		}
		if envelope.Codec == nil {
			return fail(ErrUnsupportedCodec, "the payload envelope has no codec")
		}
		if *envelope.Codec != Codec {
			return fail(ErrUnsupportedCodec, "unsupported payload codec %.40q", *envelope.Codec)
		}
		if envelope.Blob == nil {
			return fail(ErrInvalidFraming, "the payload envelope has no blob")
		}
		return p.set(*envelope.Blob)
	}
	return fail(ErrInvalidFraming, "a payload must be an envelope, a base64 string or null")
}

func (p *Payload) set(blob string) error {
	if blob == "" {
		return fail(ErrInvalidFraming, "the payload blob is empty")
	}
	p.Blob = blob
	return nil
}

// plainText reports whether s is made of the base64 alphabet alone, and so needs no escaping in JSON.
func plainText[T string | []byte](s T) bool {
	for i := range len(s) {
		if !base64Byte[s[i]] {
			return false
		}
	}
	return true
}

var base64Byte = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") {
		t[c] = true
	}
	return t
}()
