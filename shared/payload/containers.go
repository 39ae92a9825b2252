package payload

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
)

// start reads the branch of a container and enters it; entered is false after null, which the caller handles.
func (r *reader) start(want byte, t reflect.Type) (b blocks, entered bool, err error) {
	tag, err := r.tag()
	if err != nil || tag == tagNull {
		return b, false, err
	}
	if tag != want {
		return b, false, mismatch(tag, t)
	}
	least := 1
	if want == tagMap {
		least = 2
	}
	b, err = r.enter(least)
	return b, err == nil, err
}

func sliceDecoder(t reflect.Type) decoder {
	elem := decoderOf(t.Elem())
	return func(r *reader, v reflect.Value) error {
		b, entered, err := r.start(tagArray, t)
		if err != nil {
			return err
		}
		if !entered {
			v.SetZero()
			return nil
		}
		n := 0
		for {
			more, err := r.next(&b)
			if err != nil {
				return err
			}
			if !more {
				break
			}
			if n == 0 {
				v.Set(reflect.MakeSlice(t, 0, b.room()))
			}
			if n == v.Cap() {
				v.Grow(1)
			}
			v.SetLen(n + 1)
			if err := elem(r, v.Index(n)); err != nil {
				return at(err, "["+strconv.Itoa(n)+"]")
			}
			n++
		}
		if n == 0 {
			v.Set(reflect.MakeSlice(t, 0, 0))
		}
		return nil
	}
}

// arrayDecoder fills a Go array: items beyond it are dropped, missing ones zeroed, as in encoding/json.
func arrayDecoder(t reflect.Type) decoder {
	elem := decoderOf(t.Elem())
	return func(r *reader, v reflect.Value) error {
		b, entered, err := r.start(tagArray, t)
		if err != nil || !entered {
			return err
		}
		n := 0
		for ; ; n++ {
			more, err := r.next(&b)
			if err != nil {
				return err
			}
			if !more {
				break
			}
			if n >= t.Len() {
				err = r.skip()
			} else {
				err = elem(r, v.Index(n))
			}
			if err != nil {
				return at(err, "["+strconv.Itoa(n)+"]")
			}
		}
		for ; n < t.Len(); n++ {
			v.Index(n).SetZero()
		}
		return nil
	}
}

func mapDecoder(t reflect.Type) decoder {
	setKey := keyDecoder(t.Key())
	if setKey == nil {
		return func(*reader, reflect.Value) error {
			return fail(ErrUnsupportedType, "unsupported type of map keys: %s", t.Key())
		}
	}
	elem := decoderOf(t.Elem())
	return func(r *reader, v reflect.Value) error {
		b, entered, err := r.start(tagMap, t)
		if err != nil {
			return err
		}
		if !entered {
			v.SetZero()
			return nil
		}
		if v.IsNil() {
			v.Set(reflect.MakeMap(t))
		}
		key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		for {
			more, err := r.next(&b)
			if err != nil || !more {
				return err
			}
			name, err := r.text()
			if err != nil {
				return err
			}
			key.SetZero()
			if err := setKey(key, name); err != nil {
				return at(err, "."+string(name))
			}
			value.SetZero()
			if err := elem(r, value); err != nil {
				return at(err, "."+string(name))
			}
			v.SetMapIndex(key, value)
		}
	}
}

// keyDecoder is the counterpart of keyEncoder.
func keyDecoder(t reflect.Type) func(reflect.Value, []byte) error {
	refuse := func(name []byte) error { return fail(ErrTypeMismatch, "cannot decode map key %.40q into %s", name, t) }
	switch {
	case reflect.PointerTo(t).Implements(textUnmarshalerType):
		return func(v reflect.Value, name []byte) error {
			text := append([]byte(nil), name...)
			if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(text); err != nil {
				return fmt.Errorf("%w: %w", refuse(name), err)
			}
			return nil
		}
	case t.Kind() == reflect.String:
		return func(v reflect.Value, name []byte) error { v.SetString(string(name)); return nil }
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		return func(v reflect.Value, name []byte) error {
			n, err := strconv.ParseInt(string(name), 10, 64)
			if err != nil || v.OverflowInt(n) {
				return refuse(name)
			}
			v.SetInt(n)
			return nil
		}
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uintptr:
		return func(v reflect.Value, name []byte) error {
			n, err := strconv.ParseUint(string(name), 10, 64)
			if err != nil || v.OverflowUint(n) {
				return refuse(name)
			}
			v.SetUint(n)
			return nil
		}
	}
	return nil
}

func structDecoder(t reflect.Type) decoder {
	s := structOf(t)
	decs := make([]decoder, len(s.fields))
	for i, f := range s.fields {
		decs[i] = decoderOf(f.typ)
		if f.quoted {
			decs[i] = decodeQuoted
		}
	}
	return func(r *reader, v reflect.Value) error {
		b, entered, err := r.start(tagMap, t)
		if err != nil || !entered {
			return err
		}
		for {
			more, err := r.next(&b)
			if err != nil || !more {
				return err
			}
			name, err := r.text()
			if err != nil {
				return err
			}
			i := s.find(name)
			if i < 0 {
				if err := r.skip(); err != nil {
					return err
				}
				continue
			}
			f := &s.fields[i]
			place, err := settable(v, f.index)
			if err != nil {
				return err
			}
			if err := decs[i](r, place); err != nil {
				return at(err, "."+f.name)
			}
		}
	}
}

// settable returns a field and allocates the embedded structs on the path to it.
func settable(v reflect.Value, index []int) (reflect.Value, error) {
	for i, x := range index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				if !v.CanSet() {
					return v, fail(ErrUnsupportedType, "cannot decode into an embedded pointer to unexported %s", v.Type().Elem())
				}
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(x)
	}
	return v, nil
}
