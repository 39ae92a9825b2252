package rawjson

import (
	"encoding/json"
	"sync"
)

// An encoder keeps the memory it writes into, and what it wrote is copied out once. One for each value would grow that
// memory anew each time, and throw away more than the value has.
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

// mostKept is the largest text after which an encoder is used again.
const mostKept = 1 << 20

// Write takes a whole text, with the newline behind it.
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
