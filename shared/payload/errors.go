package payload

import (
	"errors"
	"fmt"
	"reflect"
)

// reasonError is a sentinel error. Its text is the machine-readable reason in the error body.
type reasonError string

func (e reasonError) Error() string { return string(e) }

// textError has a text for people, which does not contain the wrapped reason.
type textError struct{ reason, text error }

func (e *textError) Error() string   { return e.text.Error() }
func (e *textError) Unwrap() []error { return []error{e.reason, e.text} }

// fail returns an error of a reason with a text that does not repeat it.
func fail(reason error, format string, args ...any) error {
	return &textError{reason, fmt.Errorf(format, args...)}
}

// mismatchError reports that a value does not fit a Go type.
type mismatchError struct {
	got  string
	want reflect.Type
}

func (e *mismatchError) Error() string { return fmt.Sprintf("cannot decode %s into %s", e.got, e.want) }
func (e *mismatchError) Unwrap() error { return ErrTypeMismatch }

// acceptedBy names the values that fit a type.
func acceptedBy(t reflect.Type) string {
	switch k := t.Kind(); {
	case k == reflect.String:
		return "a string"
	case k == reflect.Bool:
		return "a boolean"
	case k >= reflect.Int && k <= reflect.Uint64:
		return "an integer"
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	case k == reflect.Slice || k == reflect.Array:
		return "an array"
	case k == reflect.Map || k == reflect.Struct:
		return "a map for " + t.String()
	}
	return "a value for " + t.String()
}

// mebibytes returns a size in MiB.
func mebibytes(n int) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// counted returns a number of arguments in words.
func counted(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", n)
}

// The errors of this package, for errors.Is. Each error of this package wraps one of them; its text is the reason sent
// to clients (see Reason).
var (
	// ErrInvalidFraming: not base64, no frame, or a datum that is truncated, over-long or not of the schema.
	ErrInvalidFraming error = reasonError("invalid_payload_framing")
	// ErrUnsupportedSchema: a sound frame with the fingerprint of another schema.
	ErrUnsupportedSchema error = reasonError("unsupported_payload_schema")
	// ErrTooLarge: the blob is longer than MaxBytes. Retrying cannot help.
	ErrTooLarge error = reasonError("payload_too_large")
	// ErrTooDeep: more than MaxDepth arrays and maps inside one another, or a Go value that contains itself.
	ErrTooDeep error = reasonError("payload_too_deep")
	// ErrUnsupportedCodec: an envelope whose codec is not "avro".
	ErrUnsupportedCodec error = reasonError("unsupported_payload_codec")
	// ErrIntegerOverflow: an integer outside signed 64 bit when encoding, or outside the Go type when decoding.
	ErrIntegerOverflow error = reasonError("integer_overflow")
	// ErrNonFinite: NaN or an infinity, which no client accepts.
	ErrNonFinite error = reasonError("non_finite_float")
	// ErrInvalidUTF8: a string that is not UTF-8; raw bytes belong in a []byte.
	ErrInvalidUTF8 error = reasonError("invalid_utf8")
	// ErrUnsupportedType: a Go type without an encoding (channel, function, complex number, …).
	ErrUnsupportedType error = reasonError("unsupported_value_type")
	// ErrTypeMismatch: the stored value does not fit the Go type it is decoded into.
	ErrTypeMismatch error = reasonError("payload_type_mismatch")
	// ErrArgumentCount: more arguments are stored than the receiver takes, or no argument list at all.
	ErrArgumentCount error = reasonError("argument_count_mismatch")
	// ErrInvalidJSON: the text given to FromJSON, or returned by a json.Marshaler, is not one JSON value.
	ErrInvalidJSON error = reasonError("invalid_json")
)

// Reason returns the machine-readable reason of an error of this package, the outermost one if several are wrapped, or
// "" for other errors.
func Reason(err error) string {
	if reason, ok := errors.AsType[reasonError](err); ok {
		return string(reason)
	}
	return ""
}
