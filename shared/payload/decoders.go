package payload

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strconv"
	"sync"
)

// decoder decodes one value into a settable value of its type.
type decoder func(r *reader, v reflect.Value) error

var decoders sync.Map // reflect.Type → decoder

// decoderOf is the counterpart of encoderOf.
func decoderOf(t reflect.Type) decoder {
	if d, ok := decoders.Load(t); ok {
		return d.(decoder)
	}
	var (
		ready sync.WaitGroup
		made  decoder
	)
	ready.Add(1)
	waiting, loaded := decoders.LoadOrStore(t, decoder(func(r *reader, v reflect.Value) error {
		ready.Wait()
		return made(r, v)
	}))
	if loaded {
		return waiting.(decoder)
	}
	made = newDecoder(t)
	ready.Done()
	decoders.Store(t, made)
	return made
}

var (
	unmarshalerType     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func newDecoder(t reflect.Type) decoder {
	p := reflect.PointerTo(t)
	switch {
	case t == payloadType:
		return func(r *reader, v reflect.Value) error { return r.payload(v.Addr().Interface().(*Payload)) }
	case t == numberType:
		return decodeNumber
	case t == timeType:
		return decodeText
	case t.Kind() == reflect.Pointer:
		return pointerDecoder(t)
	case t.Kind() == reflect.Interface:
		return decodeInterface
	case p.Implements(unmarshalerType):
		return decodeUnmarshaler
	case p.Implements(textUnmarshalerType):
		return decodeText
	}
	switch t.Kind() {
	case reflect.Bool:
		return decodeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return decodeInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return decodeUint
	case reflect.Float32, reflect.Float64:
		return decodeFloat
	case reflect.String:
		return decodeString
	case reflect.Slice:
		if byteSlice(t.Elem()) {
			return bytesDecoder(t)
		}
		return sliceDecoder(t)
	case reflect.Array:
		return arrayDecoder(t)
	case reflect.Map:
		return mapDecoder(t)
	case reflect.Struct:
		return structDecoder(t)
	}
	return func(*reader, reflect.Value) error { return fail(ErrUnsupportedType, "unsupported type %s", t) }
}

func decodeBool(r *reader, v reflect.Value) error {
	tag, err := r.tag()
	if err != nil || tag == tagNull {
		return err
	}
	if tag != tagBool {
		return mismatch(tag, v.Type())
	}
	b, err := r.bool()
	v.SetBool(b)
	return err
}

func decodeInt(r *reader, v reflect.Value) error {
	tag, err := r.tag()
	if err != nil || tag == tagNull {
		return err
	}
	if tag != tagLong {
		return mismatch(tag, v.Type())
	}
	n, err := r.long()
	if err != nil {
		return err
	}
	if v.OverflowInt(n) {
		return fail(ErrIntegerOverflow, "%d overflows %s", n, v.Type())
	}
	v.SetInt(n)
	return nil
}

func decodeUint(r *reader, v reflect.Value) error {
	tag, err := r.tag()
	if err != nil || tag == tagNull {
		return err
	}
	if tag != tagLong {
		return mismatch(tag, v.Type())
	}
	n, err := r.long()
	if err != nil {
		return err
	}
	if n < 0 || v.OverflowUint(uint64(n)) {
		return fail(ErrIntegerOverflow, "%d overflows %s", n, v.Type())
	}
	v.SetUint(uint64(n))
	return nil
}

func decodeFloat(r *reader, v reflect.Value) error {
	tag, err := r.tag()
	if err != nil || tag == tagNull {
		return err
	}
	var f float64
	switch tag {
	case tagDouble:
		f, err = r.double()
	case tagLong: // a whole number written without a fraction, as JSON writers do
		var n int64
		n, err = r.long()
		f = float64(n)
	default:
		return mismatch(tag, v.Type())
	}
	if err != nil {
		return err
	}
	if v.OverflowFloat(f) {
		return fail(ErrTypeMismatch, "cannot decode %v into %s", f, v.Type())
	}
	v.SetFloat(f)
	return nil
}

func decodeString(r *reader, v reflect.Value) error {
	tag, err := r.tag()
	if err != nil || tag == tagNull {
		return err
	}
	if tag != tagString {
		return mismatch(tag, v.Type())
	}
	s, err := r.text()
	v.SetString(string(s))
	return err
}

func decodeNumber(r *reader, v reflect.Value) error {
	tag, err := r.tag()
	if err != nil || tag == tagNull {
		return err
	}
	switch tag {
	case tagLong:
		n, err := r.long()
		v.SetString(strconv.FormatInt(n, 10))
		return err
	case tagDouble:
		f, err := r.double()
		v.SetString(string(appendDouble(nil, f)))
		return err
	}
	return mismatch(tag, v.Type())
}

// bytesDecoder accepts bytes, a string of base64 or an array of numbers.
func bytesDecoder(t reflect.Type) decoder {
	numbers := sliceDecoder(t)
	return func(r *reader, v reflect.Value) error {
		tag, err := r.peek()
		if err != nil {
			return err
		}
		if tag == tagArray {
			return numbers(r, v)
		}
		r.pos++
		switch tag {
		case tagNull:
			v.SetZero()
			return nil
		case tagBytes:
			b, err := r.bytes()
			v.SetBytes(append(make([]byte, 0, len(b)), b...))
			return err
		case tagString:
			s, err := r.text()
			if err != nil {
				return err
			}
			b, err := base64.StdEncoding.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(s))), s)
			if err != nil {
				return fail(ErrTypeMismatch, "cannot decode a string into %s: %w", t, err)
			}
			v.SetBytes(b)
			return nil
		}
		return mismatch(tag, t)
	}
}

// decodeText decodes a type with its own text form, for example time.Time.
func decodeText(r *reader, v reflect.Value) error {
	tag, err := r.tag()
	if err != nil || tag == tagNull {
		return err
	}
	if tag != tagString {
		return mismatch(tag, v.Type())
	}
	s, err := r.text()
	if err != nil {
		return err
	}
	if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(append([]byte(nil), s...)); err != nil {
		return fail(ErrTypeMismatch, "cannot decode a string into %s: %w", v.Type(), err)
	}
	return nil
}

// decodeUnmarshaler passes a value to a type as JSON, with bytes as base64 text. Like encoding/json it also passes
// null.
func decodeUnmarshaler(r *reader, v reflect.Value) error {
	plain, err := r.json(nil, false)
	if err != nil {
		return err
	}
	if err := v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(plain); err != nil {
		return fail(ErrTypeMismatch, "cannot decode into %s: %w", v.Type(), err)
	}
	return nil
}

// decodeInterface decodes into the value that an interface points to, and stores a plain value in an empty interface.
func decodeInterface(r *reader, v reflect.Value) error {
	if !v.IsNil() {
		if held := v.Elem(); held.Kind() == reflect.Pointer && !held.IsNil() && held.Elem().Kind() != reflect.Interface {
			if tag, err := r.peek(); err != nil || tag != tagNull {
				if err != nil {
					return err
				}
				return r.value(held.Elem())
			}
		}
	}
	if v.NumMethod() > 0 {
		tag, err := r.tag()
		if err != nil {
			return err
		}
		if tag != tagNull {
			return mismatch(tag, v.Type())
		}
		v.SetZero()
		return nil
	}
	plain, err := r.any()
	if err != nil {
		return err
	}
	if plain == nil {
		v.SetZero()
	} else {
		v.Set(reflect.ValueOf(plain))
	}
	return nil
}

func pointerDecoder(t reflect.Type) decoder {
	elem := decoderOf(t.Elem())
	return func(r *reader, v reflect.Value) error {
		tag, err := r.peek()
		if err != nil {
			return err
		}
		if tag == tagNull {
			r.pos++
			v.SetZero()
			return nil
		}
		if v.IsNil() {
			v.Set(reflect.New(t.Elem()))
		}
		return elem(r, v.Elem())
	}
}

// decodeQuoted reads a field tagged ",string", whose JSON text is in a string.
func decodeQuoted(r *reader, v reflect.Value) error {
	tag, err := r.tag()
	if err != nil {
		return err
	}
	if tag == tagNull {
		if v.Kind() == reflect.Pointer {
			v.SetZero()
		}
		return nil
	}
	if tag != tagString {
		return mismatch(tag, v.Type())
	}
	s, err := r.text()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(s, v.Addr().Interface()); err != nil {
		return fail(ErrTypeMismatch, "cannot decode a string into %s: %w", v.Type(), err)
	}
	return nil
}
