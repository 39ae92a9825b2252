package payload

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Encode encodes a Go value. Names and shapes are those of encoding/json: struct tags with omitempty, omitzero and
// string, embedded structs, string, integer and text map keys, json.Marshaler and encoding.TextMarshaler, json.Number,
// json.RawMessage. Types are preserved: integers are encoded as longs (outside int64: ErrIntegerOverflow), floats as
// doubles (NaN and infinities: ErrNonFinite), []byte as bytes, time.Time as RFC 3339 text, and a Payload as its value.
// Strings must be UTF-8 (ErrInvalidUTF8).
//
// Equal values give equal bytes: struct fields are written in declaration order, map keys sorted.
func Encode(v any) (Payload, error) { return EncodeUpTo(MaxBytes, v) }

// EncodeUpTo is Encode with another limit of the blob's length, for a payload that a codec encodes afterwards.
func EncodeUpTo(limit int, v any) (Payload, error) {
	b := buffers.Get().(*buffer)
	defer b.release()
	if p, ok := v.(Payload); ok && !p.IsZero() {
		r, err := b.openText(p.Text(), limit)
		if err := valid(r, err); err != nil {
			return Payload{}, err
		}
		return p, nil
	}
	w := writer{buf: append(b.bin[:0], header...), limit: limit}
	err := w.any(v)
	b.bin = w.buf
	if err != nil {
		return Payload{}, err
	}
	return b.seal(limit)
}

// EncodeArgs encodes positional arguments as one array; no arguments give the empty array.
func EncodeArgs(args ...any) (Payload, error) { return EncodeArgsUpTo(MaxBytes, args...) }

// EncodeArgsUpTo is EncodeArgs with another limit of the blob's length, as in EncodeUpTo.
func EncodeArgsUpTo(limit int, args ...any) (Payload, error) {
	b := buffers.Get().(*buffer)
	defer b.release()
	w := writer{buf: append(b.bin[:0], header...), limit: limit}
	err := w.args(args)
	b.bin = w.buf
	if err != nil {
		return Payload{}, err
	}
	return b.seal(limit)
}

// writer appends a datum to buf.
type writer struct {
	buf   []byte
	depth int
	limit int // maximum length of the blob; 0: MaxBytes
}

func (w *writer) enter() error {
	if w.depth++; w.depth > MaxDepth {
		return fail(ErrTooDeep, "the value has more than %d levels or contains itself", MaxDepth)
	}
	limit := cmp.Or(w.limit, MaxBytes)
	if len(w.buf) > limit { // stop early, so that a huge value is not built and then rejected
		return fail(ErrTooLarge, "more than the limit of %s encoded", mebibytes(limit))
	}
	return nil
}

func (w *writer) number(n int64) { w.buf = binary.AppendVarint(w.buf, n) }

func (w *writer) null() { w.buf = append(w.buf, tagNull) }

func (w *writer) bool(b bool) {
	if b {
		w.buf = append(w.buf, tagBool, 1)
	} else {
		w.buf = append(w.buf, tagBool, 0)
	}
}

func (w *writer) long(n int64) {
	w.buf = append(w.buf, tagLong)
	w.number(n)
}

func (w *writer) ulong(n uint64) error {
	if n > math.MaxInt64 {
		return fail(ErrIntegerOverflow, "%d does not fit into a signed 64-bit integer", n)
	}
	w.long(int64(n))
	return nil
}

func (w *writer) double(f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fail(ErrNonFinite, "%v is not a finite number", f)
	}
	w.buf = append(w.buf, tagDouble)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, math.Float64bits(f))
	return nil
}

func (w *writer) bytes(b []byte) {
	w.buf = append(w.buf, tagBytes)
	w.number(int64(len(b)))
	w.buf = append(w.buf, b...)
}

func (w *writer) string(s string) error {
	w.buf = append(w.buf, tagString)
	return w.text(s)
}

// text writes a map key, or a string whose branch is written.
func (w *writer) text(s string) error {
	if !utf8.ValidString(s) {
		return fail(ErrInvalidUTF8, "%.40q is not valid UTF-8", s)
	}
	w.number(int64(len(s)))
	w.buf = append(w.buf, s...)
	return nil
}

// jsonNumber writes integer syntax as a long, anything with a fraction or exponent as a double.
func (w *writer) jsonNumber(s string) error {
	if s == "" {
		s = "0" // as encoding/json does
	}
	if !json.Valid([]byte(s)) { // strconv accepts more: signs, hexadecimal, leading zeros
		return fail(ErrInvalidJSON, "invalid JSON number %.40q", s)
	}
	return w.validNumber(s)
}

// validNumber is jsonNumber for a text that is a valid number.
func (w *writer) validNumber(s string) error {
	if !strings.ContainsAny(s, ".eE") {
		n, err := strconv.ParseInt(s, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return fail(ErrIntegerOverflow, "%.40s does not fit into a signed 64-bit integer", s)
		case err != nil:
			return fail(ErrInvalidJSON, "invalid JSON number %.40q", s)
		}
		w.long(n)
		return nil
	}
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fail(ErrNonFinite, "%.40s is too large for a 64-bit floating-point number", s)
	case err != nil:
		return fail(ErrInvalidJSON, "invalid JSON number %.40q", s)
	}
	return w.double(f)
}

func (w *writer) time(t time.Time) error {
	text, err := t.MarshalText() // refuses years and zone offsets RFC 3339 cannot write
	if err != nil {
		return fail(ErrUnsupportedType, "%w", err)
	}
	return w.string(string(text))
}

// payload writes the value p holds in place.
func (w *writer) payload(p Payload) error {
	if p.IsZero() {
		w.null()
		return nil
	}
	b := buffers.Get().(*buffer)
	defer b.release()
	r, err := b.openFrame(p.Blob)
	if err != nil {
		return err
	}
	r.depth = w.depth
	start := r.pos
	if err := r.skip(); err != nil {
		return err
	}
	if err := r.mustBeAtEnd(); err != nil {
		return err
	}
	w.buf = append(w.buf, r.buf[start:]...)
	return nil
}

// any encodes common types without reflection.
func (w *writer) any(v any) error {
	switch v := v.(type) {
	case nil:
		w.null()
	case bool:
		w.bool(v)
	case int:
		w.long(int64(v))
	case int64:
		w.long(v)
	case int32:
		w.long(int64(v))
	case float64:
		return w.double(v)
	case string:
		return w.string(v)
	case []byte:
		if v == nil {
			w.null()
		} else {
			w.bytes(v)
		}
	case []any:
		if v == nil {
			w.null()
			return nil
		}
		return w.args(v)
	case map[string]any:
		return w.anyMap(v)
	case json.Number:
		return w.jsonNumber(string(v))
	case time.Time:
		return w.time(v)
	case Payload:
		return w.payload(v)
	default:
		rv := reflect.ValueOf(v)
		return encoderOf(rv.Type())(w, rv)
	}
	return nil
}

// args writes an array; a nil slice is an empty one here.
func (w *writer) args(items []any) error {
	if err := w.enter(); err != nil {
		return err
	}
	w.buf = append(w.buf, tagArray)
	if len(items) > 0 {
		w.number(int64(len(items)))
		for i, item := range items {
			if err := w.any(item); err != nil {
				return at(err, "["+strconv.Itoa(i)+"]")
			}
		}
	}
	w.buf = append(w.buf, 0)
	w.depth--
	return nil
}

func (w *writer) anyMap(m map[string]any) error {
	if m == nil {
		w.null()
		return nil
	}
	if err := w.enter(); err != nil {
		return err
	}
	w.buf = append(w.buf, tagMap)
	if len(m) > 0 {
		var few [16]string
		keys := few[:0]
		for key := range m {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		w.number(int64(len(keys)))
		for _, key := range keys {
			if err := w.text(key); err != nil {
				return err
			}
			if err := w.any(m[key]); err != nil {
				return at(err, "."+key)
			}
		}
	}
	w.buf = append(w.buf, 0)
	w.depth--
	return nil
}
