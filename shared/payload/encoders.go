package payload

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// encoder encodes one value of its type.
type encoder func(w *writer, v reflect.Value) error

var encoders sync.Map // reflect.Type → encoder

// encoderOf returns the encoder of t, which is created at first use. While the encoder of a recursive type is being
// created, its cache entry is a function that waits for it.
func encoderOf(t reflect.Type) encoder {
	if e, ok := encoders.Load(t); ok {
		return e.(encoder)
	}
	var (
		ready sync.WaitGroup
		made  encoder
	)
	ready.Add(1)
	waiting, loaded := encoders.LoadOrStore(t, encoder(func(w *writer, v reflect.Value) error {
		ready.Wait()
		return made(w, v)
	}))
	if loaded {
		return waiting.(encoder)
	}
	made = newEncoder(t, true)
	ready.Done()
	encoders.Store(t, made)
	return made
}

var (
	marshalerType     = reflect.TypeFor[json.Marshaler]()
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
	timeType          = reflect.TypeFor[time.Time]()
	numberType        = reflect.TypeFor[json.Number]()
	payloadType       = reflect.TypeFor[Payload]()
)

func newEncoder(t reflect.Type, addressable bool) encoder {
	switch t {
	case timeType:
		return func(w *writer, v reflect.Value) error { return w.time(v.Interface().(time.Time)) }
	case numberType:
		return func(w *writer, v reflect.Value) error { return w.jsonNumber(v.String()) }
	case payloadType:
		return func(w *writer, v reflect.Value) error { return w.payload(Payload{Blob: v.Field(0).String()}) }
	}
	if t.Kind() == reflect.Interface { // depends on its value
		return func(w *writer, v reflect.Value) error {
			if v.IsNil() {
				w.null()
				return nil
			}
			return w.any(v.Elem().Interface())
		}
	}
	// A pointer receiver can be used only if the value is addressable, as in encoding/json.
	if addressable && t.Kind() != reflect.Pointer && !t.Implements(marshalerType) {
		if p := reflect.PointerTo(t); p.Implements(marshalerType) ||
			!t.Implements(textMarshalerType) && p.Implements(textMarshalerType) {
			plain, pointed := newEncoder(t, false), encoderOf(p)
			return func(w *writer, v reflect.Value) error {
				if v.CanAddr() {
					return pointed(w, v.Addr())
				}
				return plain(w, v)
			}
		}
	}
	if t.Kind() == reflect.Pointer && (t.Elem() == timeType || t.Elem() == payloadType) {
		return pointerEncoder(t)
	}
	if t.Implements(marshalerType) {
		return encodeMarshaler
	}
	if t.Implements(textMarshalerType) {
		return encodeTextMarshaler
	}
	switch t.Kind() {
	case reflect.Bool:
		return func(w *writer, v reflect.Value) error { w.bool(v.Bool()); return nil }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(w *writer, v reflect.Value) error { w.long(v.Int()); return nil }
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return func(w *writer, v reflect.Value) error { return w.ulong(v.Uint()) }
	case reflect.Float32, reflect.Float64:
		return func(w *writer, v reflect.Value) error { return w.double(v.Float()) }
	case reflect.String:
		return func(w *writer, v reflect.Value) error { return w.string(v.String()) }
	case reflect.Pointer:
		return pointerEncoder(t)
	case reflect.Slice, reflect.Array:
		return listEncoder(t)
	case reflect.Map:
		return mapEncoder(t)
	case reflect.Struct:
		return structEncoder(t)
	}
	return func(*writer, reflect.Value) error { return fail(ErrUnsupportedType, "unsupported type %s", t) }
}

func encodeMarshaler(w *writer, v reflect.Value) error {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		w.null()
		return nil
	}
	raw, err := v.Interface().(json.Marshaler).MarshalJSON()
	if err != nil {
		return fmt.Errorf("%s: %w", v.Type(), err)
	}
	return w.json(raw, false)
}

func encodeTextMarshaler(w *writer, v reflect.Value) error {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		w.null()
		return nil
	}
	text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
	if err != nil {
		return fmt.Errorf("%s: %w", v.Type(), err)
	}
	return w.string(string(text))
}

func pointerEncoder(t reflect.Type) encoder {
	elem := encoderOf(t.Elem())
	// a value may contain itself without a container
	nested := t.Elem().Kind() == reflect.Pointer || t.Elem().Kind() == reflect.Interface
	return func(w *writer, v reflect.Value) error {
		if v.IsNil() {
			w.null()
			return nil
		}
		if !nested {
			return elem(w, v.Elem())
		}
		if err := w.enter(); err != nil {
			return err
		}
		defer func() { w.depth-- }()
		return elem(w, v.Elem())
	}
}

// byteSlice reports whether a slice with elements of type t is bytes rather than an array of numbers.
func byteSlice(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Kind() == reflect.Uint8 && !p.Implements(marshalerType) && !p.Implements(textMarshalerType)
}

func listEncoder(t reflect.Type) encoder {
	slice := t.Kind() == reflect.Slice
	if slice && byteSlice(t.Elem()) {
		return func(w *writer, v reflect.Value) error {
			if v.IsNil() {
				w.null()
			} else {
				w.bytes(v.Bytes())
			}
			return nil
		}
	}
	elem := encoderOf(t.Elem())
	return func(w *writer, v reflect.Value) error {
		if slice && v.IsNil() {
			w.null()
			return nil
		}
		if err := w.enter(); err != nil {
			return err
		}
		w.buf = append(w.buf, tagArray)
		if n := v.Len(); n > 0 {
			w.number(int64(n))
			for i := range n {
				if err := elem(w, v.Index(i)); err != nil {
					return at(err, "["+strconv.Itoa(i)+"]")
				}
			}
		}
		w.buf = append(w.buf, 0)
		w.depth--
		return nil
	}
}

func mapEncoder(t reflect.Type) encoder {
	keyText := keyEncoder(t.Key())
	if keyText == nil {
		return func(*writer, reflect.Value) error {
			return fail(ErrUnsupportedType, "unsupported type of map keys: %s", t.Key())
		}
	}
	elem := encoderOf(t.Elem())
	type entry struct {
		key   string
		value reflect.Value
	}
	return func(w *writer, v reflect.Value) error {
		if v.IsNil() {
			w.null()
			return nil
		}
		if err := w.enter(); err != nil {
			return err
		}
		w.buf = append(w.buf, tagMap)
		if n := v.Len(); n > 0 {
			entries := make([]entry, 0, n)
			for it := v.MapRange(); it.Next(); {
				key, err := keyText(it.Key())
				if err != nil {
					return err
				}
				entries = append(entries, entry{key, it.Value()})
			}
			slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
			w.number(int64(len(entries)))
			for _, e := range entries {
				if err := w.text(e.key); err != nil {
					return err
				}
				if err := elem(w, e.value); err != nil {
					return at(err, "."+e.key)
				}
			}
		}
		w.buf = append(w.buf, 0)
		w.depth--
		return nil
	}
}

// keyEncoder returns the encoder of a map key of type t, or nil if t cannot be a key: a string unchanged, else its
// MarshalText, else an integer in decimal.
func keyEncoder(t reflect.Type) func(reflect.Value) (string, error) {
	switch {
	case t.Kind() == reflect.String:
		return func(v reflect.Value) (string, error) { return v.String(), nil }
	case t.Implements(textMarshalerType):
		return func(v reflect.Value) (string, error) {
			if v.Kind() == reflect.Pointer && v.IsNil() {
				return "", nil
			}
			text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
			return string(text), err
		}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		return func(v reflect.Value) (string, error) { return strconv.FormatInt(v.Int(), 10), nil }
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uintptr:
		return func(v reflect.Value) (string, error) { return strconv.FormatUint(v.Uint(), 10), nil }
	}
	return nil
}

func structEncoder(t reflect.Type) encoder {
	s := structOf(t)
	encs := make([]encoder, len(s.fields))
	fixed := true
	for i, f := range s.fields {
		encs[i] = encoderOf(f.typ)
		if f.quoted {
			encs[i] = encodeQuoted
		}
		fixed = fixed && !f.optional()
	}
	return func(w *writer, v reflect.Value) error {
		if err := w.enter(); err != nil {
			return err
		}
		w.buf = append(w.buf, tagMap)
		n := len(s.fields)
		if !fixed {
			n = 0
			for i := range s.fields {
				if _, present := s.fields[i].value(v); present {
					n++
				}
			}
		}
		if n > 0 {
			w.number(int64(n))
			for i := range s.fields {
				f := &s.fields[i]
				value, present := f.value(v)
				if !present {
					continue
				}
				w.buf = append(w.buf, f.key...)
				if err := encs[i](w, value); err != nil {
					return at(err, "."+f.name)
				}
			}
		}
		w.buf = append(w.buf, 0)
		w.depth--
		return nil
	}
}

// encodeQuoted writes a field tagged ",string": its JSON text as a string, null if it is a nil pointer.
func encodeQuoted(w *writer, v reflect.Value) error {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		w.null()
		return nil
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return err
	}
	return w.string(string(text))
}
