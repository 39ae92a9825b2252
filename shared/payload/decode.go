package payload

import (
	"reflect"
)

// Decode decodes p into the value that out points to, by the names and types of encoding/json: unknown keys are
// ignored, keys match field names exactly or, failing that, in another case, null does not change values other than
// pointers, maps, slices and interfaces, and types with json.Unmarshaler or encoding.TextUnmarshaler decode themselves.
// None counts as null. An *any receives nil, bool, int64, float64, []byte, string, []any or map[string]any; a *Payload
// receives the encoded value. A []byte accepts bytes, a string of base64 or an array of numbers.
//
// For a value of the wrong type the error is ErrTypeMismatch or ErrIntegerOverflow, with its path; a double is never
// converted to an integer. After an error the value may be partly filled.
func Decode(p Payload, out any) error {
	if p.IsZero() {
		return decodeNull(out)
	}
	b := buffers.Get().(*buffer)
	defer b.release()
	r, err := b.openFrame(p.Blob)
	if err != nil {
		return err
	}
	if err := r.into(out); err != nil {
		return err
	}
	return r.mustBeAtEnd()
}

// target returns the value that out points to.
func target(out any) (reflect.Value, error) {
	v := reflect.ValueOf(out)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return v, fail(ErrUnsupportedType, "cannot decode into %T; pass a non-nil pointer", out)
	}
	return v.Elem(), nil
}

func decodeNull(out any) error {
	r := reader{buf: []byte{tagNull}}
	return r.into(out)
}

// into decodes one value into the value that out points to, without reflection for common types.
func (r *reader) into(out any) error {
	switch out := out.(type) {
	case *any:
		if out == nil {
			break
		}
		if *out != nil { // it may hold a pointer to fill
			return r.value(reflect.ValueOf(out).Elem())
		}
		v, err := r.any()
		if err == nil {
			*out = v
		}
		return err
	case *string:
		if out != nil && r.at(tagString) {
			s, err := r.text()
			*out = string(s)
			return err
		}
	case *int64:
		if out != nil && r.at(tagLong) {
			n, err := r.long()
			*out = n
			return err
		}
	case *float64:
		if out != nil && r.at(tagDouble) {
			f, err := r.double()
			*out = f
			return err
		}
	case *bool:
		if out != nil && r.at(tagBool) {
			b, err := r.bool()
			*out = b
			return err
		}
	case *Payload:
		if out != nil {
			return r.payload(out)
		}
	}
	v, err := target(out)
	if err != nil {
		return err
	}
	return r.value(v)
}

// at consumes the branch of the next value if it is tag.
func (r *reader) at(tag byte) bool {
	if r.pos < len(r.buf) && r.buf[r.pos] == tag {
		r.pos++
		return true
	}
	return false
}

// value reads one value into v, which must be settable.
func (r *reader) value(v reflect.Value) error {
	return decoderOf(v.Type())(r, v)
}

// payload copies the next value into a separate payload.
func (r *reader) payload(out *Payload) error {
	start := r.pos
	if err := r.skip(); err != nil {
		return err
	}
	b := buffers.Get().(*buffer)
	defer b.release()
	b.bin = append(append(b.bin[:0], header...), r.buf[start:r.pos]...)
	p, err := b.seal(MaxDecodedBytes)
	if err == nil {
		*out = p
	}
	return err
}

// mismatch returns the error for a value of branch tag that cannot be decoded into a t.
func mismatch(tag byte, t reflect.Type) error {
	names := [...]string{"null", "a boolean", "an integer", "a double", "bytes", "a string", "an array", "a map"}
	return &mismatchError{got: names[tag>>1], want: t}
}
