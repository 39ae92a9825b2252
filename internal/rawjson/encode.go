package rawjson

import (
	"encoding/json"
	"sync"
)

// encoder reuses its buffer, and the text is copied once. A new buffer for each value would grow step by step each time
// and discard more memory than the text has.
type encoder struct {
	to  *json.Encoder
	out []byte
}

var encoders = sync.Pool{New: func() any {
	e := &encoder{}
	e.to = json.NewEncoder(e)
	e.to.SetEscapeHTML(false)
	return e
}}

// mostKept is the maximum size of the buffer of an encoder that is used again.
const mostKept = 1 << 20

// Write receives the whole JSON text, with a newline at its end.
func (e *encoder) Write(text []byte) (int, error) {
	e.out = append(e.out, text[:len(text)-1]...)
	return len(text), nil
}

// Append appends v as JSON, in which <, > and & are not escaped.
func Append(to []byte, v any) ([]byte, error) {
	e, _ := encoders.Get().(*encoder)
	e.out = to
	err := e.to.Encode(v)
	out := e.out
	e.out = nil
	if len(out)-len(to) <= mostKept {
		encoders.Put(e)
	}
	return out, err
}
